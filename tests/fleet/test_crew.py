"""The processes of a manager, with a clock of the test's own: when what crashed is started again, and how many there are."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.scaling import Scaling
from holdfast.fleet import crew as module
from holdfast.fleet.crew import FIRST_REST, LONGEST_REST, STEADY, Crew
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
    """A process that lives until a test ends it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.pid = id(self)
        self.returncode: int | None = None
        self.terminated = 0

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self.terminated += 1


class Scene:
    """A crew on that clock."""

    def __init__(self, **options: Any) -> None:
        self.world = World()
        self.counters = MemoryCounters()
        made = ManagerOptions(name="m", scaling=Scaling(default_count=1, max_count=3), **options)
        self.allowed: list[int | None] = []

        def command(name: str, jobs: int | None) -> list[str]:
            self.allowed.append(jobs)
            return [name]

        self.crew = Crew(made, self.world, self.counters, command)  # type: ignore[arg-type]  # no more of it is used

    def end(self, code: int) -> None:
        """Have every worker end with this code, and the manager notice."""
        for member in self.crew.members:
            member.process.returncode = code
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
    monkeypatch.setattr("subprocess.Popen", Process)


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


def test_what_has_ended_by_itself_is_replaced_at_once_and_is_no_crash() -> None:
    scene = Scene()
    scene.crew.wanted = 1
    scene.crew.keep_up()
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
    assert leaving.process.terminated == 1  # type: ignore[attr-defined]
    leaving.process.returncode = 0
    scene.crew.keep_up()
    assert scene.names == ["m.2", "m.3", "m.4"]
    assert scene.counters.snapshot().get(count.RECYCLED, 0) == 0


def test_workers_are_not_replaced_after_the_same_number_of_jobs() -> None:
    scene = Scene(max_jobs=100)
    scene.crew.wanted = 1
    scene.crew.keep_up()
    scene.world.random = lambda: 0.0  # type: ignore[method-assign]
    scene.end(0)
    assert scene.allowed == [110, 90]


def test_one_worker_at_a_time_is_replaced_for_its_memory_the_heaviest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(max_memory=100)
    taken = {"m.1": 150, "m.2": 200}

    def weigh(process: int) -> int:
        return next(taken.get(member.name, 10) for member in scene.crew.members if member.process_id == process)

    def leaving() -> list[str]:
        scene.world.now += 10
        scene.crew.keep_up()
        return [member.name for member in scene.crew.members if member.drains]

    monkeypatch.setattr(module, "memory_of", weigh)
    scene.crew.wanted = 2
    scene.crew.keep_up()
    assert leaving() == ["m.2"]
    assert leaving() == ["m.2"], "the other waits for it to end"
    next(member for member in scene.crew.members if member.drains).process.returncode = 0
    assert leaving() == ["m.1"]
