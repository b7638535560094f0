"""What handlers leave behind outside the store: lines in a file that only grows, and gates that the test opens."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

URL = "FAULTS_URL"
FOLDER = "FAULTS_FOLDER"
TURN = 0.02
"""Seconds between looks at a gate."""


def folder() -> Path:
    """Where this scenario keeps its trace and its gates."""
    return Path(os.environ[FOLDER])


def note(what: str, **fields: Any) -> None:
    """Append a line. One short write to a file opened for appending: lines of several processes do not mix."""
    line = json.dumps({"what": what, "pid": os.getpid(), "at": time.time(), **fields}) + "\n"
    descriptor = os.open(folder() / "trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def is_open(gate: str) -> bool:
    """Tell whether the test has opened a gate."""
    return (folder() / f"gate-{gate}").exists()


async def opened(gate: str) -> None:
    """Wait until the test opens a gate."""
    while not is_open(gate):  # noqa: ASYNC110  the gate is a file: another process opens it
        await asyncio.sleep(TURN)
