"""The PostgreSQL store: for fleets."""

from holdfast.errors import MissingExtra

try:
    import asyncpg as _asyncpg  # noqa: F401  asked for here, once, for every module of the adapter
except ImportError as missing:
    raise MissingExtra("postgres", "a postgresql:// store", "asyncpg") from missing

from holdfast.store.postgres.schema import migrate
from holdfast.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "migrate"]
