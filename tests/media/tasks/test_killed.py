"""Workers that are killed cost the chunk they were at, and nothing else: not a frame, and no chunk that was done."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast_media import CellState, VideoState
from tests.media.tasks.films import film, frames, ladder
from tests.media.tasks.making import made_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast_media.library import Version
    from tests.media.tasks.studio import Studio

ROOT = Path(__file__).parents[3]


class Workers:
    """Processes that can be killed."""

    def __init__(self, studio: Studio, lease: float) -> None:
        self._studio = studio
        self._lease = lease
        self._running: list[subprocess.Popen[bytes]] = []
        self.killed: set[int] = set()

    def start(self) -> None:
        studio = self._studio
        arguments = [studio.url, str(studio.folder), str(studio.films), str(self._lease)]
        self._running.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.media.tasks.worker_process", *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def kill(self, pid: int) -> bool:
        victim = next((one for one in self._running if one.pid == pid), None)
        if victim is None:
            return False
        self._running.remove(victim)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.killed.add(pid)
        return True

    def stop(self) -> None:
        for one in self._running:
            one.terminate()
        for one in self._running:
            one.wait(60)


def long_film(folder: Path, seconds: int) -> Path:
    """Make a film whose chunks take long enough to be killed in the midst of one."""
    folder.mkdir()
    film(folder / "film.mp4", seconds=seconds, size="640x360")
    ladder(folder / "ladder.toml", ("360p", 360, True), ("180p", 180, True))
    text = (folder / "ladder.toml").read_text()
    (folder / "ladder.toml").write_text(text.replace('"ultrafast"', '"slower"'))
    return folder


@pytest.fixture(params=[10])
def workers(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workers]:
    films = long_film(tmp_path / "films", request.param)
    studio = made_on(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, films, attempts=20)
    studio.patience = 900.0
    made = Workers(studio, lease=5.0)
    yield made
    made.stop()


async def lost_by(studio: Studio, version: Version) -> list[int]:
    """Return the processes that have lost an attempt at a chunk, once for each."""
    found: list[int] = []
    for ids in version.jobs.encode.values():
        for job_id in ids:
            report = await studio.app.job(job_id).report()
            found += [int(str(one.worker).rpartition(":")[2]) for one in report.attempts if one.error is not None]
    return found


async def killed(workers: Workers, kills: int, seed: int) -> None:
    """Have a film transcoded by two workers, and kill one after another, each some time after it has begun an encode."""
    rng = random.Random(seed)
    studio = workers._studio
    video = await studio.media.library.add(studio.film)
    notes = studio.folder / "encodes.txt"
    workers.start()
    workers.start()
    await studio.until(notes.exists)
    done = seen = 0
    while done < kills and not await studio._ended(video.id):
        lines = notes.read_text().splitlines()
        if len(lines) == seen:
            await asyncio.sleep(0.02)
            continue
        seen = len(lines)
        await asyncio.sleep(rng.uniform(0.0, 1.0))
        if workers.kill(int(lines[-1].split()[0])):
            done += 1
            workers.start()
    video = await studio.ended(video)
    assert done == kills, "the film was done before all kills: make it longer"
    assert (video.state, video.error) == (VideoState.READY, None)
    assert video.newest is not None
    assert video.newest.result is not None
    lost = await lost_by(studio, video.newest)
    by_kills = [pid for pid in lost if pid in workers.killed]
    begun = Counter(line.partition(" ")[2] for line in notes.read_text().splitlines())
    chunks = sum(len(ids) for ids in video.newest.jobs.encode.values())
    assert len(begun) == chunks
    assert len(by_kills) <= kills  # a killed worker loses the chunk that it was at, and no other
    # whoever was alive and lost a lease was held up by a busy machine for longer than that lasts: which costs a chunk, too
    assert sum(begun.values()) - chunks <= len(lost)
    assert video.newest.result["redone"] <= len(lost)
    grid = await studio.media.grid(video.newest)
    assert grid.count(CellState.DONE, CellState.REDONE) == chunks
    assert len(frames(studio.master(video))) == len(frames(studio.film)) > 0
    await studio.close()


async def test_a_killed_worker_costs_one_chunk_and_no_frame(workers: Workers) -> None:
    await killed(workers, kills=1, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [60], indirect=True)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_ten_killed_workers_cost_ten_chunks_and_no_frame(workers: Workers, seed: int) -> None:
    await killed(workers, kills=10, seed=seed)
