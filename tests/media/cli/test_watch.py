"""`holdfast media watch`: the grid of a title that is made by workers elsewhere, on a terminal and in plain lines."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import sys
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from holdfast_media import VersionState
from holdfast_media.cli.common import Common
from holdfast_media.cli.watch import watch
from tests.media.tasks.films import film, ladder
from tests.media.web.stage import Held
from tests.media.worlds import apart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from holdfast_media import Video
    from tests.media.worlds import World

SMALL = {"pictures": False, "chunk_seconds": 2, "segment_seconds": 2, "attempts": 1, "retry_after": 0.05, "threads": 1}


@asynccontextmanager
async def making(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Video, Held]]:
    """Have a worker of another application make a film that stands still at its second chunk until it is let go."""
    held = Held(monkeypatch, holds={"90p"}, first=1)
    ladder(world.folder / "ladder.toml", ("90p", 90, True))
    film(world.folder / "otters.mp4", seconds=4, sound=False)
    media = world.again(ladder=world.folder / "ladder.toml", **SMALL)
    try:
        async with asyncio.timeout(20), media.app.worker(concurrency=2, poll=0.05):
            video = await media.library.add(world.folder / "otters.mp4", title="Otters")
            while True:
                newest = (await media.library.get(video.id)).newest
                assert newest is not None
                assert newest.state is not VersionState.FAILED, newest.message
                cells = (await media.grid(newest)).cells
                if [one.percent == 100 for one in cells] == [True, False] and cells[1].percent:
                    break
                await asyncio.sleep(0.02)
            yield video, held
    finally:
        held.gate.set()
        await media.close()
        await media.app.close()


class Watching:
    """The command on a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.text = ""
        self._words = words

    async def begin(self) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast", "media", "watch", *self._words, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)

    async def until(self, pattern: str) -> None:
        """Read what is drawn until there is something like this in it."""
        end = time.monotonic() + 30
        while re.search(pattern, self.text, re.DOTALL) is None:
            assert time.monotonic() < end, self.text
            self._read()
            await asyncio.sleep(0.02)

    async def end(self) -> int:
        """Return how it ended."""
        while self.process.returncode is None:
            self._read()
            await asyncio.sleep(0.02)
        self._read()
        os.close(self._ours)
        return self.process.returncode

    def _read(self) -> None:
        with suppress(BlockingIOError, OSError):  # nothing new, or it has ended
            while data := os.read(self._ours, 65536):
                self.text += data.decode()


async def test_the_grid_is_seen_from_elsewhere_and_fills(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    common = Common(url=world.url, out=str(world.folder / "media"))

    async def asked(*words: Any, **options: Any) -> tuple[int, str, str]:
        codes: list[int] = []
        capsys.readouterr()
        await apart(lambda: codes.append(watch(*words, **{"common": common, **options})))
        printed = capsys.readouterr()
        return codes[0], printed.out, printed.err

    assert await asked() == (0, "", "nothing is being made\n")
    async with making(world, monkeypatch) as (video, held):
        assert await asked(once=True) == (0, f"{video.id}  processing  1/2 encodes (90p 1/2)  Otters\n", "")
        watching = Watching(video.id[:18], "--url", world.url, "--out", str(world.folder / "media"))
        await watching.begin()
        try:
            await watching.until(r"Otters  6\d %  1/2 encodes.*90p.*█[^·]*[▂▃].*its worker died")
            held.gate.set()
            await watching.until(rf"{video.id}  ready")
        finally:
            held.gate.set()
            code = await watching.end()
    assert code == 0, watching.text
    last = watching.text.rpartition("Otters  100 %  2/2 encodes")[2]
    assert re.search(r"90p.*█.*█.*plays.*ready  2/2 encodes \(90p 2/2\)  Otters", last, re.DOTALL), watching.text
    told = await asked(video.id)
    assert told == (0, f"{video.id}  ready  2/2 encodes (90p 2/2)  Otters\n", "")


async def test_a_title_that_fails_ends_the_watching_and_says_why(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    common = Common(url=world.url, out=str(world.folder / "media"))
    (tmp_path / "bad.mkv").write_bytes(b"no film")
    media = world.again(**SMALL)
    video = await media.library.add(tmp_path / "bad.mkv", title="Bad\x1b[31m")
    codes: list[int] = []
    watching = asyncio.ensure_future(apart(lambda: codes.append(watch(common=common))))
    out = ""
    async with asyncio.timeout(60):
        while "waiting for a worker" not in out:
            out += capsys.readouterr().out
            await asyncio.sleep(0.02)
        async with media.app.worker(concurrency=1, poll=0.05):
            await watching
    printed = capsys.readouterr()
    assert codes == [1]
    assert f"{video.id}  failed  " in printed.out
    assert "\x1b" not in out + printed.out + printed.err
    assert re.search(r"error: Bad.*INPUT_.*holdfast media retry", printed.err), printed.err
    await media.close()
    await media.app.close()
