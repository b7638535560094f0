"""Ladders: what a file may say, and which sizes a source gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_media.errors import MediaError
from holdfast_media.ladder import choose, default_ladder, load_ladder
from holdfast_media.ladder.load import parse_ladder
from holdfast_media.source import Facts, VideoFacts

if TYPE_CHECKING:
    from pathlib import Path

RUNG = '[[rungs]]\nname = "{name}"\nheight = {height}\nvideo_kbps = 900\naudio_kbps = 96\n'


def shown(width: int, height: int) -> Facts:
    video = VideoFacts(
        index=0,
        codec="h264",
        coded_width=width,
        coded_height=height,
        width=width,
        height=height,
        time_base=(1, 25),
        start=0,
        end=25,
        frames=25,
        frame_rate=(25, 1),
    )
    return Facts(container="mov", size=1, seconds=1.0, video=video)


def sizes(width: int, height: int) -> dict[str, tuple[int, int]]:
    return {one.name: (one.width, one.height) for one in choose(shown(width, height), default_ladder())}


def test_the_default_ladder_is_the_documented_one() -> None:
    rungs = [(rung.name, rung.height, rung.video_kbps, rung.audio_kbps, rung.time_factor) for rung in default_ladder().rungs]
    assert rungs == [
        ("2160p", 2160, 15000, 192, 3.5),
        ("1440p", 1440, 8000, 192, 2.5),
        ("1080p", 1080, 5000, 128, 2.0),
        ("720p", 720, 2500, 128, 1.5),
        ("480p", 480, 1000, 96, 1.25),
        ("360p", 360, 600, 96, 1.0),
    ]
    assert [rung.name for rung in default_ladder().rungs if not rung.required] == ["2160p", "1440p"]


def test_only_rungs_at_or_below_the_source_are_made() -> None:
    assert sizes(1280, 720) == {"720p": (1280, 720), "480p": (852, 480), "360p": (640, 360)}


def test_for_portrait_the_height_of_a_rung_is_the_short_side() -> None:
    assert sizes(720, 1280) == {"720p": (720, 1280), "480p": (480, 852), "360p": (360, 640)}


def test_a_film_wider_than_a_screen_fills_the_width() -> None:
    assert sizes(1920, 800) == {"1080p": (1920, 800), "720p": (1280, 532), "480p": (854, 356), "360p": (640, 266)}


def test_a_picture_cut_a_little_keeps_its_rung() -> None:
    assert sizes(1920, 1072)["1080p"] == (1920, 1072)


@pytest.mark.parametrize(
    ("width", "height"), [(854, 480), (480, 854), (856, 482), (852, 480), (852, 478), (1922, 1082), (1918, 1078)]
)
def test_a_source_that_fits_a_rung_within_two_pixels_is_left_alone(width: int, height: int) -> None:
    """480 lines of 16:9 are 853.3 wide, which nobody makes: a picture of 854 must not be made smaller for that."""
    name = f"{round(min(width, height) / 120) * 120}p"
    assert sizes(width, height)[name] == (width, height)


def test_a_source_below_the_lowest_rung_gives_one_in_its_own_size() -> None:
    assert sizes(321, 181) == {"180p": (320, 180)}
    assert sizes(1, 1) == {"2p": (2, 2)}


def test_a_source_of_sound_alone_gives_none() -> None:
    assert choose(Facts(container="mp3", size=1, seconds=1.0), default_ladder()) == ()


@given(st.integers(2, 8000), st.integers(2, 8000))
def test_nothing_is_ever_larger_than_the_source_or_odd(width: int, height: int) -> None:
    chosen = choose(shown(width, height), default_ladder())
    assert chosen
    for one in chosen:
        assert 2 <= one.width <= max(width, 2)
        assert 2 <= one.height <= max(height, 2)
        assert one.width % 2 == one.height % 2 == 0
    assert len({one.name for one in chosen}) == len(chosen)


@pytest.mark.parametrize(
    ("name", "said"), [("nope.toml", "does not exist"), ("folder", "Is a directory"), ("latin.toml", "no text")]
)
def test_a_file_that_cannot_be_read_says_why_in_words(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")
    with pytest.raises(MediaError, match=said) as caught:
        load_ladder(tmp_path / name)
    assert (caught.value.code, name in caught.value.message) == ("LADDER_INVALID", True)
    assert str(tmp_path) not in caught.value.message


def test_a_users_file_is_sorted_from_high_to_low(tmp_path: Path) -> None:
    path = tmp_path / "ladder.toml"
    path.write_text(RUNG.format(name="low", height=200) + RUNG.format(name="high", height=700))
    assert [rung.name for rung in load_ladder(path).rungs] == ["high", "low"]


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("", "rungs"),
        ("rungs = []", "no rungs"),
        ("[[rungs]\n", "line 1"),
        (RUNG.format(name="a", height='"tall"'), r"rungs\[0\]\.height"),
        (RUNG.format(name="a", height=1), "height is 1"),
        (RUNG.format(name="../x", height=90), "folder"),
        (RUNG.format(name="audio", height=90), "folder"),
        (RUNG.format(name="a", height=90) + 'preset = "warp"', "warp"),
        (RUNG.format(name="a", height=90) + "heigth = 3", "heigth"),
        (RUNG.format(name="a", height=90) + RUNG.format(name="A", height=80), "two rungs"),
        (RUNG.format(name="a", height=90) + "required = false", "required"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_why(text: str, flaw: str) -> None:
    with pytest.raises(MediaError, match=flaw) as caught:
        parse_ladder(text, "mine.toml")
    assert caught.value.code == "LADDER_INVALID"
    assert "mine.toml" in caught.value.message
