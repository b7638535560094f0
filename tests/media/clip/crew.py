"""A worker as a process of its own: `python -m tests.media.clip.crew HOME`. Made to be killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.media.clip.conftest import build


async def main(home: Path) -> None:
    program = home / "ffmpeg"
    studio = build(home, lease=5.0, ffmpeg=program if program.exists() else None)
    await studio.app.worker(poll=0.05).serve()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
