"""A store whose handlers' transactions can be made to fail or to hang where a test says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    import pytest

    from holdfast import Holdfast
    from holdfast.core.lease import Extended, Lease
    from holdfast.core.states import Event
    from holdfast.store.port import Settled, Settlement, Store, Transaction

Commit = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


def lost() -> StoreUnavailable:
    """Return what a cut connection raises."""
    return StoreUnavailable("the store", 0.0, "the connection was cut")


class Flaky:
    """What a test decides about transactions: `commit` is given the real one, `settled` and `extended` may raise."""

    def __init__(self, app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commit: Commit = _plainly
        self.settled: Callable[[], None] = lambda: None
        self.extended: Callable[[], None] = lambda: None
        self.answer: Settled | None = None
        """What a settlement in a transaction is answered with, instead of what the store says."""
        self.asked = 0
        """How often somebody asked whether a lease was settled."""
        world = app.world

        def flaky_world(*args: Any) -> Any:
            real = world(*args)
            return replace(real, make_store=lambda: cast("Store", _Store(real.make_store(), self)))

        monkeypatch.setattr(app, "world", flaky_world)


class _Wrapped:
    def __init__(self, inner: Any, flaky: Flaky) -> None:
        self._inner = inner
        self._flaky = flaky

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Store(_Wrapped):
    async def begin(self) -> Transaction:
        return cast("Transaction", _Transaction(await self._inner.begin(), self._flaky))

    async def settled(self, lease: Lease) -> Event | None:
        self._flaky.asked += 1
        self._flaky.settled()
        return cast("Event | None", await self._inner.settled(lease))

    async def extend(self, leases: Sequence[Lease]) -> list[Extended]:
        self._flaky.extended()
        return cast("list[Extended]", await self._inner.extend(leases))


class _Transaction(_Wrapped):
    async def settle(self, settlement: Settlement) -> Settled:
        real = cast("Settled", await self._inner.settle(settlement))
        return real if self._flaky.answer is None else self._flaky.answer

    async def commit(self) -> None:
        await self._flaky.commit(self._inner.commit)


async def _plainly(commit: Callable[[], Awaitable[None]]) -> None:
    await commit()
