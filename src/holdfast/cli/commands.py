"""The commands, by name."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

from cyclopts import App, Parameter

import holdfast
from holdfast.connect import migrate as migrate_store

app = App(name="holdfast", help="Durable jobs for Python.", version=holdfast.__version__)


@app.command
def migrate(url: str, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """Create the schema of a store, or bring it up to date.

    Safe to run at any time and from several places at once: they take turns, and a schema that is up to date is left
    alone. Workers of the version before may go on running meanwhile.

    Example: holdfast migrate postgresql://user@host/database

    Parameters
    ----------
    url
        The store: postgresql://user@host/database, sqlite:///jobs.db (relative) or sqlite:////var/lib/jobs.db (absolute).
        `?schema=name` names another PostgreSQL schema than "holdfast".
    as_json
        Print the result as JSON.
    """
    before, after = asyncio.run(migrate_store(url))
    if as_json:
        print(json.dumps({"before": before, "after": after}))
    elif before == after:
        print(f"up to date: version {after}")
    elif before == 0:
        print(f"created: version {after}")
    else:
        print(f"upgraded: version {before} -> {after}")


def run() -> None:
    """Parse the command line and run what it names."""
    app()
