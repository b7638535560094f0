"""What is lost or damaged after it was made is found out before anybody is told that a film is ready, and made again once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast import Fatal
from holdfast_media import CellState, VideoState
from holdfast_media.tasks import encoding, finalizing
from holdfast_media.tasks.work import VersionPlan
from tests.media.tasks.films import film, frames
from tests.media.tasks.making import made_on
from tests.media.tasks.studio import Encoder
from tests.media.worlds import url_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.library import Video
    from tests.media.tasks.studio import Studio
    from tests.support.postgres import PostgresServers


def rot(path: Path) -> None:
    """Flip a bit in the middle of a file: as long as before, and with the checksum beside it that it had."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


HARMS: dict[str, Callable[[Path], None]] = {"missing": lambda path: path.unlink(), "damaged": rot}


def harming(studio: Studio, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None], times: int = 1) -> list[str]:
    """Harm the first chunk that is made, right after its job was done; so often, when it is made again. Returns its keys."""
    real = encoding.encode
    harmed: list[str] = []

    def encode(context: Any, work: Any, before: Any = None) -> Any:
        made = real(context, work, before)
        if len(harmed) < times and (not harmed or work.key == harmed[0]):
            harmed.append(work.key)
            harm(studio.folder / "media" / work.key)
        return made

    monkeypatch.setattr(encoding, "encode", encode)
    return harmed


async def made(studio: Studio) -> Video:
    video = await studio.media.library.add(studio.film)
    async with studio.worker():
        return await studio.ended(video)


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
@pytest.mark.parametrize(
    ("kind", "together"),
    [pytest.param("sqlite", False, id="one by one"), pytest.param("postgres", True, id="together, on PostgreSQL")],
)
async def test_a_chunk_that_is_not_what_was_encoded_is_encoded_again(
    tmp_path: Path,
    films: Path,
    postgres_servers: PostgresServers,
    monkeypatch: pytest.MonkeyPatch,
    *,
    harm: Callable[[Path], None],
    kind: str,
    together: bool,
) -> None:
    studio = made_on(url_for(kind, tmp_path, postgres_servers), tmp_path, films, together=together)
    encoder = Encoder(monkeypatch)
    harming(studio, monkeypatch, harm)
    video = await made(studio)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert len(encoder.asked) == 7  # six, and the one that was lost
    assert video.newest is not None
    assert video.newest.result is not None
    assert {name: video.newest.result[name] for name in ("chunks", "encodes", "redone", "reused")} == {
        "chunks": 3,
        "encodes": 6,
        "redone": 1,
        "reused": 0,
    }
    grid = await studio.media.grid(video.newest)
    assert (grid.count(CellState.DONE), grid.count(CellState.REDONE), grid.redone) == (5, 1, 1)
    for quality in video.newest.qualities:
        assert quality.result is not None
        assert len(frames(studio.folder / "media" / quality.result["folder"] / "index.m3u8")) == 60
    await studio.close()


async def test_a_chunk_that_is_lost_again_fails_the_film_and_says_so(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = Encoder(monkeypatch)
    harmed = harming(studio, monkeypatch, HARMS["missing"], times=9)
    studio.films.joinpath("required.toml").write_text((studio.films / "ladder.toml").read_text().replace("false", "true"))
    video = await studio.media.library.add(studio.film, ladder=str(studio.films / "required.toml"))
    async with studio.worker():
        video = await studio.ended(video)
    assert video.state is VideoState.FAILED
    assert video.newest is not None
    assert video.newest.code == "CHUNK_LOST"
    assert "chunk 1 of 90p" in str(video.newest.message)
    assert len(harmed) == 2  # once, and once more
    assert encoder.asked.count(("90p", 0)) == 2


async def test_a_chunk_that_is_lost_twice_takes_no_other_quality_with_it(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    harming(studio, monkeypatch, rot, times=9)
    video = await made(studio)
    assert video.state is VideoState.READY
    assert video.newest is not None
    assert {one.name: (one.state, one.code) for one in video.newest.qualities} == {
        "180p": ("ready", None),
        "90p": ("failed", "CHUNK_LOST"),
    }


async def test_sound_that_is_damaged_before_it_is_packaged_is_encoded_again(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = encoding._encode_sound
    encoded: list[str] = []

    def encode(context: Any, work: Any, target: Path) -> Any:
        made = real(context, work, target)
        encoded.append(work.key)
        if len(encoded) == 1:
            rot(studio.folder / "media" / work.key)
        return made

    monkeypatch.setattr(encoding, "_encode_sound", encode)
    video = await made(studio)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert len(encoded) == 2


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
async def test_a_segment_that_is_not_what_was_packaged_is_never_published(
    studio: Studio, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    real = finalizing.finalize
    harmed: list[Path] = []

    def finalize(context: Any, version_id: str, *more: Any) -> Any:
        if not harmed:
            version = context.version(version_id)
            plan = msgspec.convert(version.plan, VersionPlan)
            harmed.append(next((studio.folder / "media" / plan.making_of("180p").folder).glob("*.m4s")))
            harm(harmed[0])
        return real(context, version_id, *more)

    monkeypatch.setattr(finalizing, "finalize", finalize)
    video = await made(studio)
    assert video.state is VideoState.FAILED
    assert video.newest is not None
    assert (video.newest.code, harmed[0].name in str(video.newest.message)) == ("OUTPUT_MISMATCH", True)
    await studio.media.library.retry(video.id)
    async with studio.worker():
        video = await studio.ended(video)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert len(frames(studio.master(video))) == 60


@pytest.mark.parametrize("harm", [shutil.rmtree, lambda folder: rot(max(folder.glob("*.m4s")))], ids=HARMS)
async def test_sound_that_is_lost_after_it_was_packaged_is_missed_and_a_retry_makes_it_alone(
    studio: Studio, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    encoder = Encoder(monkeypatch)
    real = finalizing.finalize
    harmed: list[Path] = []

    def finalize(context: Any, version_id: str, *more: Any) -> Any:
        if not harmed:
            plan = msgspec.convert(context.version(version_id).plan, VersionPlan)
            harmed.append(studio.folder / "media" / str(plan.audio_folder))
            harm(harmed[0])
        return real(context, version_id, *more)

    monkeypatch.setattr(finalizing, "finalize", finalize)
    video = await made(studio)
    assert video.newest is not None
    assert (video.state, video.newest.code) == (VideoState.FAILED, "OUTPUT_MISMATCH")
    assert "the sound: it was packaged" in str(video.newest.message)
    assert len(encoder.asked) == 6

    await studio.media.library.retry(video.id)
    async with studio.worker():
        video = await studio.ended(video)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert len(encoder.asked) == 6, "what was whole was made again"
    assert video.newest is not None
    assert video.newest.jobs.encode == {}
    assert "TYPE=AUDIO" in studio.master(video).read_text()


async def test_sound_that_is_whole_counts_however_its_job_has_ended(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    real = encoding.audio

    def audio(context: Any, work: Any) -> Any:
        real(context, work)
        raise Fatal("its end could not be written")

    monkeypatch.setattr(encoding, "audio", audio)
    video = await studio.media.library.add(film(studio.folder / "sound.m4a", seconds=2, picture=False))
    async with studio.worker():
        video = await studio.ended(video)
    assert (video.state, video.error) == (VideoState.READY, None)
