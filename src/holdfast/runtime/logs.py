"""Log records made while a job runs belong to it: they are kept with the job, and pass on like any other."""

from __future__ import annotations

import contextlib
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.tasks.context import Job, current_job

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "holdfast_fields", "holdfast_job", "taskName"}


if TYPE_CHECKING:
    from collections.abc import Iterator


class JobLogHandler(logging.Handler):
    """Sends records to the log of the job in whose context they were made. Added to the root logger by a running worker."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on a record that belongs to a job."""
        job = job_of(record)
        if job is None or record.name.startswith("holdfast.worker"):
            return
        try:
            job.channel.log(record.levelname.lower(), record.name, text_of(record), fields_text(record))
        except Exception:  # noqa: BLE001  a log line that cannot be kept must not hurt the job that wrote it
            self.handleError(record)


_HANDLER = JobLogHandler(logging.INFO)
_LOCK = threading.Lock()
_users = 0


@contextmanager
def kept_logs() -> Iterator[None]:
    """Have the lines that jobs log kept with them inside this block: one handler for all workers of the process."""
    global _users  # noqa: PLW0603  the root logger is one for the whole process as well
    root, own = logging.getLogger(), logging.getLogger("holdfast.job")
    quiet = own.level == logging.NOTSET
    with _LOCK:
        _users += 1
        root.addHandler(_HANDLER)
        if quiet:
            own.setLevel(logging.INFO)
    try:
        yield
    finally:
        with _LOCK:
            _users -= 1
            if not _users:
                root.removeHandler(_HANDLER)
                if quiet:
                    own.setLevel(logging.NOTSET)


def job_of(record: logging.LogRecord) -> Job | None:
    """Return the job a record belongs to."""
    job = getattr(record, "holdfast_job", None)
    return job if isinstance(job, Job) else current_job.get()


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what was logged besides the message: the fields of `job.log`, and `extra=`."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    return {**extra, **getattr(record, "holdfast_fields", {})}


def text_of(record: logging.LogRecord) -> str:
    """Return the message of a record, with its traceback where it has one."""
    text = record.getMessage()
    if record.exc_info:
        text = f"{text}\n{logging.Formatter().formatException(record.exc_info)}"
    return text


def fields_text(record: logging.LogRecord) -> str:
    """Return the fields of a record as JSON text; what JSON does not know is written as Python would show it."""
    fields = fields_of(record)
    if not fields:
        return "{}"
    with contextlib.suppress(Exception):
        return msgspec.json.encode(fields, enc_hook=repr).decode()
    return "{}"
