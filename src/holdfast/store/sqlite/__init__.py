"""The SQLite store: jobs in one file, shared by the processes of one machine.

Start with `store`: each operation is a plain function of the section modules (`producing`, `working`, `settling`, `signaling`,
`housekeeping`, `steering`, `deleting`, `looking`, `chaining`), run in a thread under one transaction. `moving` is how a job
changes its state. The same functions run in a handler's transaction (`transaction`) and in one that was brought (`caller`).
"""

from holdfast.store.sqlite.connection import known_flaws
from holdfast.store.sqlite.store import SqliteStore, migrate

__all__ = ["SqliteStore", "known_flaws", "migrate"]
