"""Programs that stand in for ffmpeg and do what a real one seldom does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def fake(folder: Path, code: str) -> Path:
    """Return a program that runs this Python code."""
    program = folder / "ffmpeg-fake"
    program.write_text(f"#!{sys.executable} -S\nimport os, signal, sys, time\n{code}\n")
    program.chmod(0o755)
    return program
