"""What tests of code that enqueues need: jobs run inline, a clock moved by hand, and a look at what was enqueued.

Nothing here starts a worker or sleeps. `docs/guides/testing.md` shows it by what you want to test.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from holdfast.testing.clock import FakeClock
    from holdfast.testing.crashing import Crash, Crashed, Crashes, crashes
    from holdfast.testing.draining import Drained, DrainLimit, Ran, drain, drain_sync
    from holdfast.testing.jobs import FakeJob, fake_job
    from holdfast.testing.looking import EnqueuedJob, assert_enqueued, assert_not_enqueued, enqueued
    from holdfast.testing.overriding import Override, override

_HOMES: Final = {
    "Crash": "crashing",
    "Crashed": "crashing",
    "Crashes": "crashing",
    "DrainLimit": "draining",
    "Drained": "draining",
    "EnqueuedJob": "looking",
    "FakeClock": "clock",
    "FakeJob": "jobs",
    "Override": "overriding",
    "Ran": "draining",
    "assert_enqueued": "looking",
    "assert_not_enqueued": "looking",
    "crashes": "crashing",
    "drain": "draining",
    "drain_sync": "draining",
    "enqueued": "looking",
    "fake_job": "jobs",
    "override": "overriding",
}

__all__ = [
    "Crash",
    "Crashed",
    "Crashes",
    "DrainLimit",
    "Drained",
    "EnqueuedJob",
    "FakeClock",
    "FakeJob",
    "Override",
    "Ran",
    "assert_enqueued",
    "assert_not_enqueued",
    "crashes",
    "drain",
    "drain_sync",
    "enqueued",
    "fake_job",
    "override",
]


def __getattr__(name: str) -> Any:
    # pytest imports this package at every start, for its plugin: those who do not use it must not pay for the rest
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
