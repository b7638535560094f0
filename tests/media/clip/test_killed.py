"""A worker is killed in the middle of a clip: another one finishes it, once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.media.clip import films
from tests.media.clip.conftest import build
from tests.media.clip.test_cutting import ended
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]


def worker(home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.media.clip.crew", str(home)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)


async def there(condition: Callable[[], object]) -> None:
    async def look() -> bool:
        return bool(condition())

    await until(look, 40)


async def test_a_killed_worker_costs_an_attempt_and_nothing_else(tmp_path: Path, film: Path) -> None:
    """The first encoder never ends. Its worker is killed; the encoder dies with it, and another worker finishes."""
    pids = tmp_path / "pids"
    program = tmp_path / "ffmpeg"
    program.write_text(
        f'#!/bin/sh\nif [ ! -e "{pids}" ]; then echo $$ > "{pids}.new"; mv "{pids}.new" "{pids}"; exec sleep 300; fi\n'
        f'exec "{films.program()}" "$@"\n'
    )
    program.chmod(0o755)
    studio = build(tmp_path, lease=5.0)
    handle = await studio.task.enqueue(str(film), 1.3, 3.3)
    crew = [worker(tmp_path)]
    try:
        await there(pids.exists)
        crew[0].send_signal(signal.SIGKILL)
        crew[0].wait()
        encoder = int(pids.read_text())
        assert ended([encoder]), "the encoder outlived its worker"
        assert studio.media() == []
        assert studio.left() != [], "a killed worker cannot tidy up"
        crew.append(worker(tmp_path))
        result = await handle.result(timeout=60)
    finally:
        for process in crew:
            process.kill()
            process.wait()
    assert films.numbers(studio.file_of(result)) == list(range(39, 99))
    assert len(studio.media()) == 1
    report = await handle.report()
    assert len(report.attempts) == 2
    assert studio.left() == [], "what the killed attempt has left is gone with the job"
    await studio.app.close()
