"""Chains as people and waiters see them: where their last step stands. Each function runs in one read transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.store.port import BlockerView, ChainPage, ChainView
from holdfast.store.sqlite._sql import in_chunks, sql
from holdfast.store.sqlite.looking import in_states, search, state_of
from holdfast.store.sqlite.values import error_of, moment, moment_or_none, names_of, uuid_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from holdfast.store.port import JobFilter


def chains(connection: sqlite3.Connection, chain_ids: Sequence[UUID]) -> list[ChainView | None]:
    """Return chains by their first jobs, in the order asked for."""
    views = _views(connection, [chain_id.bytes for chain_id in chain_ids])
    return [views.get(chain_id.bytes) for chain_id in chain_ids]


def find_chains(
    connection: sqlite3.Connection, where: JobFilter, limit: int, after: UUID | None, *, searched: int
) -> ChainPage:
    """Return chains newest first from the cursor on, having looked at no more than `searched`."""
    if limit <= 0 or (where.states is not None and not where.states):
        return ChainPage([])
    found, after, searched_all = search(connection, candidates(where), where, limit, after, searched=searched)
    views = _views(connection, found)
    return ChainPage([views[chain] for chain in found], after, searched_all)


def candidates(where: JobFilter) -> str:
    """Return the statement that gives the chains newest first, each with whether it matches the filter."""
    stands = "1" if where.states is None else in_states(where.states, "chain.step")
    return sql("find_chains.candidates").replace("{matches}", sql("find.matches")).replace("{stands}", stands)


def blockers(connection: sqlite3.Connection, job_id: UUID) -> list[BlockerView]:
    """Return the chains a job was to wait for, as they stand, in the order they were named."""
    return [
        BlockerView(
            chain_id=uuid_of(row["blocker_id"]),
            state=state_of(row),
            task=row["task"],
            step_task=row["step_task"],
            result=row["result"],
            error=error_of(row["code"], row["message"], row["traceback"]),
        )
        if row["step"] is not None
        else BlockerView(chain_id=uuid_of(row["blocker_id"]), state=None)
        for row in _rows(connection, sql("blockers.blockers"), [job_id.bytes])
    ]


def _views(connection: sqlite3.Connection, ids: Sequence[bytes]) -> dict[bytes, ChainView]:
    return {
        row["id"]: ChainView(
            id=uuid_of(row["id"]),
            task=row["task"],
            queue=row["queue"],
            created_at=moment(row["created_at"]),
            key=row["key"],
            tags=names_of(row["tags"]),
            steps=row["steps"],
            step=uuid_of(row["step"]),
            step_task=row["step_task"],
            state=state_of(row),
            finished_at=moment_or_none(row["finished_at"]),
            result=row["result"],
            error=error_of(row["code"], row["message"], row["traceback"]),
        )
        for statement, chunk in in_chunks("chains.chains", ids)
        for row in _rows(connection, statement, chunk)
    }


def _rows(connection: sqlite3.Connection, statement: str, values: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    cursor = connection.execute(statement, values)
    columns = [column[0] for column in cursor.description]
    for row in cursor:
        yield dict(zip(columns, row, strict=True))
