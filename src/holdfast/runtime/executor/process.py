"""Functions that may crash, hang or eat all memory: run in child processes."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from holdfast.core.classify import code_of
from holdfast.errors import Aborted, BadArgs, BadResult, HoldfastError, StaleLease
from holdfast.runtime.executor import wire
from holdfast.runtime.executor.loading import refuse_while_loading, target_of
from holdfast.runtime.executor.output import Output
from holdfast.runtime.executor.port import Encoded, ProcessDied, RemoteError
from holdfast.runtime.executor.spawning import Spawned, boot, describe, spawn
from holdfast.tasks.continuing import Continue

if TYPE_CHECKING:
    from holdfast.core.abort import AbortReason
    from holdfast.core.lease import Claimed
    from holdfast.store.port import Part
    from holdfast.tasks.channel import Channel
    from holdfast.tasks.context import Job
    from holdfast.tasks.task import Task

NO_TOKEN: Final = UUID(int=0)
TRIES: Final = 3
"""How many children are tried for an attempt when they turn out to have died before it began."""
LONGEST_BACKOFF: Final = 30.0
HANG_UP: Final = 2.0
"""Seconds that an idle child gets to run its exit handlers."""
KILL_WAIT: Final = 10.0
"""Seconds to wait for the end of a killed process: the kernel may hold it in a system call."""
LAST_WORDS: Final = 1.0
"""Seconds that a dead child's messages may take: something it started may keep the socket open for ever."""
BUFFER: Final = 2**20
SHOWN: Final = 4_000
"""Characters of the child's standard error in the message about its death."""


class ProcessNotStarted(HoldfastError):
    """No child process could be started, or it ended before it could run anything."""

    code = "PROCESS_NOT_STARTED"


class ProcessExecutor:
    """Runs functions in at most `slots` child processes, one attempt at a time in each; a child serves many attempts.

    A child that dies costs the attempt it ran, `ProcessDied`, and is replaced. A run that is cancelled is killed at once,
    with all it started. Children end with the worker, however that ends.
    """

    def __init__(self, slots: int, backoff: float = 0.5) -> None:
        self._free = asyncio.Semaphore(slots)
        self._backoff = backoff
        self._failures = 0
        self._idle: list[Child] = []
        self._running: dict[tuple[UUID, int], Child] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def open(self) -> None:
        """Get ready; children are started when they are needed. Refused while a child imports the module of a task."""
        refuse_while_loading()
        self._loop = asyncio.get_running_loop()

    async def run(self, task: Task[..., Any], claimed: Claimed, job: Job, channel: Channel) -> Encoded | Continue:
        """Run one attempt in a child."""
        run = partial(
            wire.Run,
            target=target_of(task),
            claimed=msgspec.structs.replace(claimed, token=NO_TOKEN),
            age=max(0.0, (channel.now() - claimed.claimed_at).total_seconds()),
            parts=tuple(job.parts.values()),
            blockers=tuple(job.blockers),
            signals=dict(job.signals),
        )
        async with self._free:
            for _ in range(TRIES):
                child = await self._child()
                try:
                    return _value(await self._attempt(child, run, job, channel))
                except _DiedBefore as death:
                    cause = f"it {death}"
                if child.runs == 1:
                    raise await self._not_started(cause)
            raise ProcessNotStarted(f"task {task.name!r} was not run: {TRIES} child processes died while they were idle")

    def stop(self, job: Job, reason: AbortReason) -> None:
        """Set `job.abort` in the child as well."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self._abort, (job.id, job.attempt), reason)

    async def close(self) -> None:
        """End all children: idle ones run their exit handlers, the others are killed."""
        self._closed = True
        idle, self._idle = self._idle, []
        async with asyncio.TaskGroup() as group:
            for child in idle:
                group.create_task(child.hang_up())
            for child in list(self._running.values()):
                group.create_task(child.kill())

    async def _child(self) -> Child:
        self._check_open()
        while self._idle:
            if (child := self._idle.pop()).alive:
                return child
        try:
            return await Child.start()
        except OSError as error:
            raise await self._not_started(str(error)) from error

    async def _attempt(self, child: Child, run: partial[wire.Run], job: Job, channel: Channel) -> wire.End:
        key = (job.id, job.attempt)
        self._running[key] = child
        try:
            self._check_open()  # again: it may have been closed while the child started
            job.abort.check()
            end = await child.run(run, channel)
        except ProcessDied:
            await child.kill()
            if self._closed:
                raise asyncio.CancelledError from None  # killed by `close`: nothing the attempt should answer for
            raise
        except BaseException:
            await child.kill()
            raise
        finally:
            del self._running[key]
        self._failures = 0
        if self._closed:
            await child.kill()
        else:
            self._idle.append(child)
        return end

    def _check_open(self) -> None:
        if self._closed:
            raise asyncio.CancelledError

    async def _not_started(self, cause: str) -> ProcessNotStarted:
        """Return the error, but slowly: where no child starts, a worker must not run through the queue."""
        delay = min(LONGEST_BACKOFF, self._backoff * 2**self._failures)
        self._failures += 1
        await asyncio.sleep(delay)
        return ProcessNotStarted(f"a child process could not be started: {cause}")

    def _abort(self, key: tuple[UUID, int], reason: AbortReason) -> None:
        if (child := self._running.get(key)) is not None:
            child.abort(reason)


class _DiedBefore(Exception):
    """The child died before the attempt began: not the attempt's fault."""


class Child:
    """A child process as its worker sees it."""

    def __init__(self, spawned: Spawned, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._spawned = spawned
        self._reader = reader
        self._writer = writer
        self._stdout = Output(spawned.stdout, partial(self._printed, "stdout"))
        self._stderr = Output(spawned.stderr, partial(self._printed, "stderr"))
        self._channel: Channel | None = None
        """Of the attempt it runs; what it prints meanwhile belongs to that one."""
        self._cut_off: asyncio.TimerHandle | None = None
        self.runs = 0
        """How many attempts it was given."""
        spawned.ended.add_done_callback(self._ended)

    @classmethod
    async def start(cls) -> Child:
        """Start a child. It finds modules where this process does."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                spawned = spawn(boot("child", theirs.fileno()), keep=[theirs.fileno()])
            except OSError:
                ours.close()
                raise
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=BUFFER)
        except BaseException:
            spawned.kill()
            spawned.stdout.close()
            spawned.stderr.close()
            ours.close()
            raise
        writer.write(json.dumps([str(entry) for entry in sys.path]).encode() + b"\n")
        return cls(spawned, reader, writer)

    @property
    def alive(self) -> bool:
        """Tell whether it has not ended."""
        return not self._spawned.ended.done()

    async def run(self, run: partial[wire.Run], channel: Channel) -> wire.End:
        """Run one attempt and return how it ended. Raises `ProcessDied`."""
        self.runs += 1
        request = wire.frame(run(self.runs))
        for output in (self._stdout, self._stderr):
            output.drain()
            if self.runs > 1:  # what a new one has written tells why it did not start
                output.forget()
        self._channel = channel
        begun = False
        try:
            self._writer.write(request)
            await self._writer.drain()
            while True:
                message = await self._receive()
                if isinstance(message, wire.Started):
                    begun = message.number == self.runs
                elif begun and (end := await self._take(message, channel)) is not None:
                    return end
        except (ConnectionError, EOFError, msgspec.DecodeError, wire.TooLarge) as error:
            how, code = await self._death(error)
            raise (ProcessDied(f"the process that ran it {how}", code) if begun else _DiedBefore(how)) from None
        finally:
            self._stdout.drain()
            self._stderr.drain()
            self._channel = None

    def abort(self, reason: AbortReason) -> None:
        """Ask the attempt to stop."""
        if self.alive:
            self._writer.write(wire.frame(wire.Abort(self.runs, reason)))

    async def hang_up(self) -> None:
        """End it in peace, if it is quick about it."""
        self._writer.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._spawned.ended), HANG_UP)
        await self.kill()

    async def kill(self) -> None:
        """Kill it and what it started; returns when it has ended."""
        self._spawned.kill()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._spawned.ended), KILL_WAIT)
        self._close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _receive(self) -> wire.ToWorker:
        length = int.from_bytes(await self._reader.readexactly(wire.HEADER), "big")
        return wire.to_worker.decode(await self._reader.readexactly(wire.checked_length(length)))

    async def _take(self, message: wire.ToWorker, channel: Channel) -> wire.End | None:
        match message:
            case wire.Progressed(percent, step, text):
                channel.progress(percent, step, text)
            case wire.Staged(name, event):
                channel.stage(name, event)
            case wire.Logged(level, logger, text, fields):
                channel.log(level, logger, text, fields)
            case wire.Checkpointed(number, part):
                self._writer.write(wire.frame(await _stored(channel, number, part)))
            case wire.Started():
                raise msgspec.DecodeError("it began twice")
            case _:
                return message
        return None

    async def _death(self, error: Exception) -> tuple[str, int | None]:
        """Say how it died, when nothing more can be had from it."""
        hung_up = isinstance(error, EOFError | ConnectionError)
        if hung_up:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._spawned.ended), LAST_WORDS)
        if self.alive:
            await self.kill()
            cause = "closed its connection" if hung_up else f"sent what is no message: {error}"
            return f"was killed, because it {cause}", None
        self._stderr.drain()
        code = self._spawned.ended.result()
        written = self._stderr.tail().strip()[-SHOWN:]
        return describe(code) + (f"; it last wrote:\n{written}" if written else ""), code

    def _ended(self, _: object) -> None:
        if self._channel is None:
            self._close()
        else:
            self._cut_off = asyncio.get_running_loop().call_later(LAST_WORDS, self._writer.transport.abort)

    def _close(self) -> None:
        if self._cut_off is not None:
            self._cut_off.cancel()
        for output in (self._stdout, self._stderr):
            output.drain()
            output.close()
        self._writer.close()

    def _printed(self, stream: str, line: str) -> None:
        if self._channel is not None:
            self._channel.log("info", stream, line, "{}")
        else:
            sys.stderr.write(f"{line}\n")


async def _stored(channel: Channel, number: int, part: Part) -> wire.Answer:
    try:
        await channel.checkpoint(part)
    except StaleLease as error:
        return wire.Answer(number, str(error), stale=True)
    except Exception as error:  # noqa: BLE001  the function in the child shall know, and decide
        return wire.Answer(number, str(error) or type(error).__name__, code_of(error))
    return wire.Answer(number)


def _value(end: wire.End) -> Encoded | Continue:
    match end:
        case wire.Returned(result):
            return Encoded(result)
        case wire.Continues(then):
            return Continue(then)
        case wire.Raised(outcome):
            raise RemoteError(outcome)
        case wire.Refused(args, reason, path, task):
            raise (BadArgs if args else BadResult)(reason, path=path, task=task)
        case wire.Interrupted(reason, message):
            raise StaleLease(message) if reason is None else Aborted(reason)
