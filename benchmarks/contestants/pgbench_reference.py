"""The reference: PostgreSQL's own pgbench runs the frozen script of reference/. See protocol.py for what it is asked.

It has no enqueue worth the name: `bulk` fills the tables, and is not compared with anybody's.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import asyncpg
import ended_in
import protocol

if TYPE_CHECKING:
    import argparse

REFERENCE = Path(__file__).parent.parent / "reference"
CONNECTIONS = 2
LONGEST = 600
"""Seconds after which pgbench ends by itself."""


async def prepare(asked: argparse.Namespace) -> None:
    """Make the tables."""
    await _execute(asked.url, (REFERENCE / "schema.sql").read_text())
    protocol.say(prepared=True)


async def bulk(asked: argparse.Namespace) -> None:
    """Fill the tables."""
    fill = f"""
        WITH created AS (
            INSERT INTO job (id, task, args)
            SELECT uuidv7(), 'noop', '{{"number": ' || number || '}}' FROM generate_series(1, {asked.jobs}) AS number
            RETURNING id
        )
        INSERT INTO ready (lane, seq, job_id) SELECT 1, row_number() OVER (ORDER BY id), id FROM created;
    """
    await protocol.timed(_execute(asked.url, fill), asked.jobs)


async def work(asked: argparse.Namespace) -> None:
    """Run the script on two connections until standard input ends."""
    program = os.environ.get("HOLDFAST_BENCH_PGBENCH") or shutil.which("pgbench")
    if program is None:
        raise SystemExit("pgbench not found beside the server's programs or on PATH. Fix: apt install postgresql-contrib")
    place = urlsplit(asked.url)
    where = ["-h", str(place.hostname), "-p", str(place.port), "-U", str(place.username), place.path.removeprefix("/")]
    how = ["-n", "-M", "prepared", "-D", "mark=0", "-c", str(CONNECTIONS), "-j", str(CONNECTIONS), "-T", str(LONGEST)]
    ended = protocol.input_ended()
    process = await asyncio.create_subprocess_exec(
        program,
        *how,
        "-f",
        str(REFERENCE / "claim_settle.sql"),
        *where,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        env=os.environ | {"PGSSLMODE": "disable"},  # on this machine alone, and sometimes read on its way
    )
    protocol.say(ready=True)
    waits = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(ended.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if process.returncode is not None:
        raise SystemExit(f"pgbench ended by itself with exit code {process.returncode}")
    process.send_signal(signal.SIGINT)
    await process.wait()
    waits[1].cancel()
    protocol.say(ended=True)


async def watch(asked: argparse.Namespace) -> None:
    """Wait until all jobs are done; the table has when each of them ended."""
    await ended_in.watch(asked, "done")


async def _execute(url: str, statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


if __name__ == "__main__":
    protocol.run((prepare, bulk, work, watch))
