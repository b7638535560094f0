"""Programs of contestants: started, asked, and ended whatever happens.

A program runs in a session of its own, away from this terminal's Ctrl-C; the block that started it ends it, with all that it
started itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence

_T = TypeVar("_T")

TAIL_LINES = 12
END_SECONDS = 20.0
"""How long a program that was told to end may take."""
LONGEST_LINE = 2**24


class ProgramError(Exception):
    """A program did not do what was asked; the message ends with the last lines that it wrote to standard error."""


class Program:
    """A running program. Get one from `started`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self.name = name
        self._process = process
        self._errors = errors

    async def answer(self) -> dict[str, Any]:
        """Return the next object that it prints, passing over lines of other kinds. Raises `ProgramError` when it ended."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            with contextlib.suppress(ValueError):
                if isinstance(found := json.loads(line), dict):
                    return found
        raise self.error(f"ended with exit code {await self._process.wait()} and gave no answer")

    async def end(self) -> list[dict[str, Any]]:
        """Close its standard input, wait until it has ended, and return what else it had to say."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        said = []
        try:
            async with asyncio.timeout(END_SECONDS):
                while True:
                    try:
                        said.append(await self.answer())
                    except ProgramError:
                        break
        except TimeoutError:
            raise self.error(f"did not end within {END_SECONDS:g} s of being told to") from None
        if code := await self._process.wait():
            raise self.error(f"ended with exit code {code}")
        return said

    async def ended(self) -> None:
        """Wait for an end that nobody asked for, and raise `ProgramError` then."""
        raise self.error(f"ended by itself with exit code {await self._process.wait()}")

    async def kill(self) -> None:
        """End it and all that it started, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # it leads a group of its own
        with contextlib.suppress(TimeoutError):  # what left the group may hold its pipes: the next cell must not wait for that
            await asyncio.wait_for(self._process.wait(), END_SECONDS)

    def error(self, what: str) -> ProgramError:
        """Return the error that says so, with the last lines of its standard error."""
        return ProgramError(f"{self.name} {what}" + self.tail())

    def tail(self) -> str:
        """Return the last lines of its standard error behind a colon, nothing when there are none."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 20_000))
        lines = self._errors.read().decode(errors="replace").rstrip().splitlines()
        return ":\n" + "\n".join(lines[-TAIL_LINES:]) if lines else ""


@asynccontextmanager
async def started(command: Sequence[str], *, name: str, environment: Mapping[str, str] | None = None) -> AsyncIterator[Program]:
    """Start a program, and end it with the block."""
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            limit=LONGEST_LINE,
            env={**_environment(), **(environment or {})},
        )
        program = Program(name, process, errors)
        try:
            yield program
        finally:
            await program.kill()


async def while_running(programs: Sequence[Program], work: Awaitable[_T]) -> _T:
    """Await `work`; raises `ProgramError` as soon as one of the programs ends, for then it may never be done."""
    wanted = asyncio.ensure_future(work)
    deaths = [asyncio.ensure_future(program.ended()) for program in programs]
    try:
        await asyncio.wait([wanted, *deaths], return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            await next(death for death in deaths if death.done())
        return await wanted
    finally:
        for future in (wanted, *deaths):
            future.cancel()
        await asyncio.gather(wanted, *deaths, return_exceptions=True)


def _environment() -> dict[str, str]:
    """Return ours without what would change how a contestant or its driver behaves."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "HOLDFAST_", "PYTHON"))}
