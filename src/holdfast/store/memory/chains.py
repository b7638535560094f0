"""Chains as wholes: looking at them, removing them, and what waiters read of them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.memory.handle import Handle
from holdfast.store.memory.looking import matches, there
from holdfast.store.port import Action, Answer, BlockerView, ChainPage, ChainsDeleted, ChainView, audit_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from holdfast.store.memory.records import Record
    from holdfast.store.port import JobFilter


class Chains(Handle):
    """What the port says about chains."""

    async def chains(self, chain_ids: Sequence[UUID]) -> list[ChainView | None]:
        """Return chains by their first jobs, all as of one moment."""
        lasts = [(chain_id, self.data.last_step(chain_id)) for chain_id in chain_ids]
        return [None if last is None else self._chain_view(chain_id, last) for chain_id, last in lasts]

    async def find_chains(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> ChainPage:
        """Return chains newest first from the cursor on. Memory searches them all."""
        of_first = msgspec.structs.replace(where, states=None)
        older = sorted((chain_id for chain_id in self.data.chains if after is None or chain_id < after), reverse=True)
        matching = (
            self._chain_view(chain_id, last)
            for chain_id in older
            if matches(self.data.jobs[chain_id], of_first)
            and (last := self.data.last_step(chain_id)) is not None
            and (where.states is None or last.state in where.states)
        )
        found = list(islice(matching, max(0, limit) + 1))  # one more, to know whether there is a next page
        page = found[: max(0, limit)]
        return ChainPage(page, page[-1].id if page and len(found) > len(page) else None)

    def _chain_view(self, chain_id: UUID, last: Record) -> ChainView:
        first = self.data.jobs[chain_id]
        job, unique = first.job, first.job.unique
        return ChainView(
            id=chain_id,
            task=job.task,
            queue=job.queue,
            created_at=first.created_at,
            key=None if unique is None else unique.key,
            tags=job.tags,
            steps=len(self.data.steps(chain_id)),
            step=last.job.id,
            step_task=last.job.task,
            state=there(last),
            finished_at=last.finished_at,
            result=last.result,
            error=last.error,
        )

    async def blockers(self, job_id: UUID) -> list[BlockerView]:
        """Return the chains a job was to wait for, as they stand, in the order they were named."""
        record = self.data.jobs.get(job_id)
        return [self._blocker_view(chain_id) for chain_id in ([] if record is None else record.blockers)]

    def _blocker_view(self, chain_id: UUID) -> BlockerView:
        if (last := self.data.last_step(chain_id)) is None:
            return BlockerView(chain_id=chain_id, state=None)
        return BlockerView(
            chain_id=chain_id,
            state=there(last),
            task=self.data.jobs[chain_id].job.task,
            step_task=last.job.task,
            result=last.result,
            error=last.error,
        )

    async def delete_chains(self, chain_ids: Sequence[UUID], *, cascade: bool = False, by: str = "") -> ChainsDeleted:
        """Remove chains with all their steps, and with `cascade` the chains they waited for: all or nothing."""
        for chain_id in chain_ids:
            if self.data.last_step(chain_id) is None:
                return ChainsDeleted(answer=Answer.NOT_FOUND, chain=chain_id)
        doomed = dict.fromkeys(chain_ids)
        if cascade:
            self._add_blockers(doomed)
        for chain_id in doomed:
            if (needed_by := self.data.needed_by(chain_id, inside=doomed)) is not None:
                return ChainsDeleted(answer=Answer.NEEDED, chain=chain_id, needed_by=needed_by)
        now = self.environment.now()
        steps = [step for chain_id in doomed for step in self.data.steps(chain_id)]
        for step in steps:
            self.data.move(step, Write(Event.DELETE, step.failures), now, actor=by)
        if chain_ids:
            self.audit(audit_line(Action.DELETE_CHAINS, chain_ids, by=by, detail=f"{len(steps)} jobs"))
        return ChainsDeleted(answer=Answer.DONE, chains=tuple(doomed), jobs=tuple(step.job.id for step in steps))

    def _add_blockers(self, doomed: dict[UUID, None]) -> None:
        """Add the chains that some of these waited for, the chains those waited for, and so on, as far as they exist."""
        found = list(doomed)
        while found:
            named = {one for chain_id in found for step in self.data.steps(chain_id) for one in step.blockers}
            found = sorted(one for one in named if one not in doomed and self.data.last_step(one) is not None)
            doomed.update(dict.fromkeys(found))
