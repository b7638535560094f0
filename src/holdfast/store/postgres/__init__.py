"""The PostgreSQL store: for fleets."""

from holdfast.store.postgres.schema import migrate
from holdfast.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "migrate"]
