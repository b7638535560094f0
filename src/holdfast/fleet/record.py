"""What a manager leaves in the store: itself as a worker without slots, its counts, and what it decides with the reason."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import __version__
from holdfast.errors import UnknownWorker
from holdfast.store.port import Action, Beat, Signal, Worker

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.scaling import Decision
    from holdfast.fleet.options import ManagerOptions
    from holdfast.runtime.counters import Counters
    from holdfast.store.port import Store


LONGEST: Final = 1000
"""Characters of a reason that go with a sign of life: it names workers, of which there may be many."""


class Record:
    """Writes down who manages and what was decided."""

    def __init__(self, store: Store, options: ManagerOptions, counters: Counters, identity: UUID) -> None:
        self.who = f"manager {options.name}"
        """What the manager is called in lists and in the audit log."""
        self.reason = ""
        """Why there are as many workers as there are, as of the last look: sent with every sign of life."""
        self._store = store
        self._counters = counters
        self._worker = _introduced(options, self.who, identity)
        self._unwritten: list[Decision] = []
        self._writing = asyncio.Lock()

    async def begin(self) -> None:
        """Make the manager known."""
        await self._store.register(self._worker)

    async def beat(self) -> Signal:
        """Give a sign of life, with the counts and the reason; returns what people want of the manager."""
        await self._write()
        said = {"reason": self.reason[:LONGEST]} if self.reason else {}
        counters = msgspec.json.encode(self._counters.snapshot() | said).decode()
        try:
            return await self._store.beat(Beat(worker=self._worker.id, counters=counters))
        except UnknownWorker:
            await self._store.register(self._worker)
            return Signal()

    async def decided(self, decision: Decision) -> None:
        """Write a decision into the audit log; where the store does not answer it is written with a later sign of life."""
        self._unwritten.append(decision)
        await self._write()

    async def _write(self) -> None:
        async with self._writing:
            while self._unwritten:
                decision = self._unwritten[0]
                await self._store.note(Action.SCALE, [f"{decision.count} workers"], by=self.who, detail=decision.reason)
                self._unwritten.pop(0)

    async def end(self) -> None:
        """Leave the last counts behind, and be gone."""
        await self.beat()
        await self._store.retire(self._worker.id)


def _introduced(options: ManagerOptions, name: str, identity: UUID) -> Worker:
    """Return the manager as the registry knows it: a worker without slots and tasks, which claims nothing."""
    about = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "python": platform.python_version(),
        "queues": None if options.queues is None else sorted(options.queues),
        "tasks": [],
    }
    return Worker(id=identity, name=name, info=msgspec.json.encode(about).decode(), version=__version__, slots=0)
