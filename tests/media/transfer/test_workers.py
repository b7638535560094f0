"""Real encoders: processes that know a server and a key, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast_media.storage.local import LocalStorage
from tests.media.transfer.encoder_jobs import encode
from tests.media.transfer.served import serving

if TYPE_CHECKING:
    from pathlib import Path

ROOT = __file__.rpartition("/tests/")[0]
MEBI = 2**20


@pytest.mark.row("1")
def test_a_killed_encoder_costs_the_parts_that_it_had_not_sent(tmp_path: Path) -> None:
    """Killed after half of its upload: the next one goes on with the rest, and what is published is whole."""
    storage = LocalStorage(tmp_path / "storage")
    source = tmp_path / "source"
    source.write_bytes(os.urandom(MEBI))
    storage.put("in/film", source)
    database = f"sqlite:///{tmp_path / 'jobs.db'}"
    with serving(storage, tmp_path / "uploads", url=database, housekeeping=True) as encoders:
        told = {"MEDIA_STORAGE": encoders.url, "HOLDFAST_KEY": encoders.key, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
        environment = os.environ | told
        command = [sys.executable, "-m", "holdfast", "worker", "tests.media.transfer.encoder_jobs:app"]
        command += ["--server", encoders.url, "--queues", "video"]
        handle = asyncio.run(enqueued(database))

        def worker() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE)

        first = worker()
        try:
            deadline = time.monotonic() + 60
            while not (tmp_path / "half").exists():
                assert first.poll() is None, first.stderr and first.stderr.read()
                assert time.monotonic() < deadline, "it did not come to half of it in time"
                time.sleep(0.01)
        finally:
            first.send_signal(signal.SIGKILL)
            first.communicate()
        assert storage.head("out/film") is None
        second = worker()
        try:
            attempt, sent = asyncio.run(outcome(database, handle))
        finally:
            second.terminate()
            second.communicate()
    # the last of several, where the machine stood still for longer than a lease meanwhile
    assert attempt >= 2
    assert sent == 4 if attempt == 2 else sent <= 4, "only the parts were sent that were not there"
    assert storage.check("out/film")
    assert list((tmp_path / "uploads").iterdir()) == []


async def enqueued(url: str) -> str:
    async with Holdfast(url) as app:
        declared = app.task(name="encode", queue="video", lease=4.0, retry=5)(encode.function)
        return str((await declared.enqueue("in/film", "out")).id)


async def outcome(url: str, job_id: str) -> list[int]:
    async with Holdfast(url) as app:
        result: list[int] = await app.job(UUID(job_id)).result(timeout=60)
        return result
