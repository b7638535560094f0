"""The child process of a `process` slot: runs one attempt after another until its worker hangs up."""

from __future__ import annotations

import faulthandler
import io
import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.classify import outcome_of
from holdfast.core.text import clean
from holdfast.errors import Aborted, BadArgs, BadResult, BadSetting, HoldfastError, Retryable, StaleLease
from holdfast.runtime.executor import wire
from holdfast.runtime.executor.calling import arguments, call, outcome_of_error, overlooked
from holdfast.runtime.executor.loading import TaskNotImportable, find_task
from holdfast.runtime.telling import user_traceback
from holdfast.tasks.abort import Abort
from holdfast.tasks.channel import Stored
from holdfast.tasks.context import Job, current_job
from holdfast.tasks.continuing import Continue

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from holdfast.core.states import Event
    from holdfast.store.port import Part
    from holdfast.tasks.channel import Transactor
    from holdfast.tasks.task import Task

HANG_UP_GRACE: Final = 5.0
"""Seconds that exit handlers get after the worker has hung up."""
LOG_LIMIT: Final = 10_000
"""Characters of a log line that are worth sending."""


def main(descriptor: int) -> None:
    """Serve the worker at the other end of a socket."""
    os.set_inheritable(descriptor, False)  # noqa: FBT003  its only form
    with suppress(OSError, ValueError):
        faulthandler.enable(all_threads=False)
    # The worker decides when a child ends. Handlers that do nothing, not SIG_IGN: programs that a job starts would inherit it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _pass_over)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what was printed before a crash is what explains it
    with socket.socket(fileno=descriptor) as line:
        connection = Connection(line)
        connection.start()
        handler = LogHandler(connection)
        while (run := connection.runs.get()) is not None:
            connection.end(_run(run, connection, handler))


class Connection:
    """The child's end of the socket: a thread reads, whoever has something to say writes."""

    def __init__(self, line: socket.socket) -> None:
        self.runs: SimpleQueue[wire.Run | None] = SimpleQueue()
        self._line = line
        self._sending = threading.Lock()
        self._current: tuple[int, Abort] | None = None
        self._answers: dict[int, SimpleQueue[wire.Answer]] = {}
        self._asked = 0

    @property
    def busy(self) -> bool:
        """Tell whether a job runs."""
        return self._current is not None

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="holdfast-child-reader", daemon=True).start()

    def begin(self, run: wire.Run) -> Abort:
        """Note that a run begins; returns what tells it to stop."""
        self.send(wire.Started(run.number))
        assert self._current is not None  # noqa: S101  set when the run was read
        return self._current[1]

    def end(self, message: wire.End) -> None:
        """Note that the run has ended, and say how."""
        self._current = None
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()  # what was printed belongs to the job: the worker reads it before it looks at the next
        try:
            self.send(message)
        except wire.TooLarge as error:
            self.send(wire.Refused(args=False, reason=str(error), path="result", task=""))

    def send(self, message: wire.ToWorker) -> None:
        """Send a message, whole."""
        data = wire.frame(message)
        with self._sending:
            self._line.sendall(data)

    def ask(self, part: Part) -> None:
        """Have a part stored, and wait until it is. Raises `StaleLease`, or the worker's own refusal."""
        answers: SimpleQueue[wire.Answer] = SimpleQueue()
        with self._sending:
            self._asked += 1
            number = self._asked
            self._answers[number] = answers
        self.send(wire.Checkpointed(number, part))
        answer = answers.get()
        if answer.refusal is not None:
            raise StaleLease(answer.refusal) if answer.stale else Retryable(answer.refusal, code=answer.code)

    def _read(self) -> None:
        try:
            while (message := self._receive()) is not None:
                self._take(message)
        finally:
            self._hung_up()

    def _take(self, message: wire.ToChild) -> None:
        match message:
            case wire.Run(number):
                self._current = (number, Abort())  # here, or an abort that follows at once would find nothing to set
                self.runs.put(message)
            case wire.Abort(number, reason):
                if (current := self._current) is not None and current[0] == number:
                    current[1].set(reason)
            case wire.Answer(number):
                if (answers := self._answers.pop(number, None)) is not None:
                    answers.put(message)

    def _receive(self) -> wire.ToChild | None:
        header = self._exactly(wire.HEADER)
        if header is None:
            return None
        body = self._exactly(wire.checked_length(int.from_bytes(header, "big")))
        return None if body is None else wire.to_child.decode(body)

    def _exactly(self, size: int) -> bytearray | None:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                read = self._line.recv_into(view)
            except OSError:
                return None
            if not read:
                return None
            view = view[read:]
        return data

    def _hung_up(self) -> None:
        """End: the worker closed the socket or is dead, and a job with nobody to report to ends with all it started."""
        if not self.busy:
            self.runs.put(None)  # idle: exit handlers get their turn
            time.sleep(HANG_UP_GRACE)
        os.killpg(0, signal.SIGKILL)


class ChildChannel:
    """The channel of a job that runs in a child process."""

    def __init__(self, connection: Connection, begun: datetime | None = None) -> None:
        self._connection = connection
        self._begun = datetime.now(UTC) if begun is None else begun
        """The store's time when this was made."""
        self._made = time.monotonic()

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def now(self) -> datetime:
        """Return the store's time as far as the worker knows it."""
        return self._begun + timedelta(seconds=time.monotonic() - self._made)

    def progress(self, percent: float, step: str, message: str) -> None:
        """Pass on how far the job is."""
        self._connection.send(wire.Progressed(float(percent), _text(step), _text(message)))

    def stage(self, name: str, event: Event) -> None:
        """Pass on that a stage was entered or left."""
        self._connection.send(wire.Staged(_text(name), event))

    def log(self, level: str, logger: str, message: str, fields: str) -> None:
        """Pass on a line of the job's log; `fields` is JSON text."""
        self._connection.send(wire.Logged(level, _text(logger), _text(message), fields))

    def checkpoint(self, part: Part) -> Awaitable[None]:
        """Write a part: done when this returns."""
        self._connection.ask(part)
        return Stored()

    def transactor(self) -> Transactor:
        """Refuse: what a transaction is made of stays with the worker."""
        raise BadSetting(
            "a job with executor='process' has no transaction: the lease and its connections are the worker's own. "
            "Use executor='async' or 'thread' for it, or continue with a task that has one"
        )


class LogHandler(logging.Handler):
    """Sends what is logged while a job runs to the job's log. A child runs one at a time, so all of it belongs to that one."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(logging.INFO)
        self._connection = connection
        self._channel = ChildChannel(connection)
        self.setFormatter(logging.Formatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on a record; outside of jobs, do as logging does without handlers."""
        if not self._connection.busy:
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                logging.lastResort.handle(record)
            return
        try:
            fields = _json(getattr(record, "holdfast_fields", None))
            self._channel.log(record.levelname.lower(), record.name, self.format(record), fields)
        except Exception:  # noqa: BLE001  as every handler: a line that cannot be logged fails nobody
            self.handleError(record)


def _run(run: wire.Run, connection: Connection, handler: LogHandler) -> wire.End:
    """Run an attempt; whatever happens is an answer."""
    abort = connection.begin(run)
    _attach(handler)
    try:
        task = find_task(run.target)
    except TaskNotImportable as error:
        return wire.Raised(outcome_of(error, traceback=user_traceback(error.__cause__ or error)))
    _attach(handler)  # again: the module may have set up logging anew
    channel = ChildChannel(connection, run.claimed.claimed_at + timedelta(seconds=run.age))
    job = Job(run.claimed, channel, abort, {part.name: part for part in run.parts}, blockers=run.blockers, signals=run.signals)
    reset = current_job.set(job)
    try:
        return _outcome(task, run, job)
    finally:
        job.close()
        current_job.reset(reset)


def _outcome(task: Task[..., Any], run: wire.Run, job: Job) -> wire.End:
    try:
        positional, named = arguments(task, run.claimed.args, job)
    except BadArgs as error:
        return wire.Refused(args=True, reason=error.reason, path=error.path, task=error.task)
    try:
        value = call(task, positional, named, job)
        suspended = overlooked(job, value) if job.unusual else None
    except (Aborted, StaleLease) as error:
        return wire.Interrupted(_text(error.reason) if isinstance(error, Aborted) else None, _text(str(error)))
    except BaseException as error:  # noqa: BLE001  also SystemExit: it is the attempt's outcome
        return wire.Raised(outcome_of_error(task, error))
    if suspended is not None:
        return wire.Raised(suspended)
    if isinstance(value, Continue):
        return wire.Continues(value.job)
    try:
        return wire.Returned(task.results.encode(value))
    except BadResult as error:
        return wire.Refused(args=False, reason=error.reason, path=error.path, task=error.task)


def _attach(handler: LogHandler) -> None:
    """Put the handler in its place, where it is not."""
    root = logging.getLogger()
    if handler not in root.handlers:
        root.addHandler(handler)
        if root.level in (logging.NOTSET, logging.WARNING):
            root.setLevel(logging.INFO)


def _json(fields: object) -> str:
    try:
        return msgspec.json.encode(fields, enc_hook=str).decode() if fields else "{}"
    except (TypeError, ValueError, UnicodeError, HoldfastError):
        return "{}"


def _text(text: object) -> str:
    """Return text that can be sent, whatever a handler gave."""
    return clean(str(text), LOG_LIMIT)


def _pass_over(*_: object) -> None:
    """Do nothing about a signal."""
