"""The processes of the fleet. Each has a place; a supervisor puts a new one there when it has ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT: Final = Path(__file__).parents[2]
LOOK: Final = 0.1
"""Seconds between looks of the supervisor."""


class Place:
    """Where a process belongs, and the one that is there now."""

    def __init__(
        self,
        name: str,
        folder: Path,
        command: Callable[[str], Sequence[str]],
        environment: dict[str, str],
        prefix: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.lives = 0
        self.wanted = False
        """Whether a process that has ended is to be followed by another."""
        self.troubled = False
        """Whether a fault has it in hand: until that is over, nothing is started there."""
        self.expected = True
        """Whether the end of the process is somebody's doing."""
        self.codes: list[int] = []
        """How the processes before have ended."""
        self.environment = environment
        self._command = command
        self._prefix = prefix
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that is there now, or was last."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process

    @property
    def life(self) -> str:
        """The name of the process that is there now."""
        return f"{self.name}.{self.lives}"

    @property
    def alive(self) -> bool:
        """Whether the process runs, or is frozen."""
        return self._process is not None and self._process.poll() is None

    @property
    def logs(self) -> list[Path]:
        """What all processes of this place have logged."""
        return sorted(self._folder.glob(f"{self.name}.*.log"))

    @property
    def last_words(self) -> str:
        """The last line that the process has logged."""
        lines = (self._folder / f"{self.life}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it said nothing"

    def start(self) -> None:
        """Put a new process there. Call it in the main thread: the kernel ends it with the thread that has started it."""
        self.lives += 1
        self.wanted, self.expected = True, False
        environment = os.environ | self.environment | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [*self._prefix, sys.executable, "-m", *self._command(self.life), str(os.getpid())]
        with (self._folder / f"{self.life}.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it has ended."""
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.expected = True
        self.process.send_signal(number)

    async def ended(self, within: float) -> bool:
        """Wait for the end of the process; tells whether it came in time."""
        deadline = time.monotonic() + within
        process = self.process
        while process.poll() is None:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    async def kill(self) -> None:
        """End it as a power cut would."""
        self.send(signal.SIGKILL)
        await self.ended(30.0)

    async def freeze(self) -> None:
        """Stop it where it stands."""
        self.send(signal.SIGSTOP)
        while self.alive and _state_of(self.process.pid) != "T":  # noqa: ASYNC110  the kernel sends no word
            await asyncio.sleep(0.01)

    def thaw(self) -> None:
        """Let it go on."""
        self.send(signal.SIGCONT)


class Supervisor:
    """Starts processes anew, as the one of an operator would."""

    def __init__(self, places: Sequence[Place], died: Callable[[Place], None]) -> None:
        self._places = places
        self._died = died
        self._due: dict[str, float] = {}

    async def run(self, rest: Callable[[], float]) -> None:
        """Look after all places for ever; `rest` says how long one stays empty."""
        while True:
            now = time.monotonic()
            for place in self._places:
                if not place.wanted or place.troubled or place.alive:
                    continue
                if place.name not in self._due:
                    self._due[place.name] = now + rest()
                    place.codes.append(place.process.returncode)
                    if not place.expected:
                        self._died(place)
                elif now >= self._due[place.name]:
                    del self._due[place.name]
                    place.start()
            await asyncio.sleep(LOOK)


def _state_of(pid: int) -> str:
    """Return the state of a process as the kernel shows it; T is stopped, Z has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "T"
    state = stat.rpartition(")")[2].split()[0]
    return "T" if state == "Z" else state
