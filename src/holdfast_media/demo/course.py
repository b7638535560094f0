"""The course of the demonstration: film, workers, a kill at two fifths, the take-over, every frame decoded, the account."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol

from holdfast import Holdfast
from holdfast_media.demo.account import Account
from holdfast_media.demo.crew import Crew
from holdfast_media.demo.place import CHUNK, LADDER, RATE, SEGMENT, SIZE, count_frames, make_film
from holdfast_media.errors import MediaError
from holdfast_media.library import VersionState
from holdfast_media.library.grid import CellState
from holdfast_media.media import Media

if TYPE_CHECKING:
    from holdfast_media.demo.place import Place
    from holdfast_media.library import Version
    from holdfast_media.library.grid import Cell, Grid

WORKERS: Final = ("ada", "bob")
KILL_AT: Final = 40.0
"""Percent of the work."""
WORTH_IT: Final = 20.0
"""Percent of a chunk that must be done for its loss to be worth something."""
LOOK: Final = 0.2
DONE_WITHIN: Final = 240.0


class Audience(Protocol):
    """Who watches."""

    def tell(self, seconds: float, text: str) -> None:
        """Hear of something that just happened."""
        ...

    def show(self, title: str, grid: Grid) -> None:
        """See how things stand."""
        ...

    def hear(self, account: Account) -> None:
        """Hear the account."""
        ...


class Course:
    """One demonstration."""

    def __init__(self, place: Place, audience: Audience) -> None:
        self._place = place
        self._audience = audience
        self._began = time.monotonic()
        self._killed: tuple[str, str, float] | None = None
        """Which worker, with which job, and when."""
        self._taken_over: float | None = None
        self.staying = False
        """Whether all is told, and only the server goes on."""

    async def run(self, *, serve: bool, stay: asyncio.Event | None) -> Account:
        """Run it from beginning to end; with `stay`, the server goes on until that is set. No process outlives it."""
        self._tell(f"making a film of {self._place.seconds} s, {SIZE}, {RATE} frames a second")
        frames = await asyncio.to_thread(make_film, self._place)
        app = Holdfast(self._place.url)
        media = Media(app, root=self._place.output, chunk_seconds=CHUNK, segment_seconds=SEGMENT, ladder=str(LADDER))
        with Crew(self._place) as crew:
            try:
                video = await media.library.add(self._place.film, title="The demonstration")
                if serve:
                    await self._open_server(crew, video.id)
                for name in WORKERS:
                    crew.start_worker(name)
                self._tell(f"two workers, {' and '.join(WORKERS)}, encode it in three qualities, {CHUNK:g} s at a time")
                version = await self._encoded(media, crew, video.id)
                account = await self._account(media, version, frames)
                self._audience.hear(account)
                if serve and stay is not None:
                    self._tell("the server goes on until Ctrl-C")
                    self.staying = True
                    await stay.wait()
                return account
            finally:
                await media.close()
                await app.close()

    async def _open_server(self, crew: Crew, video_id: str) -> None:
        crew.start_server()
        address, secret = await crew.address()
        self._tell(f"watch it at {address.rstrip('/')}/{video_id}" + (f", secret {secret}" if secret else ""))

    async def _encoded(self, media: Media, crew: Crew, video_id: str) -> Version:
        """Look on until the film is ready, and kill a worker on the way."""
        deadline = time.monotonic() + DONE_WITHIN
        while time.monotonic() < deadline:
            crew.check(but=None if self._killed is None else self._killed[0])
            version = (await media.library.get(video_id)).newest
            if version is None:
                raise MediaError("DEMO_FAILED", "nothing is being made of the film")
            grid = await media.grid(version)
            self._audience.show("The demonstration", grid)
            if not version.active:
                if version.state is not VersionState.READY:
                    raise MediaError("DEMO_FAILED", f"the film is {version.state}: {version.message}")
                return version
            self._look_at(grid, crew)
            await asyncio.sleep(LOOK)
        raise MediaError("DEMO_FAILED", f"the film was not ready within {DONE_WITHIN:g} s")

    def _look_at(self, grid: Grid, crew: Crew) -> None:
        if self._killed is None:
            if grid.percent >= KILL_AT and (cell := _victim(grid)) is not None and cell.worker is not None:
                crew.kill(cell.worker)
                self._killed = (cell.worker, cell.job_id, time.monotonic())
                done = grid.count(CellState.DONE)
                self._tell(
                    f"at {grid.percent:.0f} %: kill -9 {cell.worker}, {cell.percent:.0f} % into a chunk; {done} chunks are done"
                )
            return
        name, job_id, at = self._killed
        if self._taken_over is None:
            cell = next((one for one in grid.cells if one.job_id == job_id), None)
            if cell is not None and cell.attempt > 1 and cell.worker not in (None, name):
                self._taken_over = time.monotonic() - at
                self._tell(
                    f"{cell.worker} has taken that chunk over, {self._taken_over:.1f} s later; no finished one is redone"
                )

    async def _account(self, media: Media, version: Version, source: int) -> Account:
        grid = await media.grid(version)
        self._tell("ready. Decoding every quality, and counting")
        frames = {}
        for quality in version.qualities:
            made = quality.result or {"folder": "", "facts": {"playlist": ""}}
            playlist = self._place.output / made["folder"] / made["facts"]["playlist"]
            frames[quality.name] = await asyncio.to_thread(count_frames, playlist, self._place.seconds)
        return Account(
            seconds=round(time.monotonic() - self._began, 1),
            killed=None if self._killed is None else self._killed[0],
            chunks=len(grid.cells),
            done=grid.count(CellState.DONE, CellState.REDONE),
            redone=sum(cell.attempt > 1 for cell in grid.cells),
            source_frames=source,
            frames=frames,
            taken_over_after=None if self._taken_over is None else round(self._taken_over, 1),
        )

    def _tell(self, text: str) -> None:
        self._audience.tell(time.monotonic() - self._began, text)


def _victim(grid: Grid) -> Cell | None:
    """Return a chunk whose loss shows something: one that a worker is in the midst of."""
    running = [cell for cell in grid.cells if cell.state is CellState.RUNNING and cell.worker in WORKERS]
    worth = [cell for cell in running if cell.percent >= WORTH_IT]
    return max(worth, key=lambda cell: cell.percent, default=None)
