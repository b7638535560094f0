"""The course of the demonstration: film, workers, a kill at two fifths, the take-over, every frame decoded, the account."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from holdfast import Holdfast
from holdfast_media.demo.account import Account
from holdfast_media.demo.crew import Crew
from holdfast_media.demo.place import (
    CHUNK,
    LADDER,
    LEASE,
    RATE,
    SECONDS,
    SEGMENT,
    SIZE,
    count_frames,
    fitting,
    make_film,
    try_out,
)
from holdfast_media.errors import MediaError
from holdfast_media.library import VersionState
from holdfast_media.library.grid import CellState
from holdfast_media.media import Media

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from holdfast_media.demo.place import Place
    from holdfast_media.library import Quality, Version
    from holdfast_media.library.grid import Cell, Grid

WORKERS: Final = ("ada", "bob")
KILL_AT: Final = 40.0
"""Percent of the work."""
LATEST: Final = 50.0
"""Percent of the work at which anybody who is at a chunk is killed."""
IN_THE_MIDST: Final = 0.4
"""Seconds that a worker must have been at a chunk for the loss to be worth something. Not percent: an encoder looks ahead, and
has half of so short a chunk before it tells of the first frame."""
ENCODED: Final = 98.0
"""Percent of a chunk that is only to be stored."""
LOOK: Final = 0.2
DONE_WITHIN: Final = 240.0


class Audience(Protocol):
    """Who watches."""

    def tell(self, seconds: float, text: str) -> None:
        """Hear of something that just happened."""
        ...

    def show(self, grid: Grid, killed: str | None) -> None:
        """See how things stand, and which worker is dead."""
        ...

    def hear(self, account: Account) -> None:
        """Hear the account."""
        ...


@dataclass(slots=True)
class Kill:
    """A worker that was killed, and what became of its chunk."""

    worker: str
    percent: float
    """Of the work, as it stood then."""
    job_id: str | None
    """Its chunk; `None`: it was between two."""
    at: float = field(default_factory=time.monotonic)
    missed: bool = False
    taken_over: float | None = None
    """Seconds until another worker had it."""
    by: str | None = None
    """Which one."""


class Course:
    """One demonstration."""

    def __init__(self, place: Place, audience: Audience) -> None:
        self._place = place
        self._audience = audience
        self._began = time.monotonic()
        self._address = ""
        self._seen: dict[str, float] = {}
        """Since when each chunk that runs was seen to."""
        self._kill: Kill | None = None
        self.staying = False
        """Whether all is told, and only the server goes on."""

    async def run(self, *, serve: bool, stay: asyncio.Event | None) -> Account:
        """Run it from beginning to end; with `stay`, the server goes on until that is set. No process outlives it."""
        self._place.output.mkdir(parents=True, exist_ok=True)
        app = Holdfast(self._place.url)
        media = Media(app, root=self._place.output, chunk_seconds=CHUNK, segment_seconds=SEGMENT, ladder=str(LADDER))
        with Crew(self._place) as crew:
            try:
                seconds = await self._fitting()
                await media.library.active()  # makes the tables, before three processes meet on them
                if serve:
                    crew.start_server()
                for name in WORKERS:
                    crew.start_worker(name)
                self._tell(f"making a film of {seconds} s, {SIZE}, {RATE} frames a second, while two workers start")
                frames = await asyncio.to_thread(make_film, self._place, seconds)
                video = await media.library.add(self._place.film, title="The demonstration")
                if serve:
                    await self._find_server(crew, video.id)
                self._tell(f"{' and '.join(WORKERS)} encode it in three qualities, {CHUNK:g} s at a time")
                version = await self._encoded(media, crew, video.id)
                crew.dismiss(WORKERS)
                account = await self._account(media, version, frames, seconds)
                self._audience.hear(account)
                if serve and stay is not None:
                    self._tell(f"play it at {self._address}; the server goes on until Ctrl-C")
                    self.staying = True
                    await stay.wait()
                return account
            finally:
                await media.close()
                await app.close()

    async def _fitting(self) -> int:
        """Return how long the film is to be: as was said, or as this machine is fast."""
        if self._place.seconds is not None:
            return self._place.seconds
        seconds = fitting(await asyncio.to_thread(try_out))
        if seconds < SECONDS:
            self._tell(f"this machine is slow, or busy with something else: the film has {seconds} s and not {SECONDS}")
        return seconds

    async def _find_server(self, crew: Crew, video_id: str) -> None:
        address, secret = await crew.address()
        self._address = f"{address.rstrip('/')}/{video_id}" + (f", secret {secret}" if secret else "")
        self._tell(f"watch it at {self._address}")

    async def _encoded(self, media: Media, crew: Crew, video_id: str) -> Version:
        """Look on until the film is ready, and kill a worker on the way."""
        deadline = time.monotonic() + DONE_WITHIN
        while time.monotonic() < deadline:
            crew.check(but=None if self._kill is None else self._kill.worker)
            version = (await media.library.get(video_id)).newest
            if version is None:
                raise MediaError("DEMO_FAILED", "nothing is being made of the film")
            grid = await media.grid(version)
            self._audience.show(grid, None if self._kill is None else self._kill.worker)
            if not version.active:
                if version.state is not VersionState.READY:
                    raise MediaError("DEMO_FAILED", f"the film is {version.state}: {version.message}")
                return version
            await self._look_at(grid, crew, partial(media.grid, version))
            await asyncio.sleep(LOOK)
        raise MediaError("DEMO_FAILED", f"the film was not ready within {DONE_WITHIN:g} s")

    async def _look_at(self, grid: Grid, crew: Crew, read: Callable[[], Awaitable[Grid]]) -> None:
        if self._kill is not None:
            self._look_after(grid, self._kill)
            return
        now = time.monotonic()
        self._seen = {cell.job_id: self._seen.get(cell.job_id, now) for cell in grid.cells if cell.state is CellState.RUNNING}
        cell = victim(grid, self._seen, now)
        if cell is None or cell.worker is None:
            return
        crew.kill(cell.worker)
        # as it stands now that it is dead: it may just have finished that chunk, and begun another
        after = await read()
        lost = next((one for one in after.cells if one.state is CellState.RUNNING and one.worker == cell.worker), None)
        self._kill = Kill(cell.worker, after.percent, None if lost is None else lost.job_id)
        where = "between two chunks" if lost is None else "in the midst of a chunk"
        done = after.count(CellState.DONE)
        self._tell(f"at {after.percent:.0f} %: kill -9 {cell.worker}, {where}; {done} of {len(after.cells)} encodes are done")
        if lost is not None:
            self._tell(f"waiting up to {LEASE:g} s for its lease to lapse: then another worker may have that chunk")

    def _look_after(self, grid: Grid, kill: Kill) -> None:
        """Tell when the chunk that a kill cost turns amber, and when another worker has it."""
        cell = next((one for one in grid.cells if one.job_id == kill.job_id), None)
        if cell is None or kill.taken_over is not None:
            return
        if cell.lost and not kill.missed:
            kill.missed = True
            self._tell(f"{kill.worker} is silent: the cell of its chunk is amber until another worker has it")
        if cell.attempt > 1 and cell.worker not in (None, kill.worker):
            kill.taken_over, kill.by = time.monotonic() - kill.at, cell.worker
            self._tell(f"{cell.worker} has taken that chunk over, {kill.taken_over:.1f} s later; nothing finished is redone")

    async def _account(self, media: Media, version: Version, source: int, seconds: int) -> Account:
        grid = await media.grid(version)
        self._tell("ready. Decoding every quality, and counting")

        async def counted(quality: Quality) -> int:
            made = quality.result or {"folder": "", "facts": {"playlist": ""}}
            playlist = self._place.output / made["folder"] / made["facts"]["playlist"]
            return await asyncio.to_thread(count_frames, playlist, seconds)

        counts = await asyncio.gather(*map(counted, version.qualities))
        frames = {quality.name: count for quality, count in zip(version.qualities, counts, strict=True)}
        kill = self._kill
        return Account(
            video=version.video_id,
            seconds=round(time.monotonic() - self._began, 1),
            killed=None if kill is None else kill.worker,
            chunks=len(grid.columns),
            done=sum(all(cell.state in (CellState.DONE, CellState.REDONE) for cell in chunk) for chunk in grid.columns),
            redone=grid.redone,
            encodes=len(grid.cells),
            source_frames=source,
            frames=frames,
            killed_at=None if kill is None else round(kill.percent, 1),
            taken_over_after=None if kill is None or kill.taken_over is None else round(kill.taken_over, 1),
            taken_over_by=None if kill is None else kill.by,
        )

    def _tell(self, text: str) -> None:
        self._audience.tell(time.monotonic() - self._began, text)


def victim(grid: Grid, seen: Mapping[str, float], now: float) -> Cell | None:
    """Return the chunk whose worker is to be killed: none before its time has come, and then one that is in the midst of it."""
    if grid.percent < KILL_AT:
        return None
    running = [cell for cell in grid.cells if cell.state is CellState.RUNNING and cell.worker in WORKERS]
    midst = [cell for cell in running if now - seen.get(cell.job_id, now) >= IN_THE_MIDST]
    # where chunks are over too soon to be seen twice, any will do before it is too late
    late = running if grid.percent >= LATEST else []
    # best one that has told of its encode: before it begins, and once it is stored, a kill costs nothing
    return max(midst or late, key=lambda cell: (0 < cell.percent < ENCODED, now - seen[cell.job_id]), default=None)
