"""Workers in processes of their own, to be killed, and what they have lost and begun."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.media.tasks.films import film, frames, ladder
from tests.media.tasks.making import made_on

if TYPE_CHECKING:
    import random

    from holdfast_media.library import Version
    from tests.media.tasks.studio import Studio

ROOT = Path(__file__).parents[3]


class Workers:
    """Processes that can be killed."""

    def __init__(self, studio: Studio, *, lease: float, together: bool, deadly: bool = False) -> None:
        self.studio = studio
        ways = ("deadly" if deadly else "harmless", "together" if together else "apart")
        self._arguments = [studio.url, studio.folder, studio.films, lease, *ways]
        self._running: list[subprocess.Popen[bytes]] = []
        self.killed: set[int] = set()
        self.doomed = ("package 360p", "package 180p", "finalize") if deadly else ()
        """Whoever begins one of these first waits to be killed."""

    def start(self) -> None:
        self._running.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.media.tasks.worker_process", *map(str, self._arguments)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def begun(self) -> list[tuple[int, str]]:
        """Return everything that was begun, and by which process."""
        path = self.studio.folder / "begun.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), what) for pid, _, what in (line.partition(" ") for line in lines)]

    def kill(self, pid: int) -> bool:
        victim = next((one for one in self._running if one.pid == pid), None)
        if victim is None:
            return False
        self._running.remove(victim)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.killed.add(pid)
        return True

    @property
    def all_up(self) -> bool:
        """Whether all of them have come so far that they work: to kill one before that would cost nothing."""
        return {one.pid for one in self._running} <= {pid for pid, what in self.begun() if what == "up"}

    def kill_any(self, rng: random.Random) -> None:
        self.kill(rng.choice(self._running).pid)

    def stop(self) -> None:
        for one in self._running:
            one.terminate()
        for one in self._running:
            one.wait(60)


def long_film(folder: Path, seconds: int, preset: str = "slower") -> Path:
    """Make a film whose chunks take long enough to be killed in the midst of one."""
    folder.mkdir()
    film(folder / "film.mp4", seconds=seconds, size="640x360")
    ladder(folder / "ladder.toml", ("360p", 360, True), ("180p", 180, True))
    text = (folder / "ladder.toml").read_text()
    (folder / "ladder.toml").write_text(text.replace('"ultrafast"', f'"{preset}"'))
    return folder


def studio_of(films: Path, folder: Path, *, together: bool) -> Studio:
    # With one thread a chunk is the same to the byte whoever makes it; else they are as many as others leave processors.
    studio = made_on(f"sqlite:///{folder / 'jobs.db'}", folder, films, attempts=20, together=together, threads=1)
    studio.patience = 900.0
    return studio


async def lost_by(studio: Studio, ids: list[str]) -> list[int]:
    """Return the processes that have lost an attempt at one of these jobs, once for each attempt."""
    found: list[int] = []
    for job_id in ids:
        report = await studio.app.job(job_id).report()
        found += [int(str(one.worker).rpartition(":")[2]) for one in report.attempts if one.error is not None]
    return found


def encodes_of(version: Version) -> list[str]:
    return [job_id for ids in version.jobs.encode.values() for job_id in ids]


def encodes_begun(workers: Workers, version: Version) -> Counter[str]:
    """Return how often each encode was begun: by its chunk where one encode makes all qualities, else by its quality too.

    One that was killed after it had published a quality makes the others alone when it is begun again.
    """
    begun = [what for _, what in workers.begun() if what.startswith("encode ")]
    counts = Counter(what.rpartition(" ")[2] if version.jobs.together else what for what in begun)
    rows = list(version.jobs.encode.values())
    assert len(counts) == (len(rows[0]) if version.jobs.together else sum(map(len, rows)))
    return counts


def shown(studio: Studio, version: Version) -> dict[str, list[str]]:
    """Return what a player would show in each quality: a checksum of each frame."""
    folders = {one.name: one.result["folder"] for one in version.qualities if one.result is not None}
    return {name: frames(studio.folder / "media" / folder / "index.m3u8") for name, folder in folders.items()}
