"""What may be removed, and what goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.states import Event, legal
from holdfast.store.port import Action, Answer, ChainsDeleted, audit_line
from holdfast.store.sqlite._sql import in_chunks, sql
from holdfast.store.sqlite.access import audit, audit_batch
from holdfast.store.sqlite.moving import locate, remove, remove_chain, steps
from holdfast.store.sqlite.values import uuid_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from holdfast.store.sqlite.writing import Writing


def delete(writing: Writing, job_ids: Sequence[UUID], by: str) -> list[Answer]:
    """Remove jobs and all their records; see the port."""
    answers = [_delete_one(writing, job_id.bytes) for job_id in job_ids]
    return audit_batch(writing, Action.DELETE, job_ids, answers, by=by)


def _delete_one(writing: Writing, job_id: bytes) -> Answer:
    execute = writing.connection.execute
    job = locate(writing, job_id)
    if job is None:
        return Answer.NOT_FOUND
    if not legal(job.state, Event.DELETE):
        return Answer.REFUSED
    if job.chain_id is not None and execute(sql("moving.chain"), (job.chain_id,)).fetchone()[1] > 1:
        return Answer.CHAINED
    if execute(sql("delete.dependents"), (job_id,)).fetchone() is not None:
        return Answer.NEEDED
    if job.chain_id is None:
        remove(writing, job)
    else:
        remove_chain(writing, job.chain_id)
    return Answer.DONE


def delete_chains(writing: Writing, chain_ids: Sequence[UUID], *, cascade: bool, by: str) -> ChainsDeleted:
    """Remove chains with all their steps, or nothing; see the port."""
    chains = {chain_id.bytes: steps(writing, chain_id.bytes) for chain_id in chain_ids}
    for chain, its_steps in chains.items():
        if not its_steps:
            return ChainsDeleted(answer=Answer.NOT_FOUND, chain=uuid_of(chain))
    if cascade:
        _add_blockers(writing, chains)
    going = {step for its_steps in chains.values() for step in its_steps}
    for chain in chains:
        for (dependent,) in writing.connection.execute(sql("delete.dependents"), (chain,)):
            if dependent not in going:
                return ChainsDeleted(answer=Answer.NEEDED, chain=uuid_of(chain), needed_by=uuid_of(dependent))
    gone = [step for chain in chains for step in remove_chain(writing, chain)]
    if chain_ids:
        audit(writing, audit_line(Action.DELETE_CHAINS, chain_ids, by=by, detail=f"{len(gone)} jobs"))
    return ChainsDeleted(
        answer=Answer.DONE,
        chains=tuple(uuid_of(chain) for chain in chains),
        jobs=tuple(uuid_of(step) for step in gone),
    )


def _add_blockers(writing: Writing, chains: dict[bytes, list[bytes]]) -> None:
    """Add the chains that these waited for, the chains those waited for, and so on, as far as they are there."""
    waiting = [step for its_steps in chains.values() for step in its_steps]
    while waiting:
        named = {
            blocker
            for statement, ids in in_chunks("delete.blockers", waiting)
            for (blocker,) in writing.connection.execute(statement, ids)
        }
        found = {chain: its_steps for chain in sorted(named - chains.keys()) if (its_steps := steps(writing, chain))}
        chains.update(found)
        waiting = [step for its_steps in found.values() for step in its_steps]
