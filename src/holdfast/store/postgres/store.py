"""`PostgresStore`: the port on PostgreSQL. Each operation is one call of a server function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.store.postgres import schema as schemas
from holdfast.store.postgres.access import Access
from holdfast.store.postgres.chains import Chains
from holdfast.store.postgres.figures import Figures
from holdfast.store.postgres.holding import Holding
from holdfast.store.postgres.housekeeping import Housekeeping
from holdfast.store.postgres.limiting import Limits
from holdfast.store.postgres.looking import Looking
from holdfast.store.postgres.registry import Registry
from holdfast.store.postgres.scheduling import Scheduling
from holdfast.store.postgres.steering import Steering
from holdfast.store.postgres.transacting import Transacting

if TYPE_CHECKING:
    from holdfast.store.postgres.connection import Connection


class PostgresStore(
    Scheduling, Registry, Holding, Housekeeping, Steering, Limits, Access, Figures, Chains, Transacting, Looking
):
    """Jobs in a PostgreSQL schema of its own.

    `create=False` never creates a missing schema. `prepare=False` works through PgBouncer in transaction mode without
    prepared statements. `timeout` bounds every statement: keep it below the shortest lease. `channel` is where transactions
    of handlers tell their hints.
    """

    async def open(self) -> None:
        """Connect and check the schema."""
        await self._db.open()
        try:
            await self._db.in_transaction(
                lambda connection: schemas.check(connection, self._schema, self._db.target, create=self._create)
            )
        except BaseException:
            await self._db.close()
            raise

    async def close(self) -> None:
        """Close the connections, those of handlers' transactions too."""
        await self._handlers.close()
        await self._db.close()

    # testing

    async def rewind(self, seconds: float) -> None:
        """Make everything stored older."""
        columns = await self._db.fetch(
            "SELECT table_name, array_agg(column_name::text) FROM information_schema.columns "
            "WHERE table_schema = $1 AND data_type = 'timestamp with time zone' GROUP BY table_name",
            self._schema,
        )

        async def work(connection: Connection) -> None:
            # what keeps lines of the audit log from being changed stands aside for this
            guarded = await connection.fetchval(f"SELECT EXISTS (SELECT FROM {self._name}.audit)")
            if guarded:
                await connection.execute(f"ALTER TABLE {self._name}.audit DISABLE TRIGGER audit_stands")
            for table, names in columns:
                moved = ", ".join(f"{name} = {name} - $1 * interval '1 s'" for name in names)
                await connection.execute(f"UPDATE {self._name}.{table} SET {moved}", seconds)
            if guarded:
                await connection.execute(f"ALTER TABLE {self._name}.audit ENABLE TRIGGER audit_stands")
            await connection.execute(f"UPDATE {self._name}.meta SET rewound = rewound + $1 * interval '1 s'", seconds)

        await self._db.in_transaction(work)
        self._forget()
