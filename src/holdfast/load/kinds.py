"""The app that runs the kinds of a catalog, each as a task of its own."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, Final

from holdfast import Cancel, Fatal, Holdfast, Job, Retry, Retryable
from holdfast.load.behaviour import Behaviour, Outcome, Step, behave
from holdfast.load.catalog import Catalog, Kind, read

if TYPE_CHECKING:
    from collections.abc import Callable

CATALOG_VARIABLE: Final = "HOLDFAST_LOAD_CATALOG"
CODE: Final = "SIMULATED"
SLICE: Final = 0.02
"""Seconds in which computing and waiting take turns."""
MARGIN: Final = 60.0
"""Seconds that an attempt may take beyond twice its longest duration: a machine may have more to do than it can."""


def configured_app() -> Holdfast:
    """Return the app for the catalog that the environment names, on the store of the settings."""
    return build_app(read(os.environ.get(CATALOG_VARIABLE) or None), None)


def build_app(catalog: Catalog, url: str | None) -> Holdfast:
    """Return an app that runs the kinds of a catalog; without a URL the settings name its store."""
    app = Holdfast(url) if url is not None else Holdfast()
    for kind in catalog.kinds.values():
        declare = app.task(
            name=kind.task,
            queue=kind.queue,
            priority=kind.priority,
            retry=Retry(max_attempts=kind.attempts, initial=kind.rest, factor=2.0, max=max(300.0, kind.rest)),
            timeout=2 * kind.longest + MARGIN,
        )
        declare(_blocking(kind) if kind.cpu else _waiting(kind))
    return app


def _waiting(kind: Kind) -> Callable[..., Any]:
    async def work(item: str, seed: int = 0, *, job: Job) -> str:
        behaviour = behave(kind, item, seed)
        held = _hold(kind)
        for step in _steps(behaviour):
            await asyncio.sleep(step.seconds)
            if step.message:
                job.progress(step.percent, step.message)
        del held
        return _end(kind, behaviour)

    return work


def _blocking(kind: Kind) -> Callable[..., Any]:
    def work(item: str, seed: int = 0, *, job: Job) -> str:
        behaviour = behave(kind, item, seed)
        held = _hold(kind)
        end = time.monotonic()
        for step in _steps(behaviour):
            end += step.seconds
            _burn(kind.cpu, end, job)
            if step.message:
                job.progress(step.percent, step.message)
        del held
        return _end(kind, behaviour)

    return work


def _steps(behaviour: Behaviour) -> tuple[Step, ...]:
    return behaviour.steps or (Step(behaviour.seconds, 0.0, ""),)


def _hold(kind: Kind) -> bytes:
    """Take memory that is really used: pages that were never written to cost nothing."""
    return b"\1" * kind.memory


def _burn(share: float, end: float, job: Job) -> None:
    """Compute for a share of the time until `end`, in slices, and heed whoever asks it to stop."""
    while (left := end - time.monotonic()) > 0:
        job.abort.check()
        part = min(SLICE, left)
        stop = time.monotonic() + part * share
        while time.monotonic() < stop:
            sum(range(200))
        job.abort.wait(max(0.0, min(part * (1 - share), end - time.monotonic())))


def _end(kind: Kind, behaviour: Behaviour) -> str:
    if behaviour.outcome is Outcome.CANCEL:
        raise Cancel(behaviour.message)
    if behaviour.outcome is Outcome.FAIL:
        raise (Retryable if kind.retryable else Fatal)(behaviour.message, code=CODE)
    return behaviour.message
