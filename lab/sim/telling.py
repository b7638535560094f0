"""Names for ids, and short texts for what is given and answered: for traces that a person can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from holdfast.core.job import NewJob
from holdfast.core.lease import Claimed, Extended, Lease
from holdfast.store.port import ClaimRequest, Enqueued, Reaped, Settlement


def shown(value: Any) -> str:
    """Return a short text of anything that goes to a store or comes from one."""
    match value:
        case UUID():
            return f"{value.hex[-6:]}"
        case NewJob():
            return f"{value.task}:{shown(value.id)}"
        case Lease():
            return f"{shown(value.job_id)}/{value.token.hex[:4]}"
        case Claimed():
            return f"{value.task}:{shown(value.lease)}#{value.attempt}"
        case Settlement():
            then = "" if value.then is None else f" then {shown(value.then)}"
            return f"{shown(value.lease)} {value.write.event}{then}"
        case Enqueued():
            return f"{value.status} {shown(value.job_id)}"
        case Extended():
            return f"{value.hold}{' cancel' if value.cancel_requested else ''}"
        case Reaped():
            return f"{value.task}:{shown(value.job_id)}#{value.attempt} {value.write.event}"
        case ClaimRequest():
            return f"{value.limit}{' look' if value.look else ''}"
        case str() | int() | float() | bool() | None:
            return str(value)
        case msgspec.Struct():
            return type(value).__name__
        case Mapping():
            return "{" + ", ".join(f"{shown(key)}: {shown(one)}" for key, one in value.items()) + "}"
        case Iterable():
            return "(" + ", ".join(shown(one) for one in value) + ")"
        case _:
            return type(value).__name__
