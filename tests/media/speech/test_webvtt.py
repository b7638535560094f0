"""WebVTT: whatever is said, the file has exactly these cues, and reading gives back what was written."""

from __future__ import annotations

import unicodedata
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_media.speech.transcript import Segment
from holdfast_media.speech.webvtt import LINES, LONGEST, WIDTH, cues_of, parse, timestamp, write

TIMES = st.floats(min_value=0, max_value=400_000, allow_nan=False)
SEGMENTS = st.lists(
    st.builds(lambda a, b, text: Segment(min(a, b), max(a, b), text), TIMES, TIMES, st.text(max_size=300)), max_size=8
)


def words(text: str) -> str:
    """A text as it is meant to be shown, without its breaks: long words may be cut anywhere."""
    hidden = {"Cc", "Zl", "Zp", "Cs"}
    return "".join("".join(" " if unicodedata.category(one) in hidden else one for one in text).split())


def cells(line: str) -> int:
    def width(one: str) -> int:
        if unicodedata.category(one) in {"Mn", "Me", "Cf"}:
            return 0
        return 2 if unicodedata.east_asian_width(one) in {"W", "F"} else 1

    return sum(map(width, line))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "00:00:00.000"),
        (-1, "00:00:00.000"),
        (1.5, "00:00:01.500"),
        (59.9996, "00:01:00.000"),
        (3599.9999, "01:00:00.000"),
        (3723.25, "01:02:03.250"),
        (360_000, "100:00:00.000"),
    ],
)
def test_times_have_hours_and_milliseconds(seconds: float, expected: str) -> None:
    assert timestamp(seconds) == expected


def test_a_file_looks_as_it_should() -> None:
    said = [Segment(0, 1.5, "Hello."), Segment(1.5, 3, " How are you? ")]
    assert write(said, language="en") == (
        "WEBVTT\nLanguage: en\n\n00:00:00.000 --> 00:00:01.500\nHello.\n\n00:00:01.500 --> 00:00:03.000\nHow are you?\n"
    )


def test_nothing_said_is_a_file_without_cues() -> None:
    assert write([]) == "WEBVTT\n"
    assert parse(write([Segment(0, 1, " \n ")])).cues == ()


@pytest.mark.parametrize(
    "text",
    [
        "a < b && c > d",
        "<script>alert(1)</script>",
        "00:00:01.000 --> 00:00:02.000",
        "one --> two",
        "NOTE not a note",
        "STYLE ::cue { color: red }",
        "&amp; is not &",
        "WEBVTT",
        "one\n\ntwo",
        "bell\x07 and nul\x00 and line\u2028separator",
    ],
)
def test_nothing_that_is_said_is_read_as_something_else(text: str) -> None:
    written = write([Segment(1, 2, text)])
    assert written.count("-->") == 1, "browsers end a cue at an arrow, wherever it stands"
    assert "<" not in written
    (cue,) = parse(written).cues
    assert words(cue.text) == words(text)
    assert (cue.start, cue.end) == (1.0, 2.0)


def test_a_language_that_is_none_cannot_add_lines() -> None:
    assert write([], language="en\n\n00:00.000 --> 00:01.000\nforged") == "WEBVTT\n"


def test_long_segments_become_cues_that_can_be_read() -> None:
    text = " ".join(f"word{number}" for number in range(60))
    cues = list(cues_of([Segment(10, 40, text)]))
    assert len(cues) >= 5
    assert " ".join(cue.text.replace("\n", " ") for cue in cues) == text
    assert all(cue.end - cue.start <= LONGEST + 1 for cue in cues)
    assert (cues[0].start, cues[-1].end) == (10, 40)
    assert all(before.end == after.start for before, after in pairwise(cues))


def test_text_without_spaces_is_cut_by_its_width() -> None:
    cues = list(cues_of([Segment(0, 5, "字" * 100)]))
    assert "".join(cue.text.replace("\n", "") for cue in cues).replace(" ", "") == "字" * 100
    assert all(cells(line) <= WIDTH for cue in cues for line in cue.text.split("\n"))


@given(SEGMENTS, st.sampled_from([None, "en", "pt-BR"]))
def test_what_is_written_is_read_back(segments: list[Segment], language: str | None) -> None:
    text = write(segments, language=language)
    read = parse(text)
    assert read.language == language
    assert "".join(words(cue.text) for cue in read.cues) == "".join(
        words(one.text) for one in sorted(segments, key=lambda one: one.start)
    )
    assert [cue.text for cue in read.cues] == [cue.text for cue in cues_of(segments)]
    assert all(cue.end > cue.start for cue in read.cues)
    assert text.count("-->") == len(read.cues)


@given(SEGMENTS)
def test_every_cue_fits_the_screen(segments: list[Segment]) -> None:
    for cue in cues_of(segments):
        lines = cue.text.split("\n")
        assert len(lines) <= LINES
        assert all(cells(line) <= WIDTH for line in lines)
        assert cue.text.strip()


@given(st.text(max_size=200))
def test_reading_never_fails_in_an_unforeseen_way(text: str) -> None:
    parse("WEBVTT\n\n" + text)
    with suppress(ValueError):
        parse(text)


def test_files_of_others_are_read_too() -> None:
    text = (
        "\ufeffWEBVTT - a title\r\nKind: captions\r\nLanguage: de\r\n\r\nNOTE\r\na note\r\n\r\n"
        "STYLE\r\n::cue { color: red }\r\n\r\n"
        "7\r\n00:01.000 --> 00:02.500 align:start line:0\r\n<v Ann>Guten <i>Tag</i> &amp; Weg\r\nzweite Zeile\r\n\r\n"
        "00:00:05.000 --> 00:00:04.000\r\nbackwards\r\n\r\nrubbish\r\n"
    )
    read = parse(text)
    assert read.language == "de"
    assert [(cue.start, cue.end, cue.text) for cue in read.cues] == [(1.0, 2.5, "Guten Tag & Weg\nzweite Zeile")]


@pytest.mark.parametrize("text", ["", "hello", "WEBVTTX\n", " WEBVTT"])
def test_what_is_no_webvtt_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no WebVTT"):
        parse(text)
