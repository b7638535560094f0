"""In which order one worker takes the jobs of several films: what plays early comes first."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from holdfast_media import VersionState, VideoState
from holdfast_media.errors import ENCODE_KILLED, MediaError
from holdfast_media.tasks import packaging
from holdfast_media.tasks.graph import RETRY_SHARE
from holdfast_media.transcode import package_rendition
from tests.media.tasks.films import film, frames
from tests.media.tasks.making import made_on
from tests.media.tasks.studio import Encoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from datetime import datetime
    from pathlib import Path

    import pytest

    from holdfast_media.library import Video
    from tests.media.tasks.studio import Studio


@pytest_asyncio.fixture
async def together(tmp_path: Path, films: Path) -> AsyncIterator[Studio]:
    made = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, together=True)
    yield made
    await made.close()


async def test_a_film_is_published_before_the_next_one_is_encoded(studio: Studio) -> None:
    source = film(studio.folder / "short.mp4", seconds=4)
    videos = [await studio.media.library.add(source, title=title) for title in ("first", "second")]
    async with studio.worker(concurrency=1):
        first, second = [await studio.ended(video) for video in videos]
    begun = await _begun(studio, first)
    after = await _begun(studio, second)
    # of one film: the sound, the smallest quality until it plays, then the next one
    assert begun["audio"] < begun["90p 0"] < begun["90p 1"] < begun["package 90p"] < begun["180p 0"] < begun["180p 1"]
    # of two films: the second one's chunks wait until the first one is published
    assert begun["finalize"] < min(at for name, at in after.items() if name[0].isdecimal())


async def test_made_together_too_a_film_is_published_before_the_next_one_is_encoded(together: Studio, silent: Path) -> None:
    """The jobs that only find what was made along with another must not wait behind the chunks of all films there are."""
    library = together.media.library
    videos = [await library.add(silent, title=title) for title in ("first", "second")]
    async with together.app.worker(concurrency=1, queues=[together.media.settings.queue], poll=0.2):
        await together.until(lambda: _all_planned(together))  # as other workers do while this one encodes
    async with together.worker(concurrency=1):
        first, second = [await together.ended(video) for video in videos]
    begun, after = await _begun(together, first), await _begun(together, second)
    assert begun["finalize"] < after["180p 1"]


async def _all_planned(studio: Studio) -> bool:
    return all(one.plan is not None for one in await studio.media.library.active())


async def test_made_together_too_a_film_plays_as_soon_as_one_quality_is_packaged(
    together: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def packaged(plan: Any, rendition: Any, *args: Any, **options: Any) -> Any:
        if rendition.name == "180p":
            go_on.wait(60)
        return package_rendition(plan, rendition, *args, **options)

    monkeypatch.setattr(packaging, "package_rendition", packaged)
    video = await together.media.library.add(silent)
    async with together.worker(concurrency=2):
        await together.until(lambda: together.master(video).exists())
        during = (await together.media.library.get(video.id)).newest
        assert during is not None
        assert during.state is VersionState.PROCESSING
        text = together.master(video).read_text()
        assert ("90p-" in text, "180p-" in text) == (True, False)
        assert len(frames(together.master(video))) == 40
        go_on.set()
        video = await together.ended(video)
        await together.idle()
    assert "180p-" in together.master(video).read_text()


async def test_a_chunk_that_was_lost_comes_before_those_that_nobody_has_begun(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the workers of `holdfast media` claim: what was begun must not wait behind the rest of the film."""
    deaths = [0]

    def die(name: str, chunk: int, stop: Callable[[], str | None]) -> None:
        del stop
        if (name, chunk) == ("90p", 0) and deaths:
            deaths.clear()
            raise MediaError(ENCODE_KILLED, "ffmpeg was killed.")

    encoder = Encoder(monkeypatch, die)
    source = film(studio.folder / "longer.mp4", seconds=12, sound=False)
    video = await studio.media.library.add(source)
    async with studio.app.worker(concurrency=1, poll=0.2, retry_share=RETRY_SHARE):
        video = await studio.ended(video)
    assert video.state is VideoState.READY
    # the first again as soon as its rest is over, which is shorter than one of these takes
    assert encoder.asked[:3].count(("90p", 0)) == 2


async def _begun(studio: Studio, video: Video) -> dict[str, datetime]:
    """Return when each job of the newest version was claimed."""
    assert video.newest is not None
    jobs = video.newest.jobs
    named: Iterable[tuple[str, str | None]] = (
        ("audio", jobs.audio),
        ("finalize", jobs.finalize),
        *((f"package {name}", one) for name, one in jobs.package.items()),
        *((f"{name} {number}", one) for name, ids in jobs.encode.items() for number, one in enumerate(ids)),
    )
    reports = {name: await studio.app.job(one).report() for name, one in named if one is not None}
    return {name: report.attempts[0].started_at for name, report in reports.items()}
