"""The pytest plugin: fixtures, and nothing that costs anything until one of them is asked for."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.testing.clock import FakeClock


@pytest.fixture
def holdfast_clock() -> FakeClock:
    """Give a clock that is moved by hand, with the same ids and jitter in every run."""
    from holdfast.testing.clock import FakeClock  # noqa: PLC0415  for those who use it

    return FakeClock(seed=0)


@pytest.fixture
def holdfast_override(holdfast_clock: FakeClock) -> Iterator[Callable[..., Any]]:
    """Point an app at a fresh memory store for this test: `holdfast_override(app)`; it goes by `holdfast_clock`.

    Takes another URL as second argument and returns the app. Several apps may be overridden; all are restored afterwards.
    """
    from holdfast.testing.overriding import MEMORY, override  # noqa: PLC0415  for those who use it

    with ExitStack() as stack:

        def overridden(app: Any, url: str = MEMORY) -> Any:
            stack.enter_context(override(app, url, clock=holdfast_clock))
            return app

        yield overridden
