"""Blocking code and coroutines: where the one may call the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


class BlockingCallOnLoop(HoldfastError, RuntimeError):
    """A `_sync` method was called where an event loop runs: it would block that loop."""


def refuse_on_loop(name: str) -> None:
    """Raise `BlockingCallOnLoop` where an event loop runs; `name` is the coroutine to use there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BlockingCallOnLoop(
        f"{name}_sync was called inside a running event loop, which it would block. Use: await ….{name}(…)"
    )


def by_hand(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine gives that never suspends, such as all of a blocking `Caller`."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise HoldfastError(f"{coroutine!r} waits for something, and there is no event loop here to wait with")
