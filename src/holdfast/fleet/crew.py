"""The worker processes of one manager: started, drained, replaced, counted. Nothing here asks the store."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.fleet.memory import memory_of
from holdfast.runtime import counters as count
from holdfast.runtime.executor import boot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.core.environment import WorkerEnvironment
    from holdfast.fleet.options import ManagerOptions
    from holdfast.runtime.counters import Counters

logger = logging.getLogger("holdfast.manager")

FIRST_REST: Final = 0.5
"""Seconds until a crashed worker is started again; doubled with every crash that follows."""
LONGEST_REST: Final = 30.0
STEADY: Final = 10.0
"""Seconds that a worker must live for the crashes before it to be forgotten."""
WEIGH_EVERY: Final = 1.0
SPREAD: Final = 0.1
"""By how much the jobs of two workers differ until they are replaced: not all of them at once."""


@dataclass(slots=True, eq=False)
class Member:
    """One worker process."""

    name: str
    process: subprocess.Popen[bytes]
    started_at: float
    drains: bool = False
    """It was asked to end: it claims nothing more."""
    aborted: bool = False
    """It was asked a second time: what it runs is given back."""

    @property
    def process_id(self) -> int:
        """Which process it is."""
        return self.process.pid


class Crew:
    """All workers of one manager, kept at the number that is wanted. `command` returns what starts a worker of this name."""

    def __init__(
        self,
        options: ManagerOptions,
        environment: WorkerEnvironment,
        counters: Counters,
        command: Callable[[str, int | None], Sequence[str]],
    ) -> None:
        self.wanted = 0
        self.members: list[Member] = []
        self._options = options
        self._environment = environment
        self._counters = counters
        self._command = command
        self._started = 0
        self._crashes = 0
        self._not_before = 0.0
        self._weigh_at = 0.0

    @property
    def staying(self) -> list[Member]:
        """Those that work on."""
        return [member for member in self.members if not member.drains]

    @property
    def draining(self) -> int:
        """How many end what they run."""
        return sum(member.drains for member in self.members)

    def keep_up(self) -> None:
        """Forget those that have ended, replace what became too large, and start what is missing."""
        self._bury()
        self._weigh()
        while len(self.staying) < self.wanted and self._may_start():
            self._start()
        self._counters.level(count.WORKERS, len(self.staying))
        self._counters.level(count.DRAINING, self.draining)

    def drain(self, member: Member) -> None:
        """Have a worker claim nothing more, finish what it runs, and end. Nothing that it runs is interrupted."""
        if not member.drains:
            member.drains = True
            member.process.terminate()

    def drain_all(self) -> None:
        """Have every worker finish and end; none is started any more."""
        self.wanted = 0
        for member in self.members:
            self.drain(member)

    def abort_all(self) -> None:
        """Have every worker that is still there give back what it runs."""
        for member in self.members:
            self.drain(member)
            if not member.aborted:
                member.aborted = True
                member.process.send_signal(signal.SIGTERM)

    def kill_all(self) -> None:
        """End every process that is still there. The jobs of a worker are taken over when their leases lapse."""
        for member in self.members:
            member.process.kill()
        for member in self.members:
            member.process.wait()
        self.members.clear()

    def _may_start(self) -> bool:
        """Tell whether there is room for one more process, those that drain included, and no crash is rested from."""
        return len(self.members) < self._options.scaling.max_count and self._environment.monotonic() >= self._not_before

    def _start(self) -> None:
        """Start a worker in a group of its own: a terminal's Ctrl-C would reach it beside what is passed on, and two abort.

        When this process is killed, the kernel asks the worker to stop. It asks when the thread ends that started it: so this
        must be called in the main thread.
        """
        self._started += 1
        name = f"{self._options.name}.{self._started}"
        program = self._command(name, self._jobs_allowed())
        command = [sys.executable, boot.__file__, "worker", str(os.getpid()), *program]
        process = subprocess.Popen(command, process_group=0, stdin=subprocess.DEVNULL)  # noqa: S603  our own program
        self.members.append(Member(name, process, self._environment.monotonic()))

    def _jobs_allowed(self) -> int | None:
        """Return after how many jobs a worker ends: not the same for all, or they would end together."""
        most = self._options.max_jobs
        return None if most is None else max(1, round(most * (1 + SPREAD * (2 * self._environment.random() - 1))))

    def _bury(self) -> None:
        now = self._environment.monotonic()
        for member in [one for one in self.members if one.process.poll() is not None]:
            self.members.remove(member)
            if not member.drains:
                self._ended_unasked(member, now)
        if self._crashes and any(now - member.started_at >= STEADY for member in self.members):
            self._crashes = 0

    def _ended_unasked(self, member: Member, now: float) -> None:
        """Count a worker that ended by itself; one that crashed is not replaced at once, ever later the more crash."""
        if member.process.returncode == 0:  # it has run as many jobs as it may, or a person has drained it
            self._counters.add(count.RECYCLED)
            logger.info("worker %s has ended and is replaced", member.name)
            return
        self._crashes += 1
        self._counters.add(count.CRASHED)
        rest = min(LONGEST_REST, FIRST_REST * 2 ** (self._crashes - 1)) * (0.5 + self._environment.random() / 2)
        self._not_before = max(self._not_before, now + rest)
        logger.error("worker %s crashed with code %d; it is replaced in %.1f s", member.name, member.process.returncode, rest)

    def _weigh(self) -> None:
        """Drain a worker that takes too much memory: one at a time, and its successor starts as soon as there is room."""
        most, now = self._options.max_memory, self._environment.monotonic()
        if most is None or now < self._weigh_at or self.draining:
            return
        self._weigh_at = now + WEIGH_EVERY
        weights = {member: memory_of(member.process_id) for member in self.staying}
        heaviest = max(self.staying, key=lambda member: weights[member], default=None)
        if heaviest is not None and weights[heaviest] > most:
            logger.info("worker %s takes %d MB and is replaced", heaviest.name, weights[heaviest] // 2**20)
            self._counters.add(count.RECYCLED)
            self.drain(heaviest)
