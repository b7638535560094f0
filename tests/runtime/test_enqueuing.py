"""Callers who enqueue at the same moment: they share a commit, and not each other's troubles."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.job import NewJob, Unique
from holdfast.errors import BadJob, KeyBusy, StoreUnavailable
from holdfast.notify.hub import Hub
from holdfast.notify.local import LocalNotifier
from holdfast.notify.port import Hint
from holdfast.runtime.enqueuing import Enqueuer
from holdfast.store.port import Enqueue, Enqueued
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.lease import Lease
    from holdfast.store.port import Notice


class Desk:
    """A store that writes down the calls it gets, and in which one key is busy until the gate opens."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.gate = asyncio.Event()
        self.busy = "hot"

    async def enqueue(
        self,
        jobs: Sequence[NewJob],
        *,
        under: Lease | None = None,
        caps: Mapping[str, int] | None = None,
        notice: Notice | None = None,
    ) -> list[Enqueued]:
        self.calls.append([job.task for job in jobs])
        if any(job.task == "bad" for job in jobs):
            raise BadJob("no", path="after")
        if any(job.unique is not None and job.unique.key == self.busy for job in jobs):
            await self.gate.wait()
            self.gate.clear()
            raise KeyBusy([self.busy])
        await asyncio.sleep(0)
        return [Enqueued(Enqueue.CREATED, job.id) for job in jobs]


def a_job(task: str, key: str | None = None) -> NewJob:
    unique = None if key is None else Unique(key=key, scope="t")
    return NewJob(id=SystemEnvironment().job_id(), task=task, unique=unique)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def enqueuer(desk: Desk) -> Enqueuer:
    store: Any = desk
    return Enqueuer(store, LocalNotifier(Hub()))


async def settled(*tasks: asyncio.Task[Any]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_callers_that_come_together_share_a_call(desk: Desk, enqueuer: Enqueuer) -> None:
    answers = await asyncio.gather(*[enqueuer.enqueue([a_job(name)], {}) for name in ("a", "b", "c")])
    assert [len(answer) for answer in answers] == [1, 1, 1]
    assert desk.calls == [["a", "b", "c"]]


async def test_a_refused_job_does_not_take_its_neighbours_along(desk: Desk, enqueuer: Enqueuer) -> None:
    good, bad = (asyncio.create_task(enqueuer.enqueue([a_job(name)], {})) for name in ("good", "bad"))
    first, second = await settled(good, bad)
    assert first[0].status is Enqueue.CREATED
    assert isinstance(second, BadJob)


async def test_a_busy_key_is_waited_for_apart_from_everybody_else(desk: Desk, enqueuer: Enqueuer) -> None:
    hot = [asyncio.create_task(enqueuer.enqueue([a_job("hot", "hot")], {})) for _ in range(10)]
    plain = asyncio.create_task(enqueuer.enqueue([a_job("plain")], {}))
    await asyncio.sleep(0)
    desk.gate.set()  # the call that all share finds the key busy; the next one waits until it is opened again

    assert (await plain)[0].status is Enqueue.CREATED, "it wants no key, and waited for one"
    assert (await enqueuer.enqueue([a_job("later")], {}))[0].status is Enqueue.CREATED
    again = asyncio.create_task(enqueuer.enqueue([a_job("hot", "hot")], {}))
    cold = asyncio.create_task(enqueuer.enqueue([a_job("cold", "cold")], {}))
    assert (await cold)[0].status is Enqueue.CREATED, "another key is not busy"
    assert not any(task.done() for task in (*hot, again))

    for _ in range(2):
        desk.gate.set()
        await asyncio.sleep(0.01)
    assert {type(answer) for answer in await settled(*hot, again)} == {KeyBusy}
    assert len([call for call in desk.calls if "hot" in call]) == 3, "one wait answers all who want the same"


async def test_a_busy_key_of_a_caller_alone_is_answered_after_one_wait(desk: Desk, enqueuer: Enqueuer) -> None:
    desk.gate.set()
    with pytest.raises(KeyBusy):
        await enqueuer.enqueue([a_job("hot", "hot")], {})
    assert desk.calls == [["hot"]]


async def test_closing_waits_for_what_is_written_apart(desk: Desk, enqueuer: Enqueuer) -> None:
    hot = [asyncio.create_task(enqueuer.enqueue([a_job("hot", "hot")], {})) for _ in range(2)]
    await asyncio.sleep(0)
    desk.gate.set()
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(enqueuer.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    desk.gate.set()
    await closing
    assert {type(answer) for answer in await settled(*hot)} == {KeyBusy}


class Carrying(LocalNotifier):
    """A notifier that has something to send with every commit."""

    def __init__(self) -> None:
        super().__init__(Hub())
        self.heard: list[tuple[Hint, bool]] = []

    def with_commit(self, hint: Hint) -> str:  # type: ignore[override]
        return ",".join(hint.queues)

    def hint(self, hint: Hint, *, told: bool = False) -> None:
        self.heard.append((hint, told))


@pytest.mark.parametrize("carried", [True, False])
async def test_others_are_told_after_the_commit_unless_it_told_them(carried: bool) -> None:  # noqa: FBT001  a parameter
    class Store(Desk):
        async def enqueue(self, jobs: Sequence[NewJob], **options: Any) -> list[Enqueued]:
            notice = options["notice"]
            if carried:
                assert notice.text() == "default"
                notice.sent = True
            return [Enqueued(Enqueue.CREATED, job.id) for job in jobs]

    notifier = Carrying()
    job = a_job("t")
    await Enqueuer(Store(), notifier).enqueue([job], {})  # type: ignore[arg-type]
    assert notifier.heard == [(Hint(frozenset({"default"}), ready=(job.id,)), carried)]


async def test_its_own_process_looks_where_an_enqueue_may_have_been_committed() -> None:
    """Others have heard of it then; and a repeated enqueue finds its jobs there, of which nobody here has heard."""

    class Store(Desk):
        lost = True

        async def enqueue(self, jobs: Sequence[NewJob], **_options: Any) -> list[Enqueued]:
            if self.lost:
                self.lost = False
                raise StoreUnavailable("db", 0.1, "the connection was lost")
            return [Enqueued(Enqueue.REPEATED, job.id) for job in jobs]

    notifier = Carrying()
    enqueuer = Enqueuer(Store(), notifier)  # type: ignore[arg-type]
    job = a_job("t")
    with pytest.raises(StoreUnavailable):
        await enqueuer.enqueue([job], {})
    await enqueuer.enqueue([job], {})
    unknown, known = Hint(frozenset({"default"})), Hint(frozenset({"default"}), ready=(job.id,))
    assert notifier.heard == [(unknown, True), (known, False)]
