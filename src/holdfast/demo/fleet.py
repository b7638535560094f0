"""The worker processes of the demonstration: started, killed, frozen, thawed and cleaned up, each by its own process id."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self

import msgspec

from holdfast.demo.tasks import LIFELINE_VARIABLE, URL_VARIABLE
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from uuid import UUID

    from holdfast.demo.place import Place
    from holdfast.store.port import Store

SLOTS: Final = 8
STOP_WITHIN: Final = 15.0
"""Seconds that workers get to stop and to leave their counters behind."""
WRITES_WITHIN: Final = 0.5
"""Seconds after which a write that does not get through means that a frozen worker holds the file."""
FREEZES: Final = 20
LOG_END: Final = 2_000


class Fate(StrEnum):
    """What happened to a worker."""

    STARTING = "starting"
    WORKING = "working"
    KILLED = "killed"
    FROZEN = "frozen"
    THAWED = "thawed"
    STOPPED = "stopped"


ENDED: Final = frozenset({Fate.KILLED, Fate.STOPPED})


class WorkerDied(HoldfastError):
    """A worker of the demonstration ended by itself."""


@dataclass(slots=True)
class Member:
    """One worker process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    fate: Fate = Fate.STARTING
    id: UUID | None = None
    """What the store's registry knows it by, once it is there."""
    read: int = field(default=0, repr=False)
    """How far its log has been read."""


class Fleet:
    """All workers of one demonstration. Left, none of them runs any more."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.members: list[Member] = []
        self._lifeline: tuple[int, int] | None = None

    async def __aenter__(self) -> Self:
        self._lifeline = os.pipe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
        for member in self.members:
            member.process.wait()
        if self._lifeline is not None:
            for descriptor in self._lifeline:
                os.close(descriptor)

    def start(self) -> Member:
        """Start one more worker."""
        assert self._lifeline is not None  # noqa: S101  made on entering
        name = f"worker-{len(self.members) + 1}"
        log = self._place.folder / f"{name}.log"
        lifeline = self._lifeline[0]
        options = ("--name", name, "--concurrency", str(SLOTS), "--shutdown-timeout", "10s", "--log-format", "json")
        # nothing of the caller's own settings: neither its environment nor the files of its folder
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  this very program
                [sys.executable, "-m", "holdfast", "worker", "holdfast.demo.tasks:app", *options],
                cwd=self._place.folder,
                env={**environment, URL_VARIABLE: self._place.url, LIFELINE_VARIABLE: str(lifeline)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(lifeline,),
                start_new_session=True,  # Ctrl-C is for the demonstration, which then ends its workers in order
            )
        member = Member(name, process, log)
        self.members.append(member)
        return member

    def check(self) -> None:
        """Raise `WorkerDied` with the end of its log when a worker has ended that was not killed."""
        for member in self.members:
            if member.fate not in ENDED and member.process.poll() is not None:
                end = member.log.read_text(errors="replace")[-LOG_END:]
                raise WorkerDied(f"{member.name} ended by itself with code {member.process.returncode}:\n{end}")

    async def kill(self, member: Member) -> None:
        """Kill a worker where it stands: SIGKILL."""
        member.process.kill()
        member.fate = Fate.KILLED
        await asyncio.to_thread(member.process.wait)

    async def freeze(self, member: Member, store: Store) -> bool:
        """Freeze a worker: SIGSTOP. Returns False when it could not be caught outside a write.

        A process frozen inside a write to a SQLite file stops every other writer (docs/guarantees.md): that is not what is
        to be shown, so it is let go and caught again.
        """
        for _ in range(FREEZES):
            member.process.send_signal(signal.SIGSTOP)
            write = asyncio.create_task(store.resume("holdfast-demo-nobody"))
            done, _ = await asyncio.wait([write], timeout=WRITES_WITHIN)
            if done:
                await write
                member.fate = Fate.FROZEN
                return True
            member.process.send_signal(signal.SIGCONT)
            await write
        return False

    def thaw(self, member: Member) -> None:
        """Let a frozen worker go on as if nothing had happened: SIGCONT."""
        member.process.send_signal(signal.SIGCONT)
        member.fate = Fate.THAWED

    async def stop(self) -> None:
        """Ask all workers to stop, and wait until they have; one that will not is left to be killed."""
        left = [member for member in self.members if member.fate is not Fate.KILLED]
        for member in left:
            member.process.terminate()
        deadline = time.monotonic() + STOP_WITHIN
        for member in left:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(member.process.wait, max(0.0, deadline - time.monotonic()))
                member.fate = Fate.STOPPED


class _Line(msgspec.Struct, frozen=True):
    event: str = ""


def new_lines(member: Member) -> list[str]:
    """Return what a worker has logged since the last look; a line that is not complete yet waits."""
    with member.log.open("rb") as file:
        file.seek(member.read)
        text, newline, _ = file.read().rpartition(b"\n")
    member.read += len(text) + len(newline)
    lines = []
    for line in text.splitlines():
        with suppress(msgspec.MsgspecError):
            lines.append(msgspec.json.decode(line, type=_Line).event)
    return lines
