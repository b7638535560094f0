"""What a store behind HTTP does not do: what only people, or those beside the database, do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from holdfast.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from holdfast.core.limits import LimitName, LimitRule
    from holdfast.core.outcome import Error
    from holdfast.store.port import Action, FailureView, Firing, Grain, JobFilter, Key, Schedule, WorkerPlace


class Lacking:
    """Operations of the port that are refused here."""

    async def logs(self, job_id: UUID, *, limit: int, after: int = 0) -> NoReturn:
        """Refuse."""
        raise lacks("logs")

    async def complete(self, results: Mapping[UUID, str], *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("complete")

    async def fail(self, errors: Mapping[UUID, Error], *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("fail")

    async def delete(self, job_ids: Sequence[UUID], *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("delete")

    async def delete_chains(self, chain_ids: Sequence[UUID], *, cascade: bool = False, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("delete_chains")

    async def emit(self, signal: str, data: str, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("emit")

    async def reopen(self, job_ids: Sequence[UUID], *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("reopen")

    async def set_limit(self, name: LimitName, rule: LimitRule | None, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("set_limit")

    async def limits(self, names: Sequence[LimitName] | None = None) -> NoReturn:
        """Refuse."""
        raise lacks("limits")

    async def disable(self, worker: UUID, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("disable")

    async def enable(self, worker: UUID, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("enable")

    async def drain(self, worker: UUID, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("drain")

    async def revoke(self, worker: UUID, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("revoke")

    async def schedule(self, schedules: Sequence[Schedule]) -> NoReturn:
        """Refuse."""
        raise lacks("schedule")

    async def unschedule(self, names: Sequence[str]) -> NoReturn:
        """Refuse."""
        raise lacks("unschedule")

    async def schedules(self) -> NoReturn:
        """Refuse."""
        raise lacks("schedules")

    async def heard(self, workers: Collection[UUID]) -> NoReturn:
        """Refuse."""
        raise lacks("heard")

    async def fire(self, firing: Firing) -> NoReturn:
        """Refuse."""
        raise lacks("fire")

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("pause")

    async def resume(self, queue: str, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("resume")

    async def add_key(self, key: Key, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("add_key")

    async def keys(self, ids: Sequence[str] | None = None) -> NoReturn:
        """Refuse."""
        raise lacks("keys")

    async def expire_key(self, key_id: str, within: float, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("expire_key")

    async def rotate_key(self, key_id: str, new: Key, within: float, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("rotate_key")

    async def revoke_key(self, key_id: str, *, by: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("revoke_key")

    async def use_key(self, key_id: str) -> NoReturn:
        """Refuse."""
        raise lacks("use_key")

    async def note(self, action: Action, targets: Sequence[str] = (), *, by: str, detail: str = "") -> NoReturn:
        """Refuse."""
        raise lacks("note")

    async def audits(
        self, *, limit: int, before: int | None = None, actor: str | None = None, action: Action | None = None
    ) -> NoReturn:
        """Refuse."""
        raise lacks("audits")

    async def figures(self, grain: Grain, *, since: datetime | None = None, whole: bool = False) -> NoReturn:
        """Refuse."""
        raise lacks("figures")

    async def failures(self, *, since: datetime, limit: int, after: FailureView | None = None) -> NoReturn:
        """Refuse."""
        raise lacks("failures")

    async def find(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> NoReturn:
        """Refuse."""
        raise lacks("find")

    async def find_chains(self, where: JobFilter, *, limit: int, after: UUID | None = None) -> NoReturn:
        """Refuse."""
        raise lacks("find_chains")

    async def running(self, *, limit: int, queues: frozenset[str] | None = None) -> NoReturn:
        """Refuse."""
        raise lacks("running")

    async def attempts(self, job_id: UUID, *, last: int | None = None) -> NoReturn:
        """Refuse."""
        raise lacks("attempts")

    async def events(self, job_id: UUID, *, last: int | None = None) -> NoReturn:
        """Refuse."""
        raise lacks("events")

    async def queues(self) -> NoReturn:
        """Refuse."""
        raise lacks("queues")

    async def workers(
        self, *, limit: int = 1000, ids: Collection[UUID] | None = None, after: WorkerPlace | None = None
    ) -> NoReturn:
        """Refuse."""
        raise lacks("workers")

    async def stats(self) -> NoReturn:
        """Refuse."""
        raise lacks("stats")

    async def storage(self) -> NoReturn:
        """Refuse."""
        raise lacks("storage")

    async def rewind(self, seconds: float) -> NoReturn:
        """Refuse."""
        raise lacks("rewind")


def lacks(operation: str) -> NotAllowed:
    """Return the refusal of an operation."""
    return NotAllowed(
        f"{operation!r} is not for workers and clients over HTTP: use the dashboard, or the command line beside the database"
    )
