"""A worker process with a single connection for all that is not the heartbeat: `python -m tests.faults.scarce`."""

from __future__ import annotations

from holdfast.store.postgres import PostgresStore
from tests.faults.impatient import hurry
from tests.faults.work import main

if __name__ == "__main__":
    hurry(PostgresStore, pool_size=1)  # 4 otherwise; to a file there is never more than one
    main()
