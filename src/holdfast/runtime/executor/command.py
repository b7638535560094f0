"""External programs in the place of functions."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import signal
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from holdfast.errors import Aborted, Fatal, Retryable
from holdfast.runtime.executor.calling import arguments, raisable
from holdfast.runtime.executor.output import Output
from holdfast.runtime.executor.spawning import Spawned, boot, describe, signal_name, spawn
from holdfast.runtime.executor.thread import ThreadExecutor
from holdfast.tasks.command import Command, CommandResult
from holdfast.tasks.continuing import BAD_CONTINUATION, Continue

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.core.abort import AbortReason
    from holdfast.core.lease import Claimed
    from holdfast.tasks.channel import Channel
    from holdfast.tasks.context import Job
    from holdfast.tasks.task import Task

NOT_FOUND: Final = "COMMAND_NOT_FOUND"
NOT_RUN: Final = "COMMAND_NOT_RUN"
BAD_COMMAND: Final = "BAD_COMMAND"
SHOWN: Final = 2_000
"""Characters of the program's standard error in the message about its failure."""


class CommandExecutor:
    """Runs the `Command` that a function returns, at most `slots` at a time. Its output becomes the job's log.

    A run that is cancelled or asked to stop gets SIGTERM, to its whole group, and SIGKILL when its `stop_grace` is over.
    What a program leaves behind in its group is killed when it ends, and all of it when the worker ends.
    """

    def __init__(self, slots: int) -> None:
        self._free = asyncio.Semaphore(slots)
        self._functions = ThreadExecutor(slots)
        self._running: dict[tuple[UUID, int], Program] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def open(self) -> None:
        """Get ready."""
        self._loop = asyncio.get_running_loop()
        await self._functions.open()

    async def run(self, task: Task[..., Any], claimed: Claimed, job: Job, channel: Channel) -> CommandResult:
        """Call the function for its command and run that.

        Raises `Retryable` with `EXIT_<n>` or `SIGNAL_<name>` when the program fails, `Fatal` where the command says so or
        there is no such program, `Aborted` when it was asked to stop.
        """
        async with self._free:
            command = _checked(await self._command(task, claimed, job, channel), task)
            job.abort.check()
            program = Program(command, job, channel)
            key = (job.id, job.attempt)
            self._running[key] = program
            try:
                return await program.result()
            except (Fatal, Retryable):
                if self._closed:
                    raise asyncio.CancelledError from None  # killed by `close`: nothing the attempt should answer for
                raise
            finally:
                del self._running[key]

    def stop(self, job: Job, reason: AbortReason) -> None:  # noqa: ARG002  the port's; `job.abort` has it
        """Ask the program to end."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self._terminate, (job.id, job.attempt))

    async def close(self) -> None:
        """Kill what still runs."""
        self._closed = True
        for program in list(self._running.values()):
            await program.kill()
        await self._functions.close()

    async def _command(self, task: Task[..., Any], claimed: Claimed, job: Job, channel: Channel) -> object:
        if not inspect.iscoroutinefunction(task.function):
            return await self._functions.run(task, claimed, job, channel)
        positional, named = arguments(task, claimed.args, job)
        try:
            return await task.function(*positional, **named)
        except (StopIteration, SystemExit) as error:
            raise raisable(task, error) from error

    def _terminate(self, key: tuple[UUID, int]) -> None:
        if (program := self._running.get(key)) is not None:
            program.terminate()


class Program:
    """A running program."""

    def __init__(self, command: Command, job: Job, channel: Channel) -> None:
        self._command = command
        self._job = job
        self._channel = channel
        self._parse = command.progress
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._spawned, self._report = _launch(command)
        self._not_run: int | None = None
        self._stdout = Output(self._spawned.stdout, partial(self._line, "stdout"))
        self._stderr = Output(self._spawned.stderr, partial(self._line, "stderr"))

    async def result(self) -> CommandResult:
        """Wait for its end and return what it gave."""
        try:
            code = await asyncio.shield(self._spawned.ended)
        except asyncio.CancelledError:
            self.terminate()
            await _ended(self._spawned)
            raise
        finally:
            self._let_go()
        self._check(code)
        seconds = self._loop.time() - self._began
        return CommandResult(code, self._stdout.tail(), self._stderr.tail(), seconds)

    def terminate(self) -> None:
        """Ask it to end; when its grace is over it is killed."""
        if self._deadline is None:
            self._spawned.signal(signal.SIGTERM)
            self._deadline = self._loop.call_later(self._command.stop_grace, self._spawned.kill)

    async def kill(self) -> None:
        """Kill it, and wait for its end."""
        self._spawned.kill()
        await _ended(self._spawned)

    def _check(self, code: int) -> None:
        """Raise what this end means, unless it is success."""
        name = self._command.argv[0]
        if self._not_run is not None:
            raise _refusal(self._command, OSError(self._not_run, os.strerror(self._not_run)))
        if self._job.abort.reason is not None:
            raise Aborted(self._job.abort.reason)
        if code in self._command.accept:
            return
        label = f"EXIT_{code}" if code >= 0 else f"SIGNAL_{signal_name(-code)}"
        written = self._stderr.tail().strip()[-SHOWN:]
        message = f"{name} {describe(code)}" + (f"; it last wrote:\n{written}" if written else "")
        raise (Fatal if code in self._command.fatal else Retryable)(message, code=label)

    def _line(self, stream: str, line: str) -> None:
        self._channel.log("info", stream, line, "{}")
        if self._parse is None:
            return
        try:
            percent = self._parse(line)
            if percent is not None:
                self._job.progress(float(percent))
        except Exception as error:  # noqa: BLE001  the user's function; the program is none the worse for it
            self._parse = None
            text = f"progress= raised {type(error).__name__} and is not asked again: {error}"
            self._channel.log("warning", "holdfast.command", text, "{}")

    def _let_go(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        with self._report as report:
            self._not_run = int(report.read() or 0) or None
        for output in (self._stdout, self._stderr):
            output.drain()
            output.close()


def _launch(command: Command) -> tuple[Spawned, IO[bytes]]:
    """Start the program; returns it with the pipe that tells, once it has ended, whether it was ever there."""
    read, write = os.pipe()
    report = os.fdopen(read, "rb", buffering=0)
    try:
        with _stdin(command.stdin) as stdin:
            return spawn(
                boot("program", write, *command.argv),
                stdin=stdin,
                keep=[write],
                cwd=command.cwd,
                env={**os.environ, **command.env},
            ), report
    except (OSError, ValueError) as error:
        report.close()
        raise _refusal(command, error) from error
    finally:
        os.close(write)


def _stdin(text: str | None) -> IO[bytes]:
    """Return what the program reads: a file, which unlike a pipe needs nobody to fill it."""
    if text is None:
        return Path(os.devnull).open("rb")
    file = tempfile.TemporaryFile()  # noqa: SIM115  handed on
    file.write(text.encode(errors="surrogateescape"))
    file.seek(0)
    return file


def _checked(given: object, task: Task[..., Any]) -> Command:
    if isinstance(given, Continue):
        raise Fatal(f"task {task.name!r} runs a command, and cannot continue with another task", code=BAD_CONTINUATION)
    if not isinstance(given, Command):
        raise Fatal(f"task {task.name!r} must return a Command, not {type(given).__name__}", code=BAD_COMMAND)
    argv = given.argv
    if isinstance(argv, str) or not argv or not all(isinstance(part, str) for part in argv):
        raise Fatal(f"task {task.name!r}: argv must be a list of strings and name a program, not {argv!r}", code=BAD_COMMAND)
    return given


def _refusal(command: Command, error: OSError | ValueError) -> Fatal:
    """Return why a program was not run."""
    name = command.argv[0]
    if command.cwd is not None and getattr(error, "filename", None) == command.cwd:
        return Fatal(f"{name!r} was not run: its folder {command.cwd!r} cannot be entered: {error}", code=NOT_RUN)
    if getattr(error, "errno", None) == errno.ENOENT:
        fix = "install it, correct argv, or add its folder to the PATH of the worker"
        return Fatal(f"there is no program {name!r} on this machine: {fix}", code=NOT_FOUND)
    return Fatal(f"{name!r} was not run: {error}", code=NOT_RUN)


async def _ended(spawned: Spawned) -> None:
    """Wait for the end of a program that was told to end. Whoever is cancelled meanwhile is in a hurry: it is killed."""
    while not spawned.ended.done():
        try:
            await asyncio.shield(spawned.ended)
        except asyncio.CancelledError:
            spawned.kill()
