"""A worker process that waits for its server less long than is usual: `python -m tests.faults.impatient MODULE OPTIONS`."""

from __future__ import annotations

from typing import Any

from holdfast.notify.postgres import PostgresNotifier
from holdfast.store.postgres import PostgresStore
from tests.faults.work import main

PATIENCE = 1.5
"""Seconds for a statement; 30 otherwise."""
PROBE_EVERY = 0.5
"""Seconds after which a connection that listens and hears nothing is tried; 15 otherwise."""


def hurry(kind: Any, **defaults: float) -> None:
    """Give what nobody says otherwise another value."""
    kind.__init__.__kwdefaults__.update(defaults)


if __name__ == "__main__":
    hurry(PostgresStore, timeout=PATIENCE)
    hurry(PostgresNotifier, timeout=PATIENCE, probe_every=PROBE_EVERY)
    main()
