"""Plans: every frame in one chunk, bounds at segments; and the recipes that name what comes of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_media.errors import MediaError
from holdfast_media.ladder import Rendition
from holdfast_media.source import AudioFacts, Facts, VideoFacts
from holdfast_media.transcode import Plan, audio_recipe, package_recipe, pictures_recipe, plan, recipe, usual_chunk

RENDITION = Rendition(name="90p", width=160, height=90, video_kbps=100, audio_kbps=64)
SOUND = AudioFacts(index=1, codec="aac", sample_rate=48000, channels=2, start=0.0, seconds=10.0)


def facts(
    counts: list[int], *, base: tuple[int, int] = (1, 90_000), start: int = 0, gap: float = 1.0, steady: bool = True
) -> Facts:
    ticks = Fraction(len(counts)) / Fraction(*base)
    video = VideoFacts(
        index=0,
        codec="h264",
        coded_width=160,
        coded_height=90,
        width=160,
        height=90,
        time_base=base,
        start=start,
        end=start + int(ticks),
        frames=sum(counts),
        frame_rate=(25, 1),
        counts=tuple((count, 1) for count in counts),
        key_frame_gap=gap,
        steady=steady,
    )
    return Facts(container="mov", size=1, seconds=video.seconds, video=video, audio=(SOUND,))


def bounds(planned: Plan) -> list[int]:
    return [chunk.start for chunk in planned.chunks]


@given(
    counts=st.lists(st.integers(0, 3), min_size=1, max_size=200).map(lambda counts: [1, *counts, 1]),
    segment=st.integers(1, 7),
    chunk=st.integers(1, 30),
    base=st.sampled_from([(1, 90_000), (1, 1000), (1001, 30_000), (1, 12_800)]),
    start=st.integers(-1000, 100_000),
)
def test_every_frame_is_in_exactly_one_chunk(
    counts: list[int], segment: int, chunk: int, base: tuple[int, int], start: int
) -> None:
    planned = plan(facts(counts, base=base, start=start), [RENDITION], chunk_seconds=segment * chunk, segment_seconds=segment)
    assert sum(one.frames for one in planned.chunks) == sum(counts)
    assert all(one.frames > 0 for one in planned.chunks)
    assert all(one.start % segment == 0 for one in planned.chunks)
    assert planned.chunks[0].first_tick == start
    assert planned.chunks[-1].end_tick is None
    for earlier, later in pairwise(planned.chunks):
        assert earlier.end_tick == later.first_tick
        assert earlier.start + earlier.seconds == later.start
        first = later.first_tick
        assert first is not None
        # the first tick at or after the bound, and the one before it is before the bound
        assert (first - start) * Fraction(*base) >= later.start > (first - 1 - start) * Fraction(*base)


def test_a_short_tail_is_joined_to_the_chunk_before_it() -> None:
    assert bounds(plan(facts([25] * 27), [RENDITION], chunk_seconds=12)) == [0, 12]
    assert bounds(plan(facts([25] * 31), [RENDITION], chunk_seconds=12)) == [0, 12, 24]


def test_chunks_are_as_long_as_was_said_however_far_apart_key_frames_are() -> None:
    assert bounds(plan(facts([25] * 60, gap=10.0), [RENDITION], chunk_seconds=12)) == [0, 12, 24, 36, 48]
    assert bounds(plan(facts([25] * 60, gap=60.0), [RENDITION], chunk_seconds=12)) == [0, 12, 24, 36, 48]


@pytest.mark.parametrize(
    ("seconds", "gap", "chunk"),
    [(60, 1.0, 6), (60, 10.0, 12), (120, 10.0, 12), (60, 60.0, 12), (7200, 7200.0, 1800), (8, 8.0, 6)],
)
def test_where_nobody_says_it_a_chunk_is_no_shorter_than_a_gap_nor_a_film_hardly_cut(
    seconds: float, gap: float, chunk: int
) -> None:
    """60 s that x264 has made as it likes have a key frame every 10 s: a killed worker must not cost half of them."""
    assert usual_chunk(seconds, 6, key_frame_gap=gap) == chunk


@pytest.mark.parametrize(
    ("seconds", "segment", "chunk"),
    [(0.1, 6, 6), (60, 6, 6), (100, 6, 12), (300, 6, 30), (7200, 6, 60), (60, 2, 6), (3, 4, 8), (7200, 7, 56), (300, 90, 90)],
)
def test_where_nobody_says_it_a_chunk_is_about_a_tenth_of_the_film(seconds: float, segment: int, chunk: int) -> None:
    assert usual_chunk(seconds, segment) == chunk
    assert chunk % segment == 0


def test_a_source_without_good_times_is_one_piece() -> None:
    (chunk,) = plan(facts([25] * 120, steady=False), [RENDITION], chunk_seconds=6).chunks
    assert (chunk.frames, chunk.first_tick, chunk.end_tick) == (3000, None, None)


def test_sound_alone_has_no_chunks() -> None:
    planned = plan(Facts(container="mp3", size=1, seconds=10.0, audio=(SOUND,)), [])
    assert (planned.chunks, planned.audio, planned.video) == ((), SOUND, None)


@pytest.mark.parametrize(("chunk", "segment"), [(0, 6), (5, 6), (6, 0), (4000, 6)])
def test_lengths_that_make_no_sense_are_refused(chunk: int, segment: int) -> None:
    with pytest.raises(MediaError) as caught:
        plan(facts([25]), [RENDITION], chunk_seconds=chunk, segment_seconds=segment)
    assert caught.value.code == "PLAN_INVALID"


def test_a_plan_travels_as_json_and_stays_small() -> None:
    planned = plan(facts([25] * 7200), [RENDITION], chunk_seconds=60)
    text = msgspec.json.encode(planned)
    assert msgspec.json.decode(text, type=Plan) == planned
    assert len(text) < 20_000


def test_a_recipe_names_all_that_determines_the_output_and_nothing_else() -> None:
    planned = plan(facts([25] * 120), [RENDITION], chunk_seconds=12)
    first, second = planned.chunks[:2]
    same = msgspec.structs.replace(RENDITION, name="other", required=False, time_factor=9.0, audio_kbps=1)
    assert recipe(planned, RENDITION, first, "id") == recipe(planned, same, first, "id")
    different = [
        recipe(planned, RENDITION, first, "id"),
        recipe(planned, RENDITION, second, "id"),
        recipe(planned, RENDITION, first, "other"),
        *(
            recipe(planned, msgspec.structs.replace(RENDITION, **{field: value}), first, "id")
            for field, value in (("width", 2), ("height", 2), ("video_kbps", 2), ("crf", 2), ("preset", "slow"))
        ),
        recipe(plan(facts([25] * 120), [RENDITION], chunk_seconds=12, segment_seconds=4), RENDITION, first, "id"),
        audio_recipe(planned, "id"),
        audio_recipe(msgspec.structs.replace(planned, audio_kbps=1), "id"),
        package_recipe(planned, RENDITION, "id"),
        pictures_recipe(planned, "id"),
    ]
    assert len(set(different)) == len(different)


def test_a_recipe_is_the_same_on_every_machine_and_in_every_version() -> None:
    """A recipe that changes makes everything be encoded again: should this fail on purpose, raise recipe.VERSION."""
    planned = plan(facts([25] * 24), [RENDITION], chunk_seconds=12)
    travelled = msgspec.json.decode(msgspec.json.encode(planned), type=Plan)
    assert recipe(travelled, travelled.renditions[0], travelled.chunks[0], "id") == recipe(
        planned, RENDITION, planned.chunks[0], "id"
    )
    assert recipe(planned, RENDITION, planned.chunks[0], "id") == RECIPE


RECIPE = "1fbd3a09ebc3014d5f39d81e21df6bebdc2560df5da64d2540b53aeda096c913"
