"""The processes of a demonstration: two workers, and a server to look at it. None outlives it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast_media.errors import MediaError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from holdfast_media.demo.place import Place

APP: Final = "holdfast_media.demo.app:app"
STOP_WITHIN: Final = 3.0
"""Seconds. All is told by then: what a process that is still busy would end in order is of no use to anybody."""
UP_WITHIN: Final = 30.0
_ADDRESS: Final = re.compile(r"https?://[^\s,]+")
_SECRET: Final = re.compile(r"secret[^:]*:\s*(\S+)")


@dataclass(slots=True)
class Crew:
    """Starts, kills and ends processes."""

    place: Place
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start_worker(self, name: str) -> None:
        """Start a worker that encodes one chunk at a time."""
        self._start(name, "worker", APP, "--name", name, "--concurrency", "1", "--retry-share", "1")

    def start_server(self) -> None:
        """Start the server on a free port of this machine."""
        self._start("server", "media", "serve", "--port", "0", "--workers", "0", "--open")

    def _start(self, name: str, *words: str) -> None:
        with self.log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603  this very Python, and words of our own
                [sys.executable, "-m", "holdfast", *words],
                cwd=self.place.folder,
                env=self.place.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        """Return where a process writes what it says."""
        return self.place.folder / f"{name}.log"

    def kill(self, name: str) -> None:
        """End a process as hard as that goes."""
        process = self._processes[name]
        process.kill()
        process.wait()

    def dismiss(self, names: Iterable[str]) -> None:
        """Ask processes to end, which is waited for when all of them go."""
        for name in names:
            if self._processes[name].poll() is None:
                self._processes[name].send_signal(signal.SIGTERM)

    def check(self, but: str | None = None) -> None:
        """Refuse to go on when a process has ended by itself."""
        for name, process in self._processes.items():
            if name != but and process.poll() is not None:
                said = self.log(name).read_text(errors="replace").strip().splitlines()[-5:]
                raise MediaError("DEMO_FAILED", f"{name} has ended with code {process.returncode}:\n" + "\n".join(said))

    async def address(self) -> tuple[str, str | None]:
        """Return where the server listens, once it does, and the secret to log in with."""
        for _ in range(int(UP_WITHIN / 0.1)):
            self.check()
            said = self.log("server").read_text(errors="replace")
            if found := _ADDRESS.search(said):
                secret = _SECRET.search(said)
                return found[0].rstrip("."), None if secret is None else secret[1]
            await asyncio.sleep(0.1)
        raise MediaError("DEMO_FAILED", f"the server did not say within {UP_WITHIN:g} s where it listens")

    async def wait(self, name: str) -> None:
        """Wait until a process ends."""
        await asyncio.to_thread(self._processes[name].wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End every process: asked first, then made to."""
        self.dismiss(self._processes)
        for process in self._processes.values():
            try:
                process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
