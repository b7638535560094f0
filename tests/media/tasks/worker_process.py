"""A worker in a process of its own, to be killed. It notes every encode that it begins."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from holdfast_media.tasks import encoding
from holdfast_media.transcode import encode_chunk
from tests.media.tasks.making import made_on


def main(url: str, folder: str, films: str, lease: str) -> None:
    notes = Path(folder) / "encodes.txt"

    def noted(source: Any, plan: Any, rendition: Any, chunk: Any, target: Any, **options: Any) -> Any:
        with notes.open("a") as file:
            file.write(f"{os.getpid()} {rendition.name} {chunk.index}\n")
        return encode_chunk(source, plan, rendition, chunk, target, **options)

    vars(encoding)["encode_chunk"] = noted
    studio = made_on(url, Path(folder), Path(films), lease=float(lease), attempts=20)
    asyncio.run(studio.app.worker(concurrency=1, poll=0.2).serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
