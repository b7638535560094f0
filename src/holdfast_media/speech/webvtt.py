"""WebVTT: what is said, as subtitles that every browser shows. Written for reading, and read back as it was written."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast_media.speech.transcript import Segment

WIDTH: Final = 42
"""Cells of a line, as broadcasters have it; a Chinese character takes two."""
LINES: Final = 2
"""Lines of a cue."""
LONGEST: Final = 7.0
"""Seconds that a cue stays, where its text has more than one word."""

_TIME: Final = r"(?:(\d{2,}):)?([0-5]\d):([0-5]\d)\.(\d{3})"
_TIMING: Final = re.compile(rf"^{_TIME}[ \t]+-->[ \t]+{_TIME}(?:[ \t]+(.*))?$")
_TAG: Final = re.compile(r"<[^>]*>")
_LANGUAGE: Final = re.compile(r"^Language:[ \t]*(\S+)$", re.MULTILINE)
_PLAIN: Final = re.compile(r"[A-Za-z0-9-]{1,35}")


@dataclass(frozen=True, slots=True)
class Cue:
    """What is shown together: a text, which may have several lines, and when."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Subtitles:
    """A WebVTT file, read."""

    cues: tuple[Cue, ...]
    language: str | None = None


# --- writing --------------------------------------------------------------------------------------------------------------


def write(segments: Iterable[Segment], *, language: str | None = None) -> str:
    """Return a WebVTT file of what is said.

    Long segments become several cues of at most two lines; their time is shared out by the length of the text. Whatever the
    texts hold, the file has exactly these cues: nothing in them is read as markup, as a timing or as the end of a cue.
    """
    blocks = ["WEBVTT" + (f"\nLanguage: {language}" if language is not None and _PLAIN.fullmatch(language) else "")]
    blocks += [
        f"{timestamp(cue.start)} --> {timestamp(cue.end)}\n{escaped(cue.text)}" for cue in cues_of(segments) if cue.text.strip()
    ]
    return "\n\n".join(blocks) + "\n"


def timestamp(seconds: float) -> str:
    """Return a time as WebVTT has it, to the millisecond; below zero there is none."""
    milliseconds = max(0, round(seconds * 1000))
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}"


def escaped(text: str) -> str:
    """Return a text that is shown as it is: `<i>` as these three characters, and no arrow that would read as a timing."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cues_of(segments: Iterable[Segment]) -> Iterator[Cue]:
    """Yield the cues for what is said, in the order of their beginnings. Each lasts a millisecond or longer."""
    for segment in sorted(segments, key=lambda one: one.start):
        start = max(0, round(segment.start * 1000))
        end = max(round(segment.end * 1000), start + 1)
        pieces = _pieces(_words(segment.text), end - start)
        total = sum(map(_cells, pieces))
        at, spent = start, 0
        for piece in pieces:
            spent += _cells(piece)
            until = max(start + (end - start) * spent // max(1, total), at + 1)
            yield Cue(at / 1000, until / 1000, "\n".join(_wrapped(piece.split(" "), WIDTH)))
            at = until


def _words(text: str) -> list[str]:
    """Return the words that can be shown, each no wider than a line. What breaks lines or steers terminals is a space here."""
    clean = "".join(" " if unicodedata.category(character) in {"Cc", "Zl", "Zp", "Cs"} else character for character in text)
    return [part for word in clean.split() for part in _parts(word)]


def _parts(word: str) -> Iterator[str]:
    """Cut what is wider than a line, as texts without spaces are; an accent stays with its letter."""
    part, cells = "", 0
    for character in word:
        width = _width(character)
        if width and cells + width > WIDTH:
            yield part
            part, cells = "", 0
        part, cells = part + character, cells + width
    if part:
        yield part


def _pieces(words: Sequence[str], milliseconds: int) -> list[str]:
    """Share words out over cues: as few as hold them, and none that stays too long; about equal in length."""
    if not words:
        return []
    count = min(len(words), max(1, -(-milliseconds // round(LONGEST * 1000))))
    while True:
        target = sum(_cells(word) + 1 for word in words) / count
        pieces: list[list[str]] = [[]]
        filled = 0.0
        for left, word in zip(range(len(words), 0, -1), words, strict=True):
            due = filled >= target * len(pieces) or left <= count - len(pieces)
            if pieces[-1] and ((due and len(pieces) < count) or len(_wrapped([*pieces[-1], word], WIDTH)) > LINES):
                pieces.append([])
            pieces[-1].append(word)
            filled += _cells(word) + 1
        if len(pieces) <= count:
            return [" ".join(piece) for piece in pieces]
        count = len(pieces)


def _wrapped(words: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and _cells(lines[-1]) + 1 + _cells(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _cells(text: str) -> int:
    return sum(map(_width, text))


def _width(character: str) -> int:
    """Return how many cells a character takes: none for what stands on or joins others."""
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


# --- reading --------------------------------------------------------------------------------------------------------------


def parse(text: str) -> Subtitles:
    """Read a WebVTT file: cues without their markup, in the order of the file. Raises `ValueError` for what is none.

    Notes, styles, regions, identifiers and settings of cues are passed over, as is a block that is none of them: that is what
    browsers do.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").split("\n")
    if not re.match(r"WEBVTT(?:[ \t].*)?$", lines[0]):
        raise ValueError("this is no WebVTT file: it does not begin with the word WEBVTT")
    blocks = re.split(r"\n{2,}", "\n".join(lines).strip("\n"))
    language = _LANGUAGE.search(blocks[0])
    return Subtitles(
        tuple(cue for block in blocks[1:] if (cue := _cue(block.split("\n"))) is not None), language and language[1]
    )


def _cue(lines: Sequence[str]) -> Cue | None:
    for number, line in enumerate(lines[:2]):  # the first line may be an identifier
        if (timing := _TIMING.match(line)) is not None:
            start, end = _seconds(timing.groups()[:4]), _seconds(timing.groups()[4:8])
            return Cue(start, end, unescape(_TAG.sub("", "\n".join(lines[number + 1 :])))) if end > start else None
    return None


def _seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, milliseconds = (int(part or 0) for part in parts)
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
