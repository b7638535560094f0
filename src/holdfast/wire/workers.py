"""Workers and the server itself on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec

from holdfast.errors import BadJob
from holdfast.store.port import MOST_SLOTS, Worker, WorkerKind
from holdfast.wire.leases import Leases, LeaseState
from holdfast.wire.values import NOTHING, Json, sent, text_or_empty


class RegisterRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as it introduces itself. Without an `id` the server makes one."""

    name: str
    id: UUID | None = None
    version: str = ""
    slots: Annotated[int, msgspec.Meta(ge=0, le=MOST_SLOTS)] = 1
    capabilities: list[str] = []
    """At most 10 KB."""
    metadata: Json = NOTHING
    """Whatever JSON is to be shown beside it, at most 10 KB."""

    @classmethod
    def of(cls, worker: Worker) -> RegisterRequest:
        """Return a worker for the wire."""
        return cls(
            id=worker.id,
            name=worker.name,
            version=worker.version,
            slots=worker.slots,
            capabilities=list(worker.capabilities),
            metadata=sent(worker.info, "worker.info"),
        )

    def worker(self, worker_id: UUID, owner: str) -> Worker:
        """Return the worker, which is a remote one. What is wrong with it is told by the names of the request."""
        info = text_or_empty(self.metadata, "metadata")
        try:
            return Worker(
                id=worker_id,
                name=self.name,
                info=info,
                kind=WorkerKind.REMOTE,
                version=self.version,
                slots=self.slots,
                capabilities=tuple(self.capabilities),
                owner=owner,
            )
        except BadJob as error:
            path = error.path.removeprefix("worker.")
            raise BadJob(error.reason, path="metadata" if path == "info" else path, what="worker") from None


class RegisterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """By which id the worker is known, and what it should know of the server."""

    id: UUID
    heartbeat_ms: float
    """How often it should give a sign of life."""
    longest_wait_ms: float
    """How long a claim may wait."""


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sign of life, with what the worker has counted, and leases to extend."""

    counters: Json = NOTHING
    leases: Leases = []


class HeartbeatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """`disabled`: claim nothing more. `drain`: finish what runs, and end. `leases`: what became of each.

    `idle`: capabilities of other workers that could do more; jobs that prefer one of them are left to those for a while, by who
    says so in its claims.
    """

    disabled: bool
    drain: bool
    leases: list[LeaseState]
    idle: list[str]


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The server, its clock, and how much it takes."""

    version: str
    time: datetime
    body_limit: int
    longest_wait_ms: float


class Done(msgspec.Struct, frozen=True):
    """It was done."""

    ok: bool = True
