"""The processes of a manager, with a clock of the test's own: when what crashed is started again, and how many there are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from holdfast.core.scaling import Scaling
from holdfast.errors import BadSetting
from holdfast.fleet import crew as module
from holdfast.fleet.crew import FIRST_REST, LONGEST_REST, STEADY, Crew, Member
from holdfast.fleet.heavy import FIRST_PAUSE, LONGEST_PAUSE
from holdfast.fleet.memory import MEGABYTE
from holdfast.fleet.options import ManagerOptions
from holdfast.runtime import counters as count
from holdfast.runtime.counters import MemoryCounters


class World:
    """A clock that stands still, and chance that is always the same."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def random(self) -> float:
        return 1.0  # rests are cut by nothing


class Process:
    """A process that lives until a test ends it, and what it was told."""

    def __init__(self, *_: Any) -> None:
        self.id = id(self)
        self.code: int | None = None
        self.ends = False
        self.told: list[str] = []

    def ended(self) -> int | None:
        return self.code

    def ask_to_stop(self) -> None:
        self.told.append("stop")

    def rest(self) -> None:
        self.told.append("rest")

    def wake(self) -> None:
        self.told.append("wake")


def fake(member: Member) -> Process:
    """Return the process of a member as what it is here."""
    assert isinstance(member.process, Process)
    return member.process


class Scene:
    """A crew on that clock."""

    def __init__(self, most: int = 3, **options: Any) -> None:
        self.world = World()
        self.counters = MemoryCounters()
        made = ManagerOptions(name="m", scaling=Scaling(default_count=1, max_count=most), **options)
        self.allowed: list[int | None] = []

        def command(name: str, jobs: int | None) -> list[str]:
            self.allowed.append(jobs)
            return [name]

        self.crew = Crew(made, self.world, self.counters, command)  # type: ignore[arg-type]  # no more of it is used

    def up(self, *names: str) -> None:
        """Have workers be seen up; all, where none is named."""
        self.runs(**{member.name.replace(".", ""): 0 for member in self.crew.members if not names or member.name in names})

    def runs(self, **jobs: int) -> None:
        """Have workers be seen up that hold so many jobs."""
        self.crew.seen({one.process_id: jobs[key] for one in self.crew.members if (key := one.name.replace(".", "")) in jobs})

    def told(self, name: str) -> list[str]:
        """Return what a worker was told."""
        return fake(next(member for member in self.crew.members if member.name == name)).told

    def end(self, code: int) -> None:
        """Have every worker end with this code, and the manager notice."""
        for member in self.crew.members:
            fake(member).code = code
        self.crew.keep_up()

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.crew.members]

    def rested(self) -> float:
        """Return the seconds after which the next worker is started, in steps of a quarter."""
        began = self.world.now
        while not self.crew.members:
            self.world.now += 0.25
            self.crew.keep_up()
        return self.world.now - began


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WorkerProcess", Process)


def test_what_crashes_again_and_again_is_started_ever_later_and_at_last_every_half_minute() -> None:
    scene = Scene()
    scene.crew.wanted = 1
    scene.crew.keep_up()
    rests = []
    for _ in range(9):
        scene.end(1)
        rests.append(scene.rested())
    assert rests == [FIRST_REST, 1, 2, 4, 8, 16, LONGEST_REST, LONGEST_REST, LONGEST_REST]
    assert scene.counters.snapshot()[count.CRASHED] == 9


def test_a_machine_without_room_for_a_process_costs_no_worker_that_is_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.crew.wanted = 1
    scene.crew.keep_up()
    refusals = 3

    def refused(*of: Any) -> Process:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return Process(*of)

    monkeypatch.setattr(module, "WorkerProcess", refused)
    scene.crew.wanted = 2
    began = scene.world.now
    while len(scene.crew.members) < 2:
        scene.crew.keep_up()
        scene.world.now += 0.25
    assert scene.world.now - began >= FIRST_REST + 1 + 2
    assert [member.process.ended() for member in scene.crew.members] == [None, None]
    said = [record.getMessage() for record in caplog.records]
    assert "a worker cannot be started: [Errno 11] Resource temporarily unavailable; it is tried again in 0.5 s" in said
    assert scene.counters.snapshot().get(count.CRASHED, 0) == 0


def test_crashes_are_forgotten_once_a_worker_has_lived_for_a_while() -> None:
    scene = Scene()
    scene.crew.wanted = 1
    scene.crew.keep_up()
    for _ in range(4):
        scene.end(1)
        scene.rested()
    scene.world.now += STEADY
    scene.crew.keep_up()
    scene.end(1)
    assert scene.rested() == FIRST_REST


def test_a_worker_that_was_there_before_does_not_have_crashes_forgotten() -> None:
    scene = Scene()
    scene.crew.wanted = 2
    scene.crew.keep_up()
    steady, crashing = scene.crew.members
    scene.world.now += STEADY
    rests = []
    for _ in range(6):
        fake(crashing).code = 1
        scene.crew.keep_up()
        began = scene.world.now
        while len(scene.crew.members) < 2:
            scene.world.now += 0.25
            scene.crew.keep_up()
        rests.append(scene.world.now - began)
        (crashing,) = (member for member in scene.crew.members if member is not steady)
    assert rests == [FIRST_REST, 1, 2, 4, 8, 16]
    scene.world.now += STEADY
    scene.crew.keep_up()
    scene.end(1)
    assert scene.rested() <= 2 * FIRST_REST, "the one that came last has lived for long, and now both have crashed"


@pytest.mark.parametrize("up", [False, True], ids=["before it was up", "after that"])
def test_what_ends_with_0_and_never_said_so_has_crashed(caplog: pytest.LogCaptureFixture, *, up: bool) -> None:
    scene = Scene()
    scene.crew.wanted = 1
    scene.crew.keep_up()
    rests = []
    for _ in range(4):
        if up:
            scene.up()
        scene.end(0)
        rests.append(scene.rested())
    assert rests == [FIRST_REST, 1, 2, 4]
    assert scene.counters.snapshot() | {count.CRASHED: 4, count.RECYCLED: 0} == scene.counters.snapshot() | {count.RECYCLED: 0}
    how = "ended with code 0" + ("" if up else " before it was up")
    assert scene.crew.crashing == f"worker m.4 {how}, 4 times in a row"
    assert f"worker m.1 {how}; it is replaced in 0.5 s" in caplog.text
    scene.world.now += STEADY
    scene.crew.keep_up()
    assert scene.crew.crashing == ""


@pytest.mark.parametrize(("code", "crashed"), [(0, 0), (-15, 0), (-9, 1), (75, 1)])
def test_who_crashes_while_it_ends_is_counted_and_keeps_nobody_from_being_started(code: int, crashed: int) -> None:
    scene = Scene(most=3)
    scene.crew.wanted = 2
    scene.crew.keep_up()
    scene.up()
    scene.crew.wanted = 1
    scene.crew.keep_up()
    fake(scene.crew.members[0]).code = code
    scene.crew.wanted = 2
    scene.crew.keep_up()
    assert scene.names == ["m.2", "m.3"]
    assert scene.counters.snapshot().get(count.CRASHED, 0) == crashed


def test_what_has_ended_by_itself_is_replaced_at_once_and_is_no_crash() -> None:
    scene = Scene()
    scene.crew.wanted = 1
    scene.crew.keep_up()
    scene.crew.members[0].process.ends = True
    scene.end(0)
    assert scene.names == ["m.2"]
    snapshot = scene.counters.snapshot()
    assert (snapshot[count.RECYCLED], snapshot.get(count.CRASHED, 0)) == (1, 0)


def test_those_that_drain_take_room_and_are_not_asked_twice() -> None:
    scene = Scene()
    scene.crew.wanted = 3
    scene.crew.keep_up()
    leaving = scene.crew.members[0]
    scene.crew.drain(leaving)
    scene.crew.drain(leaving)
    scene.crew.keep_up()
    assert scene.names == ["m.1", "m.2", "m.3"], "there are as many processes as there may be"
    assert fake(leaving).told == ["stop"]
    fake(leaving).code = 0
    scene.crew.keep_up()
    assert scene.names == ["m.2", "m.3", "m.4"]
    assert scene.counters.snapshot().get(count.RECYCLED, 0) == 0


def test_who_is_let_go_rests_the_one_that_runs_the_least_first_and_one_that_is_not_up_ends() -> None:
    scene = Scene(most=4, slots=4)
    scene.crew.wanted = 4
    scene.crew.keep_up()
    scene.runs(m1=3, m2=1, m3=2)
    scene.crew.wanted = 2
    scene.crew.keep_up()
    assert [scene.told(name) for name in scene.names] == [[], ["rest"], [], ["stop"]]
    assert ([one.name for one in scene.crew.resting], scene.crew.draining) == (["m.2"], 1)
    assert scene.counters.snapshot()[count.DRAINING] == 2


def test_who_was_let_go_is_taken_back_before_another_is_started_unless_it_is_full() -> None:
    scene = Scene(most=4, slots=4)
    scene.crew.wanted = 3
    scene.crew.keep_up()
    scene.runs(m1=5, m2=4, m3=1)
    scene.crew.wanted = 1
    scene.crew.keep_up()
    assert [one.name for one in scene.crew.resting] == ["m.3", "m.2"]
    scene.crew.wanted = 2
    scene.crew.keep_up()
    assert (scene.told("m.3"), scene.names) == (["rest", "wake"], ["m.1", "m.2", "m.3"])
    scene.crew.wanted = 3
    scene.crew.keep_up()
    assert (scene.told("m.2"), scene.names) == (["rest"], ["m.1", "m.2", "m.3", "m.4"]), "a new one has slots that are free"
    scene.crew.wanted = 4
    scene.crew.keep_up()
    assert (scene.told("m.2"), scene.names) == (["rest", "wake"], ["m.1", "m.2", "m.3", "m.4"]), "there is no room for another"
    assert (scene.crew.resting, scene.crew.draining) == ([], 0)


def test_in_place_of_one_that_crashed_another_is_taken_back_without_a_rest() -> None:
    scene = Scene(most=2, slots=4)
    scene.crew.wanted = 2
    scene.crew.keep_up()
    scene.runs(m1=2, m2=1)
    scene.crew.wanted = 1
    scene.crew.keep_up()
    assert [one.name for one in scene.crew.resting] == ["m.2"]
    fake(scene.crew.members[0]).code = -9
    scene.crew.keep_up()
    assert (scene.names, scene.told("m.2")) == (["m.2"], ["rest", "wake"])


@pytest.mark.parametrize("says", [True, False], ids=["and says so before", "and says so after"])
def test_one_that_ends_just_as_it_is_taken_back_is_replaced(*, says: bool) -> None:
    scene = Scene(most=2, slots=4)
    scene.crew.wanted = 2
    scene.crew.keep_up()
    scene.runs(m1=2, m2=1)
    scene.crew.wanted = 1
    scene.crew.keep_up()
    leaving = fake(scene.crew.members[1])
    leaving.ends = says
    scene.crew.wanted = 2
    scene.crew.keep_up()
    assert scene.told("m.2") == (["rest"] if says else ["rest", "wake"])
    leaving.ends, leaving.code = True, 0
    scene.crew.keep_up()
    assert scene.names == ["m.1", "m.3"]
    assert scene.counters.snapshot().get(count.CRASHED, 0) == 0


def test_one_that_ends_by_itself_has_a_successor_before_it_has_ended_where_there_is_room() -> None:
    scene = Scene(most=2)
    scene.crew.wanted = 1
    scene.crew.keep_up()
    scene.up()
    scene.crew.members[0].process.ends = True
    scene.crew.keep_up()
    assert (scene.names, scene.crew.draining) == (["m.1", "m.2"], 1)
    fake(scene.crew.members[0]).code = 0
    scene.crew.keep_up()
    assert (scene.names, scene.counters.snapshot()[count.RECYCLED]) == (["m.2"], 1)


def test_workers_are_not_replaced_after_the_same_number_of_jobs() -> None:
    scene = Scene(max_jobs=100)
    scene.crew.wanted = 1
    scene.crew.keep_up()
    scene.world.random = lambda: 0.0  # type: ignore[method-assign]
    scene.crew.members[0].process.ends = True
    scene.end(0)
    assert scene.allowed == [110, 90]


LIMIT = 100 * MEGABYTE


class Scale:
    """What the workers of a scene weigh, in megabytes, and who leaves for it."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch, usual: int = 50, **taken: int) -> None:
        self.scene = scene
        self.usual = usual
        self.taken = {f"m.{name[1:]}": weight for name, weight in taken.items()}
        monkeypatch.setattr(module, "memory_of", self.weigh)

    def weigh(self, process: int) -> int:
        member = next(one for one in self.scene.crew.members if one.process_id == process)
        return self.taken.get(member.name, self.usual) * MEGABYTE

    def leaving(self) -> list[str]:
        """Let them be weighed once; returns those that have been asked to go and are there."""
        self.scene.world.now += 10
        self.scene.crew.keep_up()
        return [member.name for member in self.scene.crew.members if member.drains]


def test_one_worker_at_a_time_is_replaced_for_its_memory_the_heaviest_first_once_its_successor_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(max_memory=LIMIT)
    scale = Scale(scene, monkeypatch, m1=150, m2=200)
    scene.crew.wanted = 2
    scene.crew.keep_up()
    scene.up()
    assert scale.leaving() == []
    assert scene.names == ["m.1", "m.2", "m.3"], "the successor is started first"
    assert scale.leaving() == [], "it is not up yet"
    scene.up()
    assert scale.leaving() == ["m.2"]
    assert scale.leaving() == ["m.1", "m.2"], "the first has its successor, and for the next there is no room: one works on"
    for _ in range(3):
        assert scale.leaving() == ["m.1", "m.2"]
    fake(scene.crew.members[1]).code = 0
    scene.crew.keep_up()
    assert scene.names == ["m.1", "m.3", "m.4"]


def test_the_only_worker_is_replaced_without_a_moment_in_which_none_works(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(max_memory=LIMIT)
    scale = Scale(scene, monkeypatch, m1=150)
    scene.crew.wanted = 1
    scene.crew.keep_up()
    scene.up()
    for _ in range(5):
        assert scale.leaving() == []
    scene.up()
    assert scale.leaving() == ["m.1"]
    fake(scene.crew.members[0]).code = 0
    assert scale.leaving() == []
    assert scene.names == ["m.2"]


def test_a_worker_is_not_weighed_before_it_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(max_memory=LIMIT)
    scale = Scale(scene, monkeypatch, usual=900)
    scene.crew.wanted = 2
    scene.crew.keep_up()
    for _ in range(10):
        assert scale.leaving() == []
    assert scene.names == ["m.1", "m.2"]


def test_where_only_one_process_is_allowed_it_goes_and_its_successor_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(most=1, max_memory=LIMIT)
    scale = Scale(scene, monkeypatch, m1=150)
    scene.crew.wanted = 1
    scene.crew.keep_up()
    scene.up()
    assert scale.leaving() == ["m.1"]
    fake(scene.crew.members[0]).code = 0
    assert scale.leaving() == []
    assert scene.names == ["m.2"]


def test_memory_is_watched_over_while_a_worker_drains_for_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(max_memory=LIMIT)
    scale = Scale(scene, monkeypatch, m2=200, m3=300)
    scene.crew.wanted = 3
    scene.crew.keep_up()
    scene.up()
    scene.crew.drain(scene.crew.members[0])  # and there is no room for another
    scene.crew.wanted = 2
    assert scale.leaving() == ["m.1", "m.3"]
    assert scale.leaving() == ["m.1", "m.3"], "the last that works on stays, until another has come"
    fake(scene.crew.members[0]).code = 0
    assert scale.leaving() == ["m.3"]
    assert scene.names == ["m.2", "m.3", "m.4"]
    assert scale.leaving() == ["m.3"], "the other has been started, and is not up"
    scene.up()
    assert scale.leaving() == ["m.2", "m.3"]


def test_where_every_new_worker_takes_too_much_it_is_replaced_ever_more_rarely_and_it_is_said_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(max_memory=LIMIT)
    Scale(scene, monkeypatch, usual=150)
    scene.crew.wanted = 2
    went, least = [], 2
    for second in range(4 * 3600):
        scene.world.now += 1
        scene.crew.keep_up()
        for member in [one for one in scene.crew.members if one.drains]:
            fake(member).code = 0
            went.append(second)
        if second % 3 == 0:  # an import takes its time
            scene.up()
            least = min(least, sum(member.up_at is not None for member in scene.crew.staying)) if second > 3 else least
    assert least == 2, "there are as many as are wanted all the time"
    assert len([at for at in went if at < 60]) <= 3
    rests = [later - earlier for earlier, later in pairwise(went)]
    assert FIRST_PAUSE < rests[0] < rests[2] < rests[4]
    assert LONGEST_PAUSE <= rests[-1] <= LONGEST_PAUSE + 15
    assert "takes 150 MB as soon as it is up and max_memory is 100 MB" in scene.crew.too_heavy
    assert "raise max_memory" in scene.crew.too_heavy


def test_a_rest_is_over_when_a_worker_came_that_takes_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(max_memory=LIMIT)
    scale = Scale(scene, monkeypatch, m1=150, m2=150)
    scene.crew.wanted = 1
    scene.crew.keep_up()
    scene.up()
    scene.world.now += 2
    scene.crew.keep_up()
    assert scene.crew.too_heavy.startswith("m.1 takes 150 MB as soon as it is up")
    assert scale.leaving() == []
    scene.up()
    scene.world.now += 2
    scene.crew.keep_up()
    assert [member.name for member in scene.crew.members if member.drains] == ["m.1"]
    fake(scene.crew.members[0]).code = 0
    scene.world.now += 2
    scene.crew.keep_up()
    assert scene.crew.too_heavy.startswith("m.2 takes")
    scale.leaving()
    scene.up()
    assert scale.leaving() == ["m.2"]
    scale.leaving()
    assert scene.crew.too_heavy == "", "m.3 is well"


@pytest.mark.parametrize("size", [1, 5, 512, 31 * MEGABYTE])
def test_a_limit_below_what_every_worker_takes_is_refused_with_the_unit(size: int) -> None:
    with pytest.raises(BadSetting, match=r"max_memory must be 32 MB or more, .*512MB"):
        ManagerOptions(name="m", max_memory=size)
