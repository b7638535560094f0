"""The books: from what producers were told and what the store holds, whether everything adds up.

Plain data in, lines out. Nothing here asks a store, so that figures can be cooked to see whether the books find out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from holdfast.core.states import LIVE, State
from lab.soak.lapses import reasons
from lab.soak.recovery import too_long
from lab.soak.tasks import APPROVED_WITHIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lab.soak.blows import Blow, Stall
    from lab.soak.diary import Asked, Told
    from lab.soak.lapses import Lapse, Reasons

SHOWN: Final = 5
"""Offenders that a line names."""
OUTSIDE: Final = "outside"
"""The result of what was completed from outside."""
STEPS: Final = ("check", "charge", "ship")
EFFECTS: Final = frozenset({"deposit", "withdraw", "charge"})
"""Kinds that leave one line in the ledger when they succeed."""
CHILDREN: Final = {"child": "parent", "son": "mother"}
"""Kinds that handlers enqueue, and the kinds of those."""
CONTINUING: Final = frozenset({"check", "charge"})
"""Kinds that have no result of their own: the next step follows instead."""
STUMBLING: Final[Mapping[str, frozenset[str]]] = {
    "flaky": frozenset({"NOT_YET"}),
    "report": frozenset({"ConnectionError"}),
    "deposit": frozenset({"ConnectionError"}),
    "toil": frozenset({"PROCESS_DIED", "PROCESS_NOT_STARTED"}),
}
"""Kinds that fail by themselves, or whose process is killed, and what that is called."""
ASKING: Final = frozenset({"deposit", "withdraw", "charge", "parent", "mother"})
"""Kinds whose handlers ask the store for something: what they meet there is theirs to handle, and may cost them an attempt."""
LAPSED: Final = "LEASE_EXPIRED"
POISON: Final = "poison"
BLOCKING: Final = frozenset({"a handler blocks the event loop", "a handler holds the interpreter"})
"""Faults for which a worker may end by itself."""
KILLED: Final = -9
BLOCKED: Final = 70
"""How a process ends that was killed, and a worker whose event loop stays blocked."""
REPORT: Final = "report"
APPROVE: Final = "approve"
TICK: Final = "tick"
ORDERED: Final = "line"
CONFIRM: Final = "confirm"
ENDS: Final[Mapping[str, frozenset[State]]] = {
    "nap": frozenset({State.SUCCEEDED, State.CANCELED}),
    "approve": frozenset({State.SUCCEEDED, State.CANCELED}),
    "user": frozenset({State.SUCCEEDED, State.CANCELED}),
    "poison": frozenset({State.FAILED}),
}
"""How jobs of a kind may end; the others succeed."""
CLOCK_SLACK: Final = 0.5
"""Seconds that may pass on a busy machine between the moment a claim calls its own and the moment at which it looks."""
KEY_SLACK: Final = 5.0
"""Seconds between the moment that an enqueue calls its own and the moment at which it takes its key: it may wait for locks."""


@dataclass(slots=True)
class Job:
    """A job as it was found. Moments are seconds of one clock."""

    id: str
    kind: str
    state: State
    attempt: int
    failures: int = 0
    budget: int | None = None
    created: float = 0.0
    claims: tuple[tuple[int, float], ...] = ()
    """Each attempt and when it began."""
    let_go: tuple[tuple[int, float], ...] = ()
    """Each attempt and when its lease was over, however that came."""
    ended: float | None = None
    result: str | None = None
    outside: bool = False
    """Whether its event log says that it was completed from outside."""
    overdue: bool = False
    """Whether it ended because it had waited too long."""
    replaced_by: str | None = None
    """The job that took its unique key."""
    asked_to_stop: bool = False
    """Whether its event log has a cancel."""
    begun_after_stop: bool = False
    costs: tuple[str, ...] = ()
    """The codes of its attempts that cost one."""
    lapses: tuple[Lapse, ...] = ()
    parts: tuple[int, ...] = ()
    """The attempts that wrote its parts, in the order of the parts."""
    said: int | None = None
    """The attempt that last told of progress."""
    chain: str | None = None
    after: tuple[str, ...] = ()
    key: str | None = None
    parent: str | None = None
    slot: float | None = None
    amount: int = 0
    wrong: str | None = None
    """What its event log says that does not lead to its state."""

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.state in LIVE

    def __str__(self) -> str:
        return f"{self.kind} {self.id} {self.state} attempt {self.attempt}"


@dataclass(slots=True)
class Found:
    """Everything that a run has left behind."""

    jobs: dict[str, Job]
    counts: dict[State, int]
    """By what the store counts."""
    ledger: list[tuple[str, int, int]] = field(default_factory=list)
    """Lines of effects: job, attempt, amount."""
    orders: list[str] = field(default_factory=list)
    """The jobs of the user's own rows."""
    slots: list[float] = field(default_factory=list)
    """Every slot that the schedule has passed."""
    complaints: list[str] = field(default_factory=list)
    """What workers logged as errors of their own, and those that would not stop."""
    blows: list[Blow] = field(default_factory=list)
    """The faults that were injected."""
    stalls: list[Stall] = field(default_factory=list)
    """What the machine took without a fault."""
    deaths: list[tuple[str, int]] = field(default_factory=list)
    """Workers that have ended though nobody had asked for it, each with its exit code."""
    workers: tuple[str, ...] = ()
    """The places of workers."""
    unlearnt: set[str] = field(default_factory=set)
    """Jobs of which their worker said that it cannot know whether they were completed."""
    admitted: set[str] = field(default_factory=set)
    """Workers that said, while they left, that the store did not take back what they held."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: what must be, and what is."""

    what: str
    expected: int
    found: int
    shown: tuple[str, ...] = ()
    """Some of those that do not add up."""

    @property
    def ok(self) -> bool:
        """Whether it adds up."""
        return self.expected == self.found and not self.shown


def balance(told: Told, found: Found) -> list[Line]:
    """Return all lines."""
    jobs = found.jobs
    return [
        *_acknowledged(told, jobs),
        *_counted(found),
        _none("jobs that nobody can explain", _unexplained(told, jobs)),
        _none("jobs whose transaction was rolled back", [str(jobs[one]) for one in told.undone if one in jobs]),
        _none("jobs that ended as they should not", _wrong_ends(jobs.values())),
        *_steered(told, jobs),
        *_ledger(found),
        _none("results of another attempt than the last: stale writes", _stale(jobs.values())),
        _none("results that are missing", [str(job) for job in jobs.values() if _lacks_result(job)]),
        _none("parts and progress of another attempt: stale writes", _stale_parts(jobs.values())),
        *_chains(jobs.values()),
        _none("waiters begun before what they wait for had ended", _early(jobs)),
        *_slots(found),
        _none("unique keys with two jobs at once", _key_clashes(jobs.values())),
        _none("jobs begun before one that stood ahead in its line", _passed(told.lines, jobs)),
        *_orders(found),
        _none("handlers with too many or too few children", _families(jobs.values())),
        _line(
            "event logs that lead to the state of the row",
            len(jobs),
            [f"{one}: {one.wrong}" for one in jobs.values() if one.wrong],
        ),
        *_failures(jobs.values()),
        *_lapses(found),
        _none("recoveries that took too long", too_long(found.blows, jobs, found.workers, found.stalls)),
        *_budgets(jobs.values()),
        _none("workers that ended, and nobody knows why", _unexplained_deaths(found)),
        _none("complaints of workers about themselves", found.complaints),
    ]


def notes(told: Told, found: Found) -> dict[str, int]:
    """Return figures that are as they are: how much was accounted for in which way."""
    jobs = found.jobs
    return {
        "acknowledged": len(told.acknowledged),
        "outcome unknown": len(told.unknown),
        "outcome unknown, and there": sum(one in jobs for one in told.unknown),
        "rolled back": len(told.undone),
        "unique keys found taken": told.held,
        "enqueued by handlers": sum(one.kind in CHILDREN for one in jobs.values()),
        "later steps of chains": sum(_is_later_step(one) for one in jobs.values()),
        "by the clock": sum(one.kind == TICK for one in jobs.values()),
        "attempts": sum(one.attempt for one in jobs.values()),
        "attempts after the first": sum(max(0, one.attempt - 1) for one in jobs.values()),
        "failures": sum(one.failures for one in jobs.values()),
        "cancels asked for": len(told.cancels),
        "completions from outside asked for": len(told.completions),
    } | _notes_of_lapses(found)


def _notes_of_lapses(found: Found) -> dict[str, int]:
    lapses = [lapse for job in found.jobs.values() for lapse in job.lapses]
    return {
        "failures for lapsed leases": len(lapses),
        "failures for lapsed leases that only a busy machine explains": sum(
            reasons(lapse, found.blows, found.stalls).only_busy for lapse in lapses
        ),
    }


# -- jobs ------------------------------------------------------------------------------------------------------------------


def _acknowledged(told: Told, jobs: Mapping[str, Job]) -> list[Line]:
    lost = [f"{kind} {one}" for one, kind in told.acknowledged.items() if one not in jobs]
    there = [jobs[one] for one in told.acknowledged if one in jobs]
    return [
        _line("acknowledged jobs that are in the store", len(told.acknowledged), lost),
        _line("acknowledged jobs that have ended", len(told.acknowledged), lost, [str(one) for one in there if one.live]),
    ]


def _counted(found: Found) -> list[Line]:
    rows = Counter(job.state for job in found.jobs.values())
    live = [str(job) for job in found.jobs.values() if job.live]
    counted = [
        Line(f"{state} by the store's count", rows[state], found.counts.get(state, 0))
        for state in (State.SUCCEEDED, State.FAILED, State.CANCELED)
    ]
    still = sum(found.counts.get(state, 0) for state in LIVE)
    return [_none("jobs left that have not ended", live), *counted, Line("live by the store's count", len(live), still)]


def _unexplained(told: Told, jobs: Mapping[str, Job]) -> list[str]:
    """Return jobs that nobody asked for: neither a producer, nor a handler, nor the step before, nor the clock."""
    return [
        str(job)
        for job in jobs.values()
        if job.id not in told.acknowledged
        and job.id not in told.unknown
        and job.id not in told.undone  # told of elsewhere
        and job.kind != TICK
        and not (job.kind in CHILDREN and job.parent in jobs)
        and not (_is_later_step(job) and job.chain in jobs)
    ]


def _is_later_step(job: Job) -> bool:
    return job.chain is not None and job.chain != job.id


def _wrong_ends(jobs: Iterable[Job]) -> list[str]:
    return [str(job) for job in jobs if not job.live and job.state not in ENDS.get(job.kind, {State.SUCCEEDED})]


def _stale(jobs: Iterable[Job]) -> list[str]:
    """Return jobs whose result was written by another attempt than the one that the store calls the last."""
    stale = []
    for job in jobs:
        expected = OUTSIDE if job.outside else f"attempt {job.attempt}"
        if job.state is State.SUCCEEDED and job.result is not None and job.result != expected:
            stale.append(f"{job}: the result is {job.result!r}")
    return stale


def _lacks_result(job: Job) -> bool:
    return job.state is State.SUCCEEDED and job.result is None and job.kind not in CONTINUING


def _stale_parts(jobs: Iterable[Job]) -> list[str]:
    """Return jobs with a part, or a word of progress, of an attempt that had no say any more.

    Parts are written one after the other, and none twice: the attempts that wrote them only grow. An attempt speaks of its
    progress after it has written a part. What it says is written before its outcome, so that the last part of the attempt that
    has succeeded is spoken of; an attempt that was cut off may have kept its word to itself.
    """
    stale = []
    for job in jobs:
        grows = all(one <= other for one, other in pairwise((*job.parts, job.attempt)))
        foreign = job.said is not None and job.said not in job.parts
        if not grows or foreign or (job.parts and _silent(job)):
            stale.append(f"{job}: parts by attempts {job.parts}, progress by {job.said}")
    return stale


def _silent(job: Job) -> bool:
    """Tell whether the last attempt did the last part, and its progress is not there."""
    return job.state is State.SUCCEEDED and job.parts[-1] == job.attempt and job.said != job.attempt


def _steered(told: Told, jobs: Mapping[str, Job]) -> list[Line]:
    """Compare what producers asked for, and were told, with how jobs have ended."""
    taken = [jobs[one] for one, asked in told.cancels.items() if asked.taken and one in jobs]
    done = [jobs[one] for one, asked in told.completions.items() if asked.taken and one in jobs]
    return [
        _none(
            "jobs canceled that nobody had canceled",
            [str(job) for job in jobs.values() if job.state is State.CANCELED and not _was_canceled(told, job, jobs)],
        ),
        _line("acknowledged cancels that are in the log", len(taken), [str(job) for job in taken if not job.asked_to_stop]),
        _none("jobs begun again after they were canceled", [str(job) for job in jobs.values() if job.begun_after_stop]),
        _none(
            "jobs completed from outside that nobody had completed",
            [str(job) for job in jobs.values() if job.outside and not _asked_for(told.completions.get(job.id))],
        ),
        _line("acknowledged completions that stand", len(done), [str(job) for job in done if not job.outside]),
    ]


def _was_canceled(told: Told, job: Job, jobs: Mapping[str, Job]) -> bool:
    if job.overdue:
        waited = 0.0 if job.ended is None else job.ended - job.created
        return job.kind == APPROVE and waited + CLOCK_SLACK >= APPROVED_WITHIN
    if job.replaced_by is not None:
        return job.replaced_by in jobs and job.key is not None and jobs[job.replaced_by].key == job.key
    return _asked_for(told.cancels.get(job.id))


def _asked_for(asked: Asked | None) -> bool:
    return asked is not None and not asked.in_vain


def _failures(jobs: Iterable[Job]) -> list[Line]:
    """Compare the failures of jobs with what became of their attempts."""
    unexplained, foreign = [], []
    for job in jobs:
        if job.failures != len(job.costs):
            unexplained.append(f"{job}: {job.failures} failures, its attempts: {', '.join(job.costs) or 'none'}")
        if job.kind not in ASKING and (codes := set(job.costs) - {LAPSED} - STUMBLING.get(job.kind, frozenset())):
            foreign.append(f"{job}: {', '.join(sorted(codes))}")
    return [
        _none("failures that no attempt explains", unexplained),
        _none("failures that are not the handler's", foreign),
    ]


def _lapses(found: Found) -> list[Line]:
    """Ask of every lapse that cost an attempt what befell its worker: some faults may cost one, most must not."""
    without, overcharged = [], []
    for job in found.jobs.values():
        for lapse in job.lapses:
            why = reasons(lapse, found.blows, found.stalls)
            if why.none:
                without.append(f"{job}: {lapse}")
            elif why.only_free and not (job.id in found.unlearnt or _left_in_vain(lapse, why, found)):
                overcharged.append(f"{job}: {lapse}: {', '.join(sorted({blow.fault for blow in why.blows}))}")
    return [
        _none("failures for lapsed leases without a fault", without),
        _none("failures for lapsed leases by faults that must be free", overcharged),
    ]


def _left_in_vain(lapse: Lapse, why: Reasons, found: Found) -> bool:
    """Tell whether its worker left while the store was away, and said so: each of the two alone must cost nothing."""
    return lapse.worker in found.admitted and len({blow.fault for blow in why.blows}) > 1


def _budgets(jobs: Iterable[Job]) -> list[Line]:
    """Compare failures with budgets, both ways: none is overdrawn, and nothing is given up before it is spent."""
    limited = [(job, job.budget) for job in jobs if job.budget is not None]
    return [
        _none("budgets exceeded", [str(job) for job, budget in limited if job.failures > budget]),
        _none(
            "jobs that failed with budget left",
            [
                f"{job}: {job.failures} failures of {budget}"
                for job, budget in limited
                if job.state is State.FAILED and job.failures < budget
            ],
        ),
    ]


def _unexplained_deaths(found: Found) -> list[str]:
    """Return workers that neither a job has killed nor a blocked loop has ended."""
    poisoned = {lapse.worker for job in found.jobs.values() if job.kind == POISON for lapse in job.lapses}
    blocked = {life for blow in found.blows if blow.fault in BLOCKING for life in blow.victim.split()}
    return [
        f"{life}: exit code {code}"
        for life, code in found.deaths
        if not ((code == KILLED and life in poisoned) or (code == BLOCKED and life in blocked))
    ]


# -- effects ---------------------------------------------------------------------------------------------------------------


def _ledger(found: Found) -> list[Line]:
    due = {job.id: job for job in found.jobs.values() if job.kind in EFFECTS and job.state is State.SUCCEEDED}
    lines = Counter(job for job, _, _ in found.ledger)
    last = {job: attempt for job, attempt, _ in found.ledger}
    return [
        _line("effects of succeeded jobs in the ledger", len(due), [str(job) for one, job in due.items() if not lines[one]]),
        _none("effects written more than once", [f"{job}: {count} lines" for job, count in lines.items() if count > 1]),
        _none("effects of jobs that did not succeed", [job for job in lines if job not in due]),
        _none(
            "effects of another attempt than the last: stale writes",
            [f"{job}: written by attempt {last[one]}" for one, job in due.items() if one in last and last[one] != job.attempt],
        ),
        Line("sum of the ledger", sum(job.amount for job in due.values()), sum(amount for _, _, amount in found.ledger)),
    ]


def _orders(found: Found) -> list[Line]:
    confirms = {job.id for job in found.jobs.values() if job.kind == CONFIRM}
    orders = set(found.orders)
    return [
        _line("rows of the user's own that have their job", len(orders), sorted(orders - confirms)),
        _line("jobs of a user's transaction that have their row", len(confirms), sorted(confirms - orders)),
    ]


# -- what follows from others ----------------------------------------------------------------------------------------------


def _chains(jobs: Iterable[Job]) -> list[Line]:
    """Compare the steps of every chain with what they should be."""
    steps: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if job.kind in STEPS:
            steps[job.chain or job.id].append(job)
    missing, doubled = [], []
    for chain, members in steps.items():
        kinds = Counter(job.kind for job in members)
        if lacking := [step for step in STEPS if not kinds[step]]:
            missing.append(f"chain {chain}: {', '.join(lacking)}")
        if twice := [step for step in STEPS if kinds[step] > 1]:
            doubled.append(f"chain {chain}: {', '.join(twice)}")
    return [_line("chains with each of their steps", len(steps), missing), _none("steps of chains that came twice", doubled)]


def _early(jobs: Mapping[str, Job]) -> list[str]:
    early = []
    for job in jobs.values():
        for blocker in job.after:
            ended = jobs[blocker].ended if blocker in jobs else None
            if job.claims and (ended is None or job.claims[0][1] + CLOCK_SLACK < ended):
                early.append(f"{job} before {blocker}")
    return early


def _families(jobs: Iterable[Job]) -> list[str]:
    """Return parents whose children are not as many as they should be.

    In the transaction that completes the parent there is exactly one. Otherwise there is one for each attempt at most, and at
    least one when the parent has succeeded.
    """
    parents = {job.id: job for job in jobs if job.kind in CHILDREN.values()}
    children = Counter(job.parent for job in jobs if job.kind in CHILDREN)
    wrong = []
    for one, parent in parents.items():
        done = parent.state is State.SUCCEEDED
        most = int(done) if parent.kind == "mother" else parent.attempt
        if not int(done) <= children[one] <= most:
            wrong.append(f"{parent}: {children[one]} children")
    return wrong


def _slots(found: Found) -> list[Line]:
    ticks = [job for job in found.jobs.values() if job.kind == TICK]
    made = Counter(job.slot for job in ticks if job.slot is not None)
    known = set(found.slots)
    return [
        _line(
            "slots of the schedule that have a job",
            len(found.slots),
            [f"slot {one:.0f}" for one in found.slots if not made[one]],
        ),
        _none(
            "slots of the schedule with more than one job", [f"slot {one}: {count}" for one, count in made.items() if count > 1]
        ),
        _none("jobs of no slot", [f"{job}: slot {job.slot}" for job in ticks if job.slot not in known]),
    ]


def _key_clashes(jobs: Iterable[Job]) -> list[str]:
    """Return pairs of jobs that had one key at one time: from their creation to their end, and surely while they ran."""
    holders: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        if job.key is not None:
            holders[job.key].append(job)
    clashes = []
    for key, members in holders.items():
        members.sort(key=lambda job: job.created)
        for first, second in pairwise(members):
            end = float("inf") if first.ended is None else first.ended
            began = second.claims[0][1] if second.claims else float("inf")
            if second.created + KEY_SLACK < end or began + CLOCK_SLACK < end:
                clashes.append(f"{key}: {first} and {second}")
    return clashes


def _passed(lines: Iterable[list[str]], jobs: Mapping[str, Job]) -> list[str]:
    """Return jobs that began before one that the same producer had enqueued earlier in a queue that keeps its order."""
    passed = []
    for line in lines:
        latest: Job | None = None
        for job in (jobs[one] for one in line if one in jobs and jobs[one].claims):
            if latest is not None and job.claims[0][1] < latest.claims[0][1]:
                passed.append(f"{job} before {latest}")
            else:
                latest = job
    return passed


# -- lines -----------------------------------------------------------------------------------------------------------------


def _line(what: str, expected: int, *missing: list[str]) -> Line:
    """Return a line for so many, of which some are not as they should be."""
    offenders = [one for some in missing for one in some]
    return Line(what, expected, expected - len(offenders), tuple(offenders[:SHOWN]))


def _none(what: str, offenders: list[str]) -> Line:
    """Return a line for what there must be none of."""
    return Line(what, 0, len(offenders), tuple(offenders[:SHOWN]))
