"""A worker in a process of its own, to be killed. It notes that it is up, and each encode, package and check that it begins."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast_media.tasks import encoding, finalizing, packaging
from holdfast_media.tasks.artifacts import publish_package
from holdfast_media.transcode import encode_chunks, verify
from tests.media.tasks.making import made_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DOOMED = 60.0
"""Seconds that a worker waits for its end where a test kills everybody who comes there for the first time."""


class Notes:
    """A file with a line for everything that is begun, by whom."""

    def __init__(self, path: Path, *, deadly: bool) -> None:
        self._path = path
        self._deadly = deadly

    def begin(self, what: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{os.getpid()} {what}\n")

    def end_here(self, what: str) -> None:
        """Begin something, and wait for the end where nobody has begun it before."""
        first = not self._path.exists() or f" {what}\n" not in self._path.read_text()
        self.begin(what)
        if first and self._deadly:
            threading.Event().wait(DOOMED)


def main(url: str, folder: str, films: str, lease: str, *ways: str) -> None:
    notes = Notes(Path(folder) / "begun.txt", deadly="deadly" in ways)

    def encode(source: Any, plan: Any, renditions: Any, chunk: Any, targets: Any, **options: Any) -> Any:
        notes.begin(f"encode {'+'.join(one.name for one in renditions)} {chunk.index}")
        return encode_chunks(source, plan, renditions, chunk, targets, **options)

    def publish(context: Any, prefix: str, work: Path, facts: Any, **options: Any) -> None:
        publish_package(context, prefix, work, facts, **options)
        notes.end_here(f"package {facts.name}")  # all of it is there, and the library does not know it yet

    def check(*args: Any, **options: Any) -> Any:
        notes.end_here("finalize")
        return verify(*args, **options)

    vars(encoding)["encode_chunks"] = encode
    vars(packaging)["publish_package"] = publish
    vars(finalizing)["verify"] = check
    studio = made_on(url, Path(folder), Path(films), lease=float(lease), attempts=20, together="together" in ways, threads=1)

    @studio.app.lifespan
    @asynccontextmanager
    async def up() -> AsyncIterator[None]:
        notes.begin("up")
        yield

    asyncio.run(studio.app.worker(concurrency=1, poll=0.2).serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
