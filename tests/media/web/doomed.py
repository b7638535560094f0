"""A worker in a process of its own, to be killed: it stands still in the midst of whatever it encodes."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast_media.ffmpeg import Progress
from holdfast_media.tasks import encoding
from tests.media.web.making import Made

NAME = "cellar-9"
SHARE = 0.5


def main(folder: str, films: str, lease: str) -> None:
    def stand_still(*_: Any, **options: Any) -> Any:
        options["on_progress"](Progress(fraction=SHARE, seconds=0.0, frames=0, speed=None, remaining=None))
        threading.Event().wait()

    vars(encoding)["encode_chunks"] = stand_still
    made = Made(Path(folder))
    app = Holdfast(made.url)
    made.media(app, Path(films), lease=float(lease))
    asyncio.run(app.worker(name=NAME, concurrency=2, poll=0.1).serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
