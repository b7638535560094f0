"""The SQLite store: jobs in one file, shared by the processes of one machine.

Start with `store`: each operation is a plain function of the section modules (`producing`, `working`, `settling`,
`housekeeping`, `steering`, `looking`), run in a thread under one transaction. `moving` is how a job changes its state.
"""

from holdfast.store.sqlite.connection import known_flaws
from holdfast.store.sqlite.store import SqliteStore, migrate

__all__ = ["SqliteStore", "known_flaws", "migrate"]
