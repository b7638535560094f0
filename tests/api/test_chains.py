"""Chains: steps that follow one another, and one handle for all of them. On every store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec
import pytest

from holdfast import (
    AbortReason,
    BadArgs,
    BadJob,
    BadSetting,
    BadTask,
    Chain,
    Fatal,
    Holdfast,
    Job,
    JobCanceled,
    JobFailed,
    JobNotFound,
    NotAllowed,
    State,
)
from tests.api.blocking import in_thread
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.store.port import Answer

WAIT = 30.0


def looping(app: Holdfast) -> Any:
    """Declare a task that continues with itself until it has counted down, and another that starts it."""

    @app.task(name="loop")
    async def loop(left: int, *, job: Job) -> str:
        return job.continue_with(loop, left - 1) if left else "done"

    @app.task(name="start")
    async def start(left: int, *, job: Job) -> str:
        return job.continue_with(loop, left)

    return start


# -- following ---------------------------------------------------------------------------------------------------------------


async def test_the_result_of_a_chain_is_that_of_its_last_step(app: Holdfast) -> None:
    @app.task()
    async def first(number: int, *, job: Job) -> str:
        return job.continue_with(second, number + 1)

    @app.task()
    def second(number: int, *, job: Job) -> str:
        return job.continue_with(third.options(priority=9), number + 1)

    @app.task()
    async def third(number: int) -> str:
        return f"arrived with {number}"

    async with app.worker():
        chain = await first.start_chain(1)
        assert isinstance(chain, Chain)
        assert await chain.result(timeout=WAIT) == "arrived with 3"
        view = await chain.view()
    assert (view.id, view.task, view.step_task, view.steps, view.state) == (
        chain.id,
        first.name,
        third.name,
        3,
        State.SUCCEEDED,
    )
    steps = await chain.steps()
    assert [step.task for step in steps] == [first.name, second.name, third.name]
    assert {step.chain_id for step in steps} == {chain.id}
    assert [step.continued_by for step in steps] == [steps[1].id, steps[2].id, None]
    assert await chain.state() is State.SUCCEEDED
    assert [event.state for event in await chain.events()][-1] is State.SUCCEEDED
    assert (await chain.report()).id == steps[-1].id
    assert await chain.logs() == []


async def test_a_plain_job_that_continues_becomes_a_chain_and_its_handle_follows(app: Holdfast) -> None:
    start = looping(app)
    handle = await start.enqueue(3)
    assert not isinstance(handle, Chain)
    async with app.worker():
        assert await handle.result(timeout=WAIT) == "done"
        assert await handle.result(timeout=0) == "done"
    assert (await app.chain(handle.id).view()).steps == 5
    assert await app.chain(str(handle.id)).result(timeout=0) == "done"


async def test_a_loop_of_hundreds_of_steps_is_followed_and_listed(app: Holdfast) -> None:
    start = looping(app)
    async with app.worker(concurrency=2):
        chain = await start.start_chain(600)
        assert await chain.result(timeout=120) == "done"
    steps = await chain.steps()
    assert [msgspec.json.decode(step.args)["left"] for step in steps] == [600, *range(600, -1, -1)]


async def test_a_chain_of_one_is_a_chain(app: Holdfast) -> None:
    @app.task()
    async def only() -> int:
        return 7

    plain, chain = await only.enqueue(), await only.start_chain()
    assert (await app.chain(plain.id).view()).steps == 1
    assert [step.id for step in await app.chain(plain.id).steps()] == [plain.id]
    async with app.worker():
        assert await chain.result(timeout=WAIT) == 7
    assert [one.id for one in (await app.chains()).chains] == [chain.id], "a plain job that did not continue is not listed"


async def test_a_failed_step_fails_the_chain_and_a_retry_goes_on_from_there(app: Holdfast) -> None:
    broken = True

    @app.task()
    async def first(*, job: Job) -> str:
        return job.continue_with(second)

    @app.task()
    async def second() -> str:
        if broken:
            raise Fatal("no paper", code="PAPER")
        return "printed"

    async with app.worker():
        chain = await first.start_chain()
        with pytest.raises(JobFailed, match="no paper") as failed:
            await chain.result(timeout=WAIT)
        steps = await chain.steps()
        assert (failed.value.job_id, failed.value.code) == (steps[1].id, "PAPER")
        assert (await chain.view()).error is not None
        with pytest.raises(NotAllowed, match=rf"job {chain.id} is a step of chain {chain.id}, which has gone on"):
            await app.job(chain.id).retry()
        broken = False
        await chain.retry()
        assert await chain.result(timeout=WAIT) == "printed"
    assert [step.id for step in await chain.steps()] == [step.id for step in steps]


async def test_a_live_chain_is_not_brought_back(app: Holdfast) -> None:
    chain = await looping(app).start_chain(1)
    with pytest.raises(NotAllowed, match=f"chain {chain.id} is ready: only chains that have ended"):
        await chain.retry()


async def test_waiting_for_a_chain_gives_up_in_time(app: Holdfast) -> None:
    @app.task()
    async def first(*, job: Job) -> str:
        return job.continue_with(second.options(delay=60))

    @app.task()
    async def second() -> str:
        return "late"

    async with app.worker():
        chain = await first.start_chain()
        with pytest.raises(TimeoutError, match="it goes on"):
            await chain.result(timeout=0.3)

        async def stands() -> bool:
            return (await chain.view()).steps == 2

        await until(stands)
    assert await chain.state() is State.SCHEDULED
    with pytest.raises(TimeoutError, match="it goes on"):
        await chain.result(timeout=0)


# -- steering ----------------------------------------------------------------------------------------------------------------


async def test_cancel_ends_the_step_that_is_current_whichever_that_is(app: Holdfast) -> None:
    @app.task()
    async def endless(left: int, *, job: Job) -> str:
        return job.continue_with(endless, left + 1)

    async with app.worker():
        chain = await endless.start_chain(0)

        async def goes_on() -> bool:
            return (await chain.view()).steps > 5

        await until(goes_on)
        assert await chain.cancel("enough") is True
        with pytest.raises(JobCanceled):
            await chain.result(timeout=WAIT)
        assert await chain.cancel() is False
        steps = (await chain.view()).steps
    assert (await chain.view()).steps == steps, "nothing follows"


async def test_a_step_that_continues_just_before_it_is_canceled_is_followed(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task()
    async def first(*, job: Job) -> str:
        return job.continue_with(second.options(delay=60))

    @app.task()
    async def second() -> str:
        return "late"

    chain = await first.start_chain()
    store = app.client().store
    cancel, asked = store.cancel, list[UUID]()

    async def goes_on() -> bool:
        return (await chain.view()).steps == 2

    async def late(job_ids: Sequence[UUID], *, by: str = "", reason: str = "") -> list[Answer]:
        if not asked:
            async with app.worker():
                await until(goes_on)
        asked.extend(job_ids)
        return await cancel(job_ids, by=by, reason=reason)

    monkeypatch.setattr(store, "cancel", late)
    assert await chain.cancel("enough") is True
    assert asked == [step.id for step in await chain.steps()]
    assert await chain.state() is State.CANCELED


async def test_cancel_of_a_waiting_step_is_done_at_once(app: Holdfast) -> None:
    @app.task()
    async def only() -> None: ...

    chain = await only.options(delay=60).start_chain()
    assert await chain.cancel("not needed") is True
    with pytest.raises(JobCanceled, match="not needed"):
        await chain.result(timeout=WAIT)


async def test_a_deleted_chain_is_gone_and_its_running_handler_hears_not_found(app: Holdfast) -> None:
    reasons: list[AbortReason | None] = []

    @app.task()
    async def first(*, job: Job) -> str:
        return job.continue_with(second)

    @app.task()
    async def second(*, job: Job) -> str:
        try:
            await asyncio.sleep(WAIT)
        finally:
            reasons.append(job.abort.reason)
        return "too late"

    async with app.worker():
        chain = await first.start_chain()

        async def runs() -> bool:
            view = await chain.view()
            return view.steps == 2 and view.state is State.RUNNING

        await until(runs)
        assert await chain.delete() == (chain.id,)

        async def heard() -> bool:
            return bool(reasons)

        await until(heard)
    assert reasons == [AbortReason.NOT_FOUND]
    for method in (chain.state, chain.view, chain.steps, chain.cancel, chain.retry, chain.delete, chain.complete, chain.result):
        with pytest.raises(JobNotFound, match=str(chain.id)):
            await method()


async def test_a_chain_that_others_need_is_deleted_with_them_or_not_at_all(app: Holdfast) -> None:
    @app.task()
    async def source() -> int:
        return 1

    left, right = await source.start_chain(), await source.enqueue()
    middle = await source.options(after=[left, right]).start_chain()
    last = await source.options(after=middle).enqueue()
    with pytest.raises(NotAllowed, match=f"chain {left.id} cannot be deleted: job {middle.id} waits for it"):
        await left.delete()
    with pytest.raises(NotAllowed, match=f"chain {middle.id} cannot be deleted: job {last.id} waits for it"):
        await middle.delete(cascade=True)
    assert set(await app.chain(last.id).delete(cascade=True)) == {left.id, right.id, middle.id, last.id}
    assert (await app.stats())["live"] == 0


async def test_a_cascade_stops_where_something_outside_depends_on_it(app: Holdfast) -> None:
    @app.task()
    async def source() -> int:
        return 1

    shared = await source.start_chain()
    mine = await source.options(after=shared).start_chain()
    theirs = await source.options(after=shared).enqueue()
    with pytest.raises(NotAllowed, match=f"chain {shared.id} cannot be deleted: job {theirs.id} waits for it"):
        await mine.delete(cascade=True)
    assert await mine.state() is State.BLOCKED
    assert await mine.delete() == (mine.id,)


async def test_a_later_step_is_told_apart_from_its_chain(app: Holdfast) -> None:
    start = looping(app)
    async with app.worker():
        chain = await start.start_chain(1)
        await chain.result(timeout=WAIT)
    step = (await chain.steps())[1]
    for method in (app.chain(step.id).view, app.chain(step.id).cancel, app.chain(step.id).delete):
        with pytest.raises(BadSetting, match=f"job {step.id} is a step of chain {chain.id}"):
            await method()
    with pytest.raises(JobNotFound):
        await app.chain(uuid4()).view()


# -- what may follow ---------------------------------------------------------------------------------------------------------


async def test_a_continuation_that_was_not_declared_is_refused(app: Holdfast) -> None:
    @app.task(continues_with=["second"])
    async def first(wrong: bool, *, job: Job) -> str:  # noqa: FBT001  an arg
        return job.continue_with(other if wrong else second)

    @app.task()
    async def second() -> str:
        return "second"

    @app.task(name="other")
    async def other() -> str:
        return "other"

    async with app.worker():
        assert await (await first.start_chain(wrong=False)).result(timeout=WAIT) == "second"
        chain = await first.start_chain(wrong=True)
        with pytest.raises(JobFailed) as failed:
            await chain.result(timeout=WAIT)
    assert failed.value.code == "BAD_CONTINUATION"
    assert "'other'" in failed.value.error
    assert first.name in failed.value.error
    assert (await chain.view()).steps == 1


async def test_a_declared_continuation_may_be_a_task_or_the_name_of_one_declared_later(memory: Holdfast) -> None:
    @memory.task(name="last")
    async def last() -> None: ...

    @memory.task(continues_with=[last, "shop.pay", "neighbour"])
    async def first() -> None: ...

    with pytest.raises(BadTask, match=r"continues_with names 'neighbour', and there is no such task; there are"):
        memory.world()

    @memory.task(name=first.neighbour("neighbour"))
    async def neighbour() -> None: ...

    with pytest.raises(BadTask, match=r"continues_with names 'shop.pay', and there is no such task"):
        memory.worker()

    @memory.task(name="shop.pay")
    async def pay() -> None: ...

    assert set(memory.world().tasks) == {"last", "shop.pay", first.name, neighbour.name}
    assert [first.may_continue_with(name) for name in ("last", "shop.pay", neighbour.name, first.name)] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("continues_with", "says"),
    [("second", r"continues_with is a list: write continues_with=\['second'\]"), ([7], "holds tasks or their names, not 7")],
)
def test_a_declaration_that_says_nothing_is_refused(memory: Holdfast, continues_with: Any, says: str) -> None:
    with pytest.raises(BadTask, match=says):

        @memory.task(continues_with=continues_with)
        async def first() -> None: ...


async def test_wrong_args_of_a_next_step_fail_the_step_with_the_field_and_the_task(app: Holdfast) -> None:
    @app.task()
    async def first(*, job: Job) -> str:
        next_task: Any = second
        return str(job.continue_with(next_task, number="many"))

    @app.task(name="second")
    async def second(number: int) -> str:
        return str(number)

    async with app.worker():
        chain = await first.options(retry=1).start_chain()
        with pytest.raises(JobFailed) as failed:
            await chain.result(timeout=WAIT)
    assert "number" in failed.value.error
    assert "second" in failed.value.error
    assert (await chain.view()).steps == 1


async def test_a_wrong_result_of_the_last_step_fails_with_the_task(app: Holdfast) -> None:
    @app.task()
    async def first(*, job: Job) -> dict[str, int]:
        return job.continue_with(second)

    @app.task(name="second")
    async def second() -> dict[str, int]:
        wrong: Any = {"total": "many"}
        return wrong  # type: ignore[no-any-return]

    async with app.worker():
        chain = await first.start_chain()
        with pytest.raises(JobFailed, match=r"'second' refused at result\.total") as failed:
            await chain.result(timeout=WAIT)
    assert failed.value.code == "BAD_RESULT"


async def test_the_next_step_takes_options_id_delay_and_blockers(app: Holdfast) -> None:
    @app.task()
    async def source() -> int:
        return 20

    @app.task()
    async def first(next_id: str, blocker: str, *, job: Job) -> int:
        return job.continue_with(second.options(id=next_id, delay=0.01, after=app.job(blocker), key="second"), 1)

    @app.task()
    async def second(number: int, *, job: Job) -> int:
        (given,) = job.results(source)
        return number + given

    blocker = await source.options(delay=0.2).enqueue()
    next_id = app.new_id()
    async with app.worker():
        chain = await first.start_chain(str(next_id), str(blocker.id))
        assert await chain.result(timeout=WAIT) == 21
    view = await app.job(next_id).view()
    assert (view.chain_id, view.after, view.key) == (chain.id, (blocker.id,), "second")


# -- keys --------------------------------------------------------------------------------------------------------------------


async def test_the_key_of_the_first_step_is_held_until_the_chain_ends(app: Holdfast) -> None:
    release = asyncio.Event()

    @app.task(key="order")
    async def first(*, job: Job) -> str:
        return job.continue_with(second)

    @app.task()
    async def second() -> str:
        await release.wait()
        return "done"

    async with app.worker():
        chain = await first.start_chain()

        async def goes_on() -> bool:
            return (await chain.view()).steps == 2

        await until(goes_on)
        again = await first.start_chain()
        assert (again.created, again.id) == (False, chain.id)
        release.set()
        assert await again.result(timeout=WAIT) == "done"
        assert (await first.start_chain()).created


# -- lists -------------------------------------------------------------------------------------------------------------------


async def test_chains_are_listed_by_every_filter_and_in_pages(app: Holdfast) -> None:
    @app.task(name="a")
    async def task_a() -> None: ...

    @app.task(name="b", queue="b")
    async def task_b() -> None: ...

    ids = [(await task_a.start_chain()).id for _ in range(3)]
    tagged = await task_b.options(tags=["vip"], key="k").start_chain()
    ids.append(tagged.id)
    await app.chain(ids[0]).cancel()

    async def found(**where: Any) -> list[UUID]:
        return [chain.id for chain in (await app.chains(**where)).chains]

    assert await found() == ids[::-1]
    assert await found(task=task_b) == await found(task="b") == await found(queue="b") == [tagged.id]
    assert await found(tag="vip") == await found(key="k") == [tagged.id]
    assert await found(states=[State.CANCELED]) == await found(states="canceled") == [ids[0]]
    now = datetime.now(UTC)
    assert await found(created_from=now - timedelta(hours=1), created_before=now + timedelta(hours=1)) == ids[::-1]
    assert await found(created_before=now - timedelta(hours=1)) == []
    page = await app.chains(limit=3)
    assert [chain.id for chain in page.chains] == ids[:0:-1]
    rest = await app.chains(limit=3, after=page.after)
    assert [chain.id for chain in rest.chains] == [ids[0]]
    with pytest.raises(BadSetting, match="states= has 'broken'; there are blocked"):
        await app.chains(states=["broken"])


# -- from blocking code, and ids ----------------------------------------------------------------------------------------------


async def test_every_method_of_a_chain_has_a_blocking_twin(app: Holdfast) -> None:
    @app.task()
    async def only(number: int) -> int:
        return number

    def script() -> None:
        chain = only.start_chain_sync(1)
        other = only.options(delay=60).start_chain_sync(2)
        assert chain.state_sync() is State.READY
        assert chain.view_sync().steps == 1
        assert [step.id for step in chain.steps_sync()] == [chain.id]
        assert chain.complete_sync(5, by="anna").by == "anna"
        assert chain.result_sync(timeout=WAIT) == 5
        chain.retry_sync()
        assert chain.fail_sync("no", code="NO", by="bert").state is State.FAILED
        assert other.cancel_sync("no") is True
        assert len(app.chains_sync(states=["failed", "canceled"]).chains) == 2
        assert other.delete_sync() == (other.id,)
        assert chain.report_sync().id == chain.id
        assert chain.events_sync()
        assert chain.logs_sync() == []

    await in_thread(script)


async def test_a_blocking_call_of_a_chain_on_a_loop_names_the_one_to_use(memory: Holdfast) -> None:
    @memory.task()
    async def only() -> None: ...

    chain = await only.start_chain()
    calls: list[tuple[Callable[[], object], str]] = [
        (only.start_chain_sync, "start_chain"),
        (only.options().start_chain_sync, "start_chain"),
        (chain.view_sync, "view"),
        (chain.steps_sync, "steps"),
        (chain.delete_sync, "delete"),
        (chain.complete_sync, "complete"),
        (chain.fail_sync, "fail"),
        (memory.chains_sync, "chains"),
        (lambda: memory.complete_sync(chain.id), "complete"),
        (lambda: memory.fail_sync(chain.id), "fail"),
        (lambda: memory.signal_sync("a"), "signal"),
        (lambda: memory.group_sync([only.call()]), "group"),
    ]
    for call, name in calls:
        with pytest.raises(RuntimeError, match=rf"{name}_sync was called inside a running event loop.* await ….{name}\("):
            call()


async def test_an_id_may_be_chosen_once(app: Holdfast) -> None:
    @app.task()
    async def note(number: int) -> int:
        return number

    wanted = app.new_id()
    first = await note.options(id=wanted).enqueue(1)
    again = await note.options(id=str(wanted)).enqueue(1)
    assert (first.id, first.created, again.id, again.created) == (wanted, True, wanted, False)
    with pytest.raises(BadJob, match=r"id must be a UUIDv7|id.*must be a UUIDv7"):
        await note.options(id=uuid4()).enqueue(1)
    with pytest.raises(BadJob, match="nonsense is no job id"):
        note.options(id="nonsense")
    with pytest.raises(BadArgs):
        await note.start_chain("one")  # type: ignore[arg-type]
