"""What a worker's health is told by: its event loop, its loops, its heartbeat, its store. Read from any thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from concurrent.futures import Future
from enum import Enum
from typing import TYPE_CHECKING, Final

from holdfast.core.health import BOUND, Check, Health, WorkerHealth, moves, redis_check
from holdfast.runtime.watchdog import BLOCKED_AFTER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.core.environment import Environment
    from holdfast.core.health import Pulse
    from holdfast.runtime.claimer import Claimer
    from holdfast.runtime.heartbeat import Heartbeat
    from holdfast.runtime.outage import Outage

HEARD_WITHIN: Final = 60.0
"""Seconds within which the store must have answered: an idle worker asks it every 20 at least."""


class Stage(Enum):
    """Where a worker is in its life."""

    STARTING = "it has not started"
    WORKING = "it works"
    DRAINING = "it is asked to stop, and finishes what it has"
    STOPPED = "it has stopped"


class Vitals:
    """The facts, and what they come to. The parts are given by the worker as it starts."""

    def __init__(self, environment: Environment) -> None:
        self.stage = Stage.STARTING
        self.registered = False
        self._environment = environment
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._outage: Outage | None = None
        self._claimer: Claimer | None = None
        self._heartbeat: Heartbeat | None = None
        self._pulses: Sequence[Pulse] = ()
        self._lock = threading.Lock()
        self._probe: Future[None] = Future()
        self._probe.set_result(None)
        self._sent = 0.0

    def begin(self, outage: Outage) -> None:
        """Take note of the event loop, which is the one of the caller, and of how the store is seen."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._outage = outage

    def watch(self, claimer: Claimer, heartbeat: Heartbeat, pulses: Sequence[Pulse]) -> None:
        """Take note of the loops."""
        self._claimer, self._heartbeat = claimer, heartbeat
        self._pulses = [claimer.pulse, *pulses, heartbeat.guard_pulse]

    # the event loop

    def silence(self) -> float:
        """Return for how many seconds the event loop has not turned; waits for a sign of it as long as that is no wonder."""
        probe = self._sent_probe()
        if probe is None:
            return 0.0
        concurrent.futures.wait([probe], self._patience())
        return self._since(probe)

    async def silence_seen_elsewhere(self) -> float:
        """Return the same for somebody on another event loop."""
        probe = self._sent_probe()
        if probe is None:
            return 0.0
        await asyncio.wait([asyncio.wrap_future(probe)], timeout=self._patience())
        return self._since(probe)

    def _sent_probe(self) -> Future[None] | None:
        """Send a probe to the event loop, unless one is on its way; `None` where there is nothing to find out."""
        loop = self._loop
        if loop is None or self.stage is Stage.STOPPED or threading.get_ident() == self._thread:
            return None
        with self._lock:
            if self._probe.done():
                probe: Future[None] = Future()
                try:
                    loop.call_soon_threadsafe(probe.set_result, None)
                except RuntimeError:  # it is closed: the worker has ended
                    return None
                self._probe, self._sent = probe, self._environment.monotonic()
            return self._probe

    def _patience(self) -> float:
        return max(0.0, self._sent + BLOCKED_AFTER - self._environment.monotonic())

    def _since(self, probe: Future[None]) -> float:
        return 0.0 if probe.done() else self._environment.monotonic() - self._sent

    # what it comes to

    def health(self, silence: float) -> WorkerHealth:
        """Return how it stands, with an event loop that has been silent for so long."""
        return WorkerHealth(live=Health.of(self._live(silence)), ready=Health.of(self._ready()))

    def _live(self, silence: float) -> Iterator[Check]:
        blocked = silence >= BLOCKED_AFTER
        yield Check("event_loop", ok=not blocked, detail=f"has been blocked for {silence:.1f} s" if blocked else "")
        now = self._environment.monotonic()
        if (heartbeat := self._heartbeat) is not None:
            lives = heartbeat.lives
            yield moves(heartbeat.pulse, now, BOUND) if lives else Check("heartbeat", ok=False, detail="its thread has ended")
        for pulse in self._pulses:
            yield moves(pulse, now, BOUND)

    def _ready(self) -> Iterator[Check]:
        yield Check("registered", ok=self.registered, detail="" if self.registered else self.stage.value)
        yield self._store()
        yield self._claims()
        if self._claimer is not None and (redis := redis_check(self._claimer.notifier.figures())) is not None:
            yield redis

    def _claims(self) -> Check:
        if self.stage is not Stage.WORKING:
            return Check("claims", ok=False, detail=self.stage.value)
        disabled = self._claimer is not None and not self._claimer.enabled
        return Check("claims", ok=True, detail="disabled: it claims nothing" if disabled else "")

    def _store(self) -> Check:
        unheard = None if self._outage is None else self._outage.unheard()
        if unheard is None:
            return Check("store", ok=False, detail="it does not answer")
        ok = unheard <= HEARD_WITHIN
        return Check("store", ok=ok, detail="" if ok else f"its last answer is {unheard:.0f} s old")
