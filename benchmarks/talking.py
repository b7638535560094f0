"""How a program that another one has started (see programs.py) talks to it: lines of JSON, until its input ends."""

from __future__ import annotations

import asyncio
import json
import sys


def say(**facts: float) -> None:
    """Print one line of JSON."""
    print(json.dumps(facts), flush=True)


async def told_to_end() -> None:
    """Wait until standard input ends: that is how a program is told to end."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
