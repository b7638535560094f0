"""Workers that are killed cost the chunk they were at, and nothing else: not a frame, and no chunk that was done."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import pytest

from holdfast_media import CellState, VideoState
from tests.media.tasks.films import frames
from tests.media.tasks.killing import Workers, encodes_begun, encodes_of, long_film, lost_by, shown, studio_of

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast_media.library import Version, Video
    from tests.media.tasks.studio import Studio


# --- at random moments ----------------------------------------------------------------------------------------------------

KILLS = 10
COST = 0.6
"""Seconds that a killed worker costs about: half a chunk, and one of two is away for as long as it takes to start another."""


async def kill_at_random(workers: Workers, video: Video, seed: int, *, alone: float) -> None:
    """Kill ten workers at moments drawn over the whole making of a film, whoever is at what.

    Each is drawn over what is left of it then, as moments that are drawn all at once would lie: how long it takes in the end is
    not known before, for each kill makes it longer. `alone` is about how long it takes when nobody is killed. The clock stands
    still while a worker starts: on a busy machine none would come to work otherwise.
    """
    rng = random.Random(seed)
    for left in range(KILLS, 0, -1):
        await workers.studio.until(lambda: workers.all_up)
        rest = (alone + left * COST) * (1 - await share_done(workers.studio, video))
        await asyncio.sleep(rng.uniform(0.0, 2 * rest / (left + 1)))
        workers.kill_any(rng)
        workers.start()


async def share_done(studio: Studio, video: Video) -> float:
    """Return how much of a film is done, by its jobs; never quite all, for it is tidied at the end."""
    newest = (await studio.media.library.get(video.id)).newest
    if newest is None or newest.plan is None:
        return 0.0
    views = await studio.media.library.looking.jobs(newest.jobs.waiting_first)
    return sum(view is not None and view.finished_at is not None for view in views) / (len(views) + 1)


async def ten_killed(workers: Workers, seed: int, *, alone: float) -> Version:
    """Have a film made by two workers, of which ten are killed at random moments, and return its version when it is ready."""
    studio = workers.studio
    video = await studio.media.library.add(studio.film)
    workers.start()
    workers.start()
    await kill_at_random(workers, video, seed, alone=alone)
    version = await accounted(workers, video)
    await studio.idle()  # tidied, too
    assert not list(studio.home(video).rglob("chunks/*"))
    return version


async def accounted(workers: Workers, video: Video, *, least: int = KILLS) -> Version:
    """Wait until a film is ready, and hold its account against what each killed worker was at: so many at least."""
    studio = workers.studio
    video = await studio.ended(video)
    assert (video.state, video.error) == (VideoState.READY, None)
    assert least <= len(workers.killed) <= KILLS
    version = video.newest
    assert version is not None
    assert version.result is not None
    encodes, jobs = encodes_of(version), version.jobs
    lost = {
        "encode": await lost_by(studio, encodes),
        "package": await lost_by(studio, list(jobs.package.values())),
        "others": await lost_by(studio, [one for one in (jobs.prepare, jobs.audio, jobs.finalize) if one is not None]),
    }
    every = [pid for pids in lost.values() for pid in pids]
    assert set(every) <= workers.killed  # nobody else has lost anything
    assert len(every) == len(set(every))  # a killed worker, which has one slot, loses what it was at, and nothing else
    begun = encodes_begun(workers, version)
    again = begun.total() - len(begun)
    assert lost["encode"], "no kill hit an encode: this showed nothing"
    assert again <= len(lost["encode"]) <= KILLS
    assert version.result["redone"] <= len(lost["encode"])
    grid = await studio.media.grid(version)
    assert grid.count(CellState.DONE, CellState.REDONE) == len(encodes)
    assert grid.redone == version.result["redone"]
    wanted = len(frames(studio.film))
    assert {name: len(one) for name, one in shown(studio, version).items()} == {one.name: wanted for one in version.qualities}
    hit = ", ".join(f"{len(pids)} {what}" for what, pids in lost.items())
    print(f"{len(workers.killed)} kills ({hit}), {len(begun)} encodes, {again} begun again, {wanted} frames")  # noqa: T201
    return version


async def test_ten_workers_killed_at_random_cost_ten_chunks_at_most_and_no_frame(tmp_path: Path) -> None:
    """As it is without settings: an encode makes a chunk in all qualities."""
    studio = studio_of(long_film(tmp_path / "films", 20, preset="medium"), tmp_path, together=True)
    workers = Workers(studio, lease=3.0, together=True)
    try:
        version = await ten_killed(workers, seed=7, alone=5.0)
    finally:
        workers.stop()
    assert version.jobs.together
    await studio.close()


# --- the same, longer, and frame by frame ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_film(tmp_path_factory.mktemp("longer") / "films", 60)


@pytest.fixture(scope="module")
def undisturbed(longer: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], float]:
    """The frames of each quality when nobody is killed, and how long that takes."""

    async def made() -> tuple[dict[str, list[str]], float]:
        studio = studio_of(longer, tmp_path_factory.mktemp("undisturbed"), together=False)
        began = time.monotonic()
        async with studio.worker():
            video = await studio.ended(await studio.media.library.add(studio.film))
        took = time.monotonic() - began
        await studio.close()
        assert video.newest is not None
        return shown(studio, video.newest), took

    return asyncio.run(made())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("together", [pytest.param(True, id="together"), pytest.param(False, id="apart")])
def test_whoever_is_killed_the_frames_are_those_of_a_run_that_nobody_disturbed(
    longer: Path, undisturbed: tuple[dict[str, list[str]], float], tmp_path: Path, seed: int, *, together: bool
) -> None:
    studio = studio_of(longer, tmp_path, together=together)
    workers = Workers(studio, lease=10.0, together=together)

    async def ten() -> Version:
        version = await ten_killed(workers, seed, alone=undisturbed[1])
        await studio.close()
        return version

    try:
        version = asyncio.run(ten())
    finally:
        workers.stop()
    assert shown(studio, version) == undisturbed[0]


# --- at chosen moments ----------------------------------------------------------------------------------------------------


async def kill_in_the_midst(workers: Workers, video: Video, seed: int) -> None:
    """Kill whoever begins a package or the check first, right then, and besides some time after they have begun an encode."""
    rng = random.Random(seed)
    seen = 0
    doomed = list(workers.doomed)
    while len(workers.killed) < KILLS and not await workers.studio._ended(video.id):
        fresh = workers.begun()[seen:]
        seen += len(fresh)
        await asyncio.sleep(0.02)
        for pid, what in fresh:
            if what in doomed:
                doomed.remove(what)
            elif what.startswith("encode ") and len(workers.killed) + len(doomed) < KILLS:
                await asyncio.sleep(rng.uniform(0.0, 1.0))
            else:
                continue
            if workers.kill(pid):
                workers.start()


@pytest.mark.slow
@pytest.mark.parametrize("together", [pytest.param(True, id="together"), pytest.param(False, id="apart")])
def test_whoever_is_killed_in_the_midst_of_a_package_or_the_check_costs_no_encode(
    longer: Path, undisturbed: tuple[dict[str, list[str]], float], tmp_path: Path, *, together: bool
) -> None:
    """Whoever packages a quality first or checks the version first is among the ten, killed in the midst of it."""
    studio = studio_of(longer, tmp_path, together=together)
    workers = Workers(studio, lease=10.0, together=together, deadly=True)

    async def ten() -> tuple[Version, list[int]]:
        video = await studio.media.library.add(studio.film)
        workers.start()
        workers.start()
        await kill_in_the_midst(workers, video, seed=1)
        version = await accounted(workers, video, least=3)  # the film may be over before there are ten
        lost = await lost_by(studio, [*version.jobs.package.values(), str(version.jobs.finalize)])
        await studio.close()
        return version, lost

    try:
        version, lost = asyncio.run(ten())
    finally:
        workers.stop()
    assert len(lost) == 3  # two packages and the check, once each
    assert set(lost) <= workers.killed
    assert shown(studio, version) == undisturbed[0]
