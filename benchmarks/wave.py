"""A wave of jobs over a manager with its own settings, drawn: what waits, and how many workers there are.

python -m benchmarks.wave [URL]      the store; a SQLite file that is thrown away unless one is named

A chart for each kind of store goes into docs/images; docs/guides/scale-workers.md shows them, and the counts that are printed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import Holdfast
from holdfast.charts import Line, lines
from holdfast.core.states import State
from holdfast.store.port import Action

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.port import Store

ROOT: Final = Path(__file__).parents[1]
CHARTS: Final = ROOT / "docs" / "images"
URL_VARIABLE: Final = "WAVE_URL"
JOBS: Final = 2_000
SECONDS: Final = 1.0
"""That each job takes."""
SLOTS: Final = 10
LEAST, MOST = 2, 8
LOOK: Final = 0.5
CALM: Final = 5.0
"""Seconds before the wave and after it, for the picture."""
HUNDRED: Final = 100

app = Holdfast(os.environ.get(URL_VARIABLE, "memory://"))


@app.task(name="wave.nap")
async def nap(seconds: float) -> None:
    """Take a slot for so long."""
    await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Wave:
    """What came of it."""

    looks: list[Look]
    decisions: list[tuple[int, str]]
    """How many workers there should be, and why, oldest first."""
    attempts: list[int]
    """Of each job."""

    def told(self) -> str:
        """Sum it up: nothing may be lost, interrupted or tried again because of scaling, and it must not swing."""
        numbers = [number for number, _ in self.decisions]
        steps = [after - before for before, after in pairwise(numbers) if after != before]
        turns = sum((one > 0) != (other > 0) for one, other in pairwise(steps))
        spent = sum(self.attempts) - len(self.attempts)
        return (
            f"{len(self.attempts):,} jobs, {spent} attempts beyond the first; {len(steps)} changes of the number, from "
            f"{numbers[0]} to {max(numbers)} and back to {numbers[-1]}, {turns} change(s) of direction"
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment."""

    at: float
    waiting: int
    running: int
    workers: int


def main() -> None:
    """Run the wave, print what was decided, and draw it."""
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/jobs.db"
        command = [sys.executable, "-m", "holdfast", "manager", "benchmarks.wave:app", "--name", "wave"]
        options = [
            "--default-count",
            str(LEAST),
            "--max-count",
            str(MOST),
            "--concurrency",
            str(SLOTS),
            "--log-level",
            "warning",
        ]
        manager = subprocess.Popen([*command, *options], cwd=ROOT, env={**os.environ, URL_VARIABLE: url})
        try:
            wave = asyncio.run(_wave(url))
        finally:
            manager.terminate()
            manager.wait()
    for _, reason in wave.decisions:
        print(reason)
    print(wave.told())
    store = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    chart = CHARTS / f"scaling-wave-{store.lower()}.svg"
    chart.write_text(_drawn(wave.looks, store), encoding="utf-8")
    print(f"wrote {chart.relative_to(ROOT)}")


async def _wave(url: str) -> Wave:
    """Wait for the workers, make the wave, and look until it is over and the workers are gone again."""
    with app.override(url):
        async with app:
            watch = Watch(app.client().store)
            await watch.until(lambda look: look.workers == LEAST)
            watch.began, watch.looks = time.monotonic(), []
            await watch.until(lambda look: look.at >= CALM)
            handles = await app.enqueue_many([nap.call(SECONDS) for _ in range(JOBS)])
            await watch.until(lambda look: not look.waiting + look.running and look.workers == LEAST)
            end = watch.looks[-1].at + CALM
            await watch.until(lambda look: look.at >= end)
            jobs = await watch.store.get([handle.id for handle in handles])
            lines = await watch.store.audits(limit=100, action=Action.SCALE)
            decisions = [(int(line.targets[0].split()[0]), line.detail) for line in reversed(lines)]
            return Wave(watch.looks, decisions, [job.attempt for job in jobs if job is not None])


@dataclass(slots=True)
class Watch:
    """Looks at a store again and again, and keeps what it saw."""

    store: Store
    began: float = field(default_factory=time.monotonic)
    looks: list[Look] = field(default_factory=list)

    async def until(self, holds: Callable[[Look], bool]) -> None:
        """Look until something holds."""
        while True:
            stats = await self.store.stats()
            workers = sum(view.offline_at is None and not view.manages for view in await self.store.workers())
            at = round(time.monotonic() - self.began, 1)
            self.looks.append(Look(at, stats.count(State.READY), stats.count(State.RUNNING), workers))
            if holds(self.looks[-1]):
                return
            await asyncio.sleep(LOOK)


def _drawn(looks: list[Look], store: str) -> str:
    return lines(
        f"A wave of {JOBS:,} jobs of {SECONDS:g} s over {LEAST} to {MOST} workers of {SLOTS} slots, on {store}",
        "A decision every second, a waiting target of 5 s, and 30 s of calm before a worker goes",
        [
            Line("workers", tuple((look.at, float(look.workers)) for look in looks)),
            Line("waiting jobs, in hundreds", tuple((look.at, look.waiting / HUNDRED) for look in looks)),
        ],
        x_label="seconds",
        logarithmic=False,
        write=lambda value: f"{value:g}",
    )


if __name__ == "__main__":
    main()
