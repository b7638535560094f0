"""Tasks that child processes import."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from holdfast.core.classify import Verdict
from holdfast.errors import Cancel, Fatal, Reschedule, Retryable
from holdfast.tasks.context import Job, current_job
from tests.runtime.executing import task


@task
def pid() -> int:
    return os.getpid()


@task
def add(left: int, right: int = 1) -> int:
    return left + right


@task
async def add_slowly(left: int, right: int) -> int:
    await asyncio.sleep(0.001)
    return left + right


def _sized(text: str) -> str:
    return text + text


sized = task(_sized, max_bytes=64 * 2**20)


@task
def huge() -> str:
    return "x" * 100_000_000


@task
def unstorable() -> Any:
    return object()


@task
def who(job: Job) -> list[Any]:
    same = current_job.get() is job
    return [str(job.id), job.attempt, same, str(job._claimed.token)]


@task
def prints() -> None:
    print("to stdout")  # noqa: T201
    print("to stderr", file=sys.stderr)  # noqa: T201
    os.write(1, b"\x00\xff raw\n")
    sys.stdout.write("no newline")


@task
def reports(job: Job) -> None:
    with job.stage("fetch"):
        job.progress(50, "half \udc80")
    job.log.info("by the job", width=1920)
    logging.getLogger("library").warning("by %s", "a library")
    logging.getLogger("library").debug("not wanted")
    thread = threading.Thread(target=logging.getLogger("thread").info, args=("by a thread",))
    thread.start()
    thread.join()
    try:
        int("inner")
    except ValueError:
        job.log.exception("with traceback")


@task
def checkpoints(job: Job) -> list[Any]:
    before = job.done("first"), job.data("first")
    job.checkpoint("second", data={"n": 2})
    return [*before, job.done("second")]


@task
async def checkpoints_async(job: Job) -> bool:
    await job.checkpoint("only", data=[1])
    return job.done("only")


@task
def waits_for_abort(job: Job) -> None:
    job.progress(1)
    job.abort.wait()
    job.abort.check()


@task
def loops_until_abort(job: Job) -> str:
    job.progress(1)
    while not job.abort.is_set():
        time.sleep(0.001)
    return str(job.abort.reason)


@task
def loops_for_ever(job: Job) -> None:
    job.progress(os.getpid(), str(os.getpid()))
    while True:
        pass


@task
def starts_a_program_and_waits(job: Job) -> None:
    program = subprocess.Popen(["sleep", "1000"])
    job.progress(1, str(program.pid))
    program.wait()


@task
def ignores_signals(job: Job) -> list[Any]:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    with subprocess.Popen(["sleep", "1000"]) as program:
        program.terminate()
        return [program.wait()]


@task
def segfaults(job: Job) -> None:
    job.log.info("last words")
    ctypes.string_at(0)


@task
def kills_itself() -> None:
    print("about to go", file=sys.stderr, flush=True)  # noqa: T201
    os.kill(os.getpid(), signal.SIGKILL)


@task
def exits_hard() -> None:
    os._exit(7)


@task
def exits_softly() -> None:
    sys.exit(3)


@task
def eats_memory() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    return len(bytearray(2**34))


@task
def closes_everything() -> None:
    os.closerange(3, 100)


@task
def leaves_a_process_with_the_socket() -> None:
    read, write = os.pipe()
    if (left := os.fork()) == 0:
        os.setsid()
        os.write(write, b"-")
        signal.pause()
    os.read(read, 1)
    print(left, file=sys.stderr, flush=True)  # noqa: T201
    os._exit(9)


@task
def raises(kind: str) -> None:
    match kind:
        case "stop":
            raise StopIteration("enough")
        case "fatal":
            raise Fatal("no use", code="NO_USE")
        case "retryable":
            raise Retryable("again", code="AGAIN")
        case "reschedule":
            raise Reschedule(after=90)
        case "cancel":
            raise Cancel("not needed")
        case "cancelled":
            raise asyncio.CancelledError
        case "huge":
            raise ValueError("y" * 50_000_000)
        case "unprintable":
            raise UnprintableError
        case _:
            raise KeyError(kind)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be read")


def _classified() -> None:
    raise KeyError("classified")


classified = task(_classified, codes={"KeyError": Verdict.FATAL})
