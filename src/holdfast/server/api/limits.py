"""Limits: seen by who may look, set by who may steer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.limits import LimitKind
from holdfast.errors import BadJob
from holdfast.server.api.table import Asked, Refused, forbidden, refuse_own
from holdfast.server.principal import Right
from holdfast.throttling import change_of
from holdfast.wire.limits import LimitInfo, LimitsAnswer
from holdfast.wire.problems import BAD_VALUE, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.limits import LimitName, LimitRule
    from holdfast.wire.limits import ClearLimitRequest, SetLimitRequest


async def limits(asked: Asked[None]) -> LimitsAnswer:
    """Return the limits that the key reaches."""
    views = await asked.store.limits()
    return LimitsAnswer([LimitInfo.of(view) for view in views if asked.principal.reaches(view.name)])


async def set_limit(asked: Asked[SetLimitRequest]) -> LimitInfo:
    """Set a limit, whatever programs declare."""
    return await _change(asked, asked.body, asked.body.rule)


async def clear_limit(asked: Asked[ClearLimitRequest]) -> LimitInfo:
    """Have what programs declare hold again."""
    return await _change(asked, asked.body, lambda: None)


async def _change(asked: Asked[Any], which: ClearLimitRequest, rule: Callable[[], LimitRule | None]) -> LimitInfo:
    try:
        name = which.named()
        _allow(asked, name)
        await asked.store.set_limit(name, rule(), by=asked.principal.name)
    except BadJob as error:
        raise _bad_value(error) from None
    asked.notifier.hint(change_of(name))
    return LimitInfo.of((await asked.store.limits([name]))[0])


def _allow(asked: Asked[Any], name: LimitName) -> None:
    refuse_own(name.name)
    if asked.principal.reaches(name):
        return
    if name.kind is LimitKind.QUEUE:
        raise forbidden(asked.principal, Right.STEER, name.name)
    problem = Problem(
        error="forbidden",
        message=f"the key {asked.principal.name!r} is bound to queues, and the limit of a {_what(name)} reaches beyond them",
        fix="limit one of its queues, or use a key that is bound to none: holdfast keys add",
        facts={"right": Right.STEER.value},
    )
    raise Refused(403, problem)


def _what(name: LimitName) -> str:
    return "scope" if name.kind is LimitKind.KEY else str(name.kind)


def _bad_value(error: BadJob) -> Refused:
    """Return what is wrong with a limit, by the field of the request that says it."""
    field = error.path.removeprefix("limit").removeprefix(".")
    path = {"per": "per_ms"}.get(field, field)
    message = f"{path}: {error.reason}" if path else f"the limit {error.reason}"
    return Refused(422, Problem(error=BAD_VALUE, message=message, fix="change the value", path=path))
