"""Holdfast on PostgreSQL. See protocol.py for what it is asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import ended_in
import protocol

if TYPE_CHECKING:
    import argparse


async def watch(asked: argparse.Namespace) -> None:
    """Wait until all jobs are archived; the archive has when each of them ended."""
    await ended_in.watch(asked, "holdfast.archive")


if __name__ == "__main__":
    asked = protocol.arguments()
    os.environ["HOLDFAST_CONTEST_URL"] = asked.url
    import holdfast_common

    holdfast_common.run(asked, watch)
