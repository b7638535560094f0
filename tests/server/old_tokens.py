"""Every request that shows a token, made with one that is no longer current, and what it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from holdfast.server.api.operations import OPERATIONS
from tests.server.test_attempts import WRITES

if TYPE_CHECKING:
    import httpx2

    from holdfast.core.lease import Lease
    from tests.server.conftest import Asking

SINGLE: Final = {
    "extendLease": "extend",
    "reportProgress": "progress",
    "writeCheckpoint": "checkpoint",
    "writeLog": "log",
    "completeJob": "complete",
    "failJob": "fail",
    "releaseJob": "release",
}
"""Those about one job, by what they are among `WRITES`: refused with 409."""
ITEMS: Final[dict[str, dict[str, Any]]] = {
    "settleLeases": {"event": "succeeded", "failures": 0, "result": 1},
    "reportProgressOfLeases": {"percent": 50},
    "writeCheckpointsOfLeases": {"part": {"name": "half", "state": "completed"}},
    "writeLogsOfLeases": {"message": "hello"},
    "markStagesOfLeases": {"name": "half", "event": "stage:entered"},
}
"""Those about many, with what each says of one besides its token: answered one by one, as `freeLeases` is."""


def shows_a_token() -> dict[str, str]:
    """Return the path of every operation whose body has a token anywhere in it."""
    return {one.name: one.path for one in OPERATIONS if one.body is not None and _has_token(one.body)}


def _has_token(body: type[msgspec.Struct]) -> bool:
    _, parts = msgspec.json.schema_components([body])
    return any("token" in part.get("properties", {}) for part in parts.values())


def bodies(lease: Lease) -> dict[str, dict[str, Any]]:
    """Return what each of them says with this lease."""
    ref = {"job_id": str(lease.job_id), "token": str(lease.token)}
    token = {"token": ref["token"]}
    return {
        **{name: token | WRITES[write] for name, write in SINGLE.items()},
        **{name: {"items": [ref | more]} for name, more in ITEMS.items()},
        **{name: {"leases": [ref]} for name in ("extendLeases", "freeLeases", "heartbeat")},
        "wasSettled": token,
        "enqueue": {"jobs": [{"task": "tests.child"}], "under": ref},
    }


def told(ask: Asking, lease: Lease, worker: UUID, key: str) -> dict[str, Any]:
    """Make every one of these requests, and return what each was told."""
    paths, found = shows_a_token(), {}
    for name, body in bodies(lease).items():
        who = worker if name == "heartbeat" else lease.job_id
        found[name] = _told(ask.post(paths[name].format(id=who), body, key))
    return found


def _told(answer: httpx2.Response) -> Any:
    said = answer.json()
    match said:
        case {"error": error, "state": state}:
            holder = said.get("holder")
            return (answer.status_code, error, state, holder and (UUID(holder["worker_id"]), holder["attempt"]))
        case {"leases": [lease]}:
            return lease["hold"]
        case {"answers": [one]}:
            return one
        case _:
            return said


def refusals(state: str, holder: tuple[UUID, int] | None) -> dict[str, Any]:
    """Return what each should be told of a job that stands so, with who runs it and at which attempt."""
    refused = (409, "stale", state, holder)
    lost = "ended" if holder is None else "taken"
    return {
        **dict.fromkeys((*SINGLE, "enqueue"), refused),
        **dict.fromkeys((*ITEMS, "freeLeases"), "stale"),
        **dict.fromkeys(("extendLeases", "heartbeat"), lost),
        "wasSettled": {"settled": False},
    }
