"""A worker process answers probes, also while a handler has its event loop in hand."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Shop

PATIENCE = 60.0
APP = """
import time
from pathlib import Path
from holdfast import Holdfast
app = Holdfast({url!r})

@app.task(name="block")
async def block() -> None:
    while not Path("gate").exists():
        time.sleep(0.01)
"""


def got(url: str) -> tuple[int, Any]:
    """Return status and body."""
    try:
        with urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_handler_that_blocks_the_event_loop_makes_live_fail_until_it_ends(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "blocking.py").write_text(APP.format(url=shop.url))
    command = [sys.executable, "-m", "holdfast", "worker", "blocking:app", "--health", "0"]
    log = tmp_path / "log"
    with log.open("wb") as output, subprocess.Popen(command, cwd=tmp_path, stderr=output) as process:
        try:
            asyncio.run(_blocked_and_freed(shop, tmp_path))
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


async def _blocked_and_freed(shop: Shop, folder: Path) -> None:
    found: list[str] = []

    async def told() -> bool:
        found[:] = re.findall(r"health at (http://127\.0\.0\.1:\d+)/", (folder / "log").read_text())
        return bool(found)

    async def is_live() -> bool:
        return (await asyncio.to_thread(got, f"{found[0]}/health/live"))[0] == 200

    async def is_ready() -> bool:
        return (await asyncio.to_thread(got, f"{found[0]}/health/ready"))[0] == 200

    async def is_blocked() -> bool:
        status, health = await asyncio.to_thread(got, f"{found[0]}/health/live")
        (loop,) = (check for check in health["checks"] if check["name"] == "event_loop")
        return status == 503 and not loop["ok"] and loop["detail"].startswith("has been blocked for")

    await until(told, PATIENCE)
    await until(is_ready, PATIENCE)
    assert await is_live()
    await asyncio.to_thread(shop.enqueue, task="block", args="{}")
    await until(is_blocked, PATIENCE)
    assert await is_ready(), "the store answers its heartbeat all the same"
    (folder / "gate").touch()
    await until(is_live, PATIENCE)
