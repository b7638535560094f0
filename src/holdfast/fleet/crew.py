"""The worker processes of one manager: started, drained, replaced, counted. Nothing here asks the store."""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.fleet.heavy import Heavy
from holdfast.fleet.memory import MEGABYTE, memory_of
from holdfast.fleet.process import WorkerProcess
from holdfast.runtime import counters as count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.core.environment import WorkerEnvironment
    from holdfast.fleet.options import ManagerOptions
    from holdfast.runtime.counters import Counters

logger = logging.getLogger("holdfast.manager")

FIRST_REST: Final = 0.5
"""Seconds until a crashed worker is started again; doubled with every crash that follows."""
LONGEST_REST: Final = 30.0
STEADY: Final = 10.0
"""Seconds that a worker which came after the last crash must live for the crashes to be forgotten."""
WEIGH_EVERY: Final = 1.0
SPREAD: Final = 0.1
"""By how much the jobs of two workers differ until they are replaced: not all of them at once."""


@dataclass(slots=True, eq=False)
class Member:
    """One worker process."""

    name: str
    process: WorkerProcess
    started_at: float
    up_at: float | None = None
    """When it was first seen up; until then it imports, runs nothing, and is no successor of anybody."""
    running: int = 0
    """How many jobs it held at the last look."""
    rests: bool = False
    """It was let go: it claims nothing more, and ends once nothing runs. Until then it may be taken back."""
    drains: bool = False
    """It was asked to end, for good: it claims nothing more."""
    aborted: bool = False
    """It was asked a second time: what it runs is given back."""

    @property
    def process_id(self) -> int:
        """Which process it is."""
        return self.process.id

    @property
    def stays(self) -> bool:
        """Whether it works on, as far as is known."""
        return not (self.rests or self.drains or self.process.ends)

    @property
    def may_return(self) -> bool:
        """Whether it was let go and has not said that it ends. It may be about to: then another one takes its place."""
        return self.rests and not (self.drains or self.process.ends)


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
        self._crash = ""
        self._crashed_at = 0.0
        self._not_before = 0.0
        self._weigh_at = 0.0
        self._outgoing: Member | None = None
        """The one that takes too much memory, and works on until its successor is up."""
        self._heavy = None if options.max_memory is None else Heavy(options.max_memory)

    @property
    def too_heavy(self) -> str:
        """Which worker takes too much memory and is not replaced for it, and why; empty when there is none."""
        return "" if self._heavy is None else self._heavy.said

    @property
    def crashing(self) -> str:
        """What keeps workers from staying up, and how often in a row it has; empty while nothing does."""
        often = f", {self._crashes} times in a row" if self._crashes > 1 else ""
        return f"{self._crash}{often}" if self._crashes else ""

    @property
    def staying(self) -> list[Member]:
        """Those that work on."""
        return [member for member in self.members if member.stays]

    @property
    def resting(self) -> list[Member]:
        """Those that were let go and may be taken back, who runs the least first."""
        return sorted((member for member in self.members if member.may_return), key=lambda member: member.running)

    @property
    def draining(self) -> int:
        """How many end what they run, and are not to be had back."""
        return len(self.members) - len(self.staying) - len(self.resting)

    def keep_up(self) -> None:
        """Forget those that have ended, replace what became too large, and have as many work as are wanted."""
        self._bury()
        self._weigh()
        wanted = self.wanted + (self._outgoing in self.staying)
        while len(self.staying) > wanted:
            self._let_go()
        while len(self.staying) < wanted and (self._take_back(full=False) or self._start() or self._take_back(full=True)):
            pass
        self._counters.level(count.WORKERS, len(self.staying))
        self._counters.level(count.DRAINING, len(self.members) - len(self.staying))

    def seen(self, running: Mapping[int, int]) -> None:
        """Take note of the workers that are up, by their processes, and of how many jobs each holds."""
        for member in self.members:
            if member.process_id in running:
                member.running = running[member.process_id]
                if member.up_at is None:
                    member.up_at = self._environment.monotonic()

    def drain(self, member: Member) -> None:
        """Have a worker claim nothing more, finish what it runs, and end. Nothing that it runs is interrupted."""
        if not member.drains:
            member.drains = True
            member.process.ask_to_stop()

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
                member.process.ask_to_stop()

    def kill_all(self) -> None:
        """End every process that is still there. The jobs of a worker are taken over when their leases lapse."""
        for member in self.members:
            member.process.kill()
        self.members.clear()

    def _let_go(self) -> None:
        """Let one go: the one that is to leave anyway, else who runs the least, the youngest of these.

        One that is not up runs nothing, and would hear of it only then.
        """
        member = min(self.staying, key=lambda one: (one is not self._outgoing, one.running, -one.started_at))
        if member.up_at is None or member is self._outgoing:
            self.drain(member)
        else:
            member.rests = True
            member.process.rest()

    def _take_back(self, *, full: bool) -> bool:
        """Take one back that was let go; `full`: also where that brings no slot that is free. Tells whether there was one.

        A new one is better than one that is full, where there is room for it: what was let go ends by itself.
        """
        member = next(iter(self.resting), None)
        if member is None or (member.running >= self._options.slots and not full):
            return False
        member.rests = False
        member.process.wake()
        logger.info("worker %s is taken back: it still runs %d job(s)", member.name, member.running)
        return True

    def _may_start(self) -> bool:
        """Tell whether there is room for one more process, those that drain included, and no crash is rested from."""
        return len(self.members) < self._options.scaling.max_count and self._environment.monotonic() >= self._not_before

    def _start(self) -> bool:
        """Start a worker, if one may be started now, and tell whether it was."""
        if not self._may_start():
            return False
        self._started += 1
        name = f"{self._options.name}.{self._started}"
        try:
            process = WorkerProcess(self._command(name, self._jobs_allowed()))
        except OSError as error:  # no more processes, or no memory for one: the others work on
            self._rest_from(f"a worker cannot be started: {error}", "it is tried again")
            return False
        self.members.append(Member(name, process, self._environment.monotonic()))
        return True

    def _jobs_allowed(self) -> int | None:
        """Return after how many jobs a worker ends: not the same for all, or they would end together."""
        most = self._options.max_jobs
        return None if most is None else max(1, round(most * (1 + SPREAD * (2 * self._environment.random() - 1))))

    def _bury(self) -> None:
        now = self._environment.monotonic()
        for member, code in [(one, one.process.ended()) for one in self.members]:
            if code is not None:
                self.members.remove(member)
                if member.drains or member.rests:
                    self._ended_as_asked(member, code)
                elif code == 0 and member.process.ends:  # it has run as many jobs as it may, or a person has drained it
                    self._counters.add(count.RECYCLED)
                    logger.info("worker %s has ended and is replaced", member.name)
                else:
                    self._crashed(member, code)
        # one that was there before lives on whatever the crash was about: it says nothing about those that are started now
        later = [member for member in self.members if member.started_at > self._crashed_at]
        if self._crashes and any(now - member.started_at >= STEADY for member in later):
            self._crashes = 0

    def _ended_as_asked(self, member: Member, code: int) -> None:
        """Tell of a worker that was asked to end and did otherwise: nobody takes its place, so nothing is rested from."""
        if code not in (0, -signal.SIGTERM):  # by which one ends that is not up
            self._counters.add(count.CRASHED)
            logger.error("worker %s crashed with code %d while it finished what it ran", member.name, code)

    def _crashed(self, member: Member, code: int) -> None:
        """Count a worker that nobody asked to end and that did not say it would; it is not replaced at once.

        Its code says little: a handler, or what it calls, may end the process with 0, again and again.
        """
        self._counters.add(count.CRASHED)
        how = f"crashed with code {code}" if code else f"ended with code 0{' before it was up' if member.up_at is None else ''}"
        self._rest_from(f"worker {member.name} {how}", "it is replaced")

    def _rest_from(self, what: str, then: str) -> None:
        """Start none for a while, ever longer the more often that happens."""
        now = self._environment.monotonic()
        self._crashes += 1
        self._crashed_at = now
        rest = min(LONGEST_REST, FIRST_REST * 2 ** (self._crashes - 1)) * (0.5 + self._environment.random() / 2)
        self._not_before = max(self._not_before, now + rest)
        self._crash = what
        logger.error("%s; %s in %.1f s", what, then, rest)

    def _weigh(self) -> None:
        """Replace a worker that takes too much memory, the heaviest: it leaves when its successor is up.

        Only those that are up are weighed: what an import takes for a moment says nothing, and a worker that is replaced before
        it could do anything leaves nobody who works.
        """
        now = self._environment.monotonic()
        if self._heavy is None or now < self._weigh_at:
            return
        if self._outgoing not in self.staying:
            self._weigh_at = now + WEIGH_EVERY
            weights = {member: memory_of(member.process_id) for member in self.staying if member.up_at is not None}
            self._outgoing = self._heavy.choose(weights, now)
            if self._outgoing is not None:
                logger.info("worker %s takes %d MB and is replaced", self._outgoing.name, weights[self._outgoing] // MEGABYTE)
        if (leaving := self._outgoing) is not None and self._may_leave(leaving):
            self._outgoing = None
            self._counters.add(count.RECYCLED)
            self.drain(leaving)

    def _may_leave(self, leaving: Member) -> bool:
        """Tell whether as many as are wanted are up without it, or, where there is no room for one more, at least one is.

        Those that drain may take hours. Where they leave no room for successors the others are not spared for that. Where only
        one process is allowed there is nobody to wait for.
        """
        most = self._options.scaling.max_count
        others = [member for member in self.staying if member is not leaving]
        if any(member.up_at is None for member in others):
            return False  # it is about to be there
        if len(self.members) < most:
            return len(others) >= self.wanted
        return bool(others) or most == 1
