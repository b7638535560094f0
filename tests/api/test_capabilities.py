"""Jobs that only some workers can run. On every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BadJob, BadSetting, BadTask, Holdfast, State
from holdfast.store.port import Beat, ClaimRequest, Worker
from holdfast.testing import drain
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT = 20.0


async def test_a_job_is_claimed_only_by_a_worker_that_has_what_it_requires(app: Holdfast) -> None:
    @app.task(requires={"gpu", "nvenc"})
    async def encode() -> None: ...

    @app.task()
    async def note() -> None: ...

    encoding = await encode.enqueue()
    async with app.worker(name="plain"), app.worker(name="half", capabilities={"gpu"}):
        # enqueued later and done: both have looked, and left the other one where it stands
        for _ in range(5):
            await (await note.enqueue()).result(timeout=WAIT)
        assert await encoding.state() is State.READY
        async with app.worker(name="able", capabilities=["nvenc", "gpu", "more"]):
            await encoding.result(timeout=WAIT)
    assert [attempt.worker for attempt in (await encoding.report()).attempts] == ["able"]


async def test_a_worker_finds_out_what_it_has(app: Holdfast) -> None:
    @app.task(requires={"gpu", "tape"})
    async def encode() -> None: ...

    @app.capabilities
    async def found() -> set[str]:
        return {"gpu"}

    encoding = await encode.enqueue()
    async with app.worker(name="able", capabilities={"tape"}) as worker:
        await encoding.result(timeout=WAIT)
        assert worker.worker.capabilities == ("gpu", "tape")


async def test_an_enqueue_may_require_something_else(app: Holdfast) -> None:
    @app.task(requires={"gpu"})
    async def encode() -> None: ...

    plain, special = await encode.options(requires=()).enqueue(), await encode.options(requires={"tape"}).enqueue()
    async with app.worker():
        await plain.result(timeout=WAIT)
    view = await special.view()
    assert view is not None
    assert (view.state, view.requires) == (State.READY, ("tape",))


async def test_a_test_drains_whatever_its_tasks_require(memory: Holdfast) -> None:
    @memory.task(requires={"gpu"})
    async def encode() -> str:
        return "encoded"

    encoding = await encode.enqueue()
    await drain(memory)
    assert await encoding.result(timeout=WAIT) == "encoded"


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda app: app.task(requires="gpu"), r"requires='gpu' is one text: write requires=\{'gpu'\}"),
        (lambda app: app.worker(capabilities="gpu"), r"capabilities='gpu' is one text: write capabilities=\{'gpu'\}"),
        (lambda app: app.task()(nothing).options(requires="gpu"), "requires.*must be a list of texts, not 'gpu'"),
        (lambda app: app.task(requires={"gpu", 1})(nothing).call(), r"requires\[0\]"),
        (lambda app: app.task(requires={""})(nothing).call(), r"requires\[0\]"),
    ],
)
def test_what_cannot_be_a_capability_is_refused(mistake: Callable[[Holdfast], Any], says: str) -> None:
    with pytest.raises((BadJob, BadSetting, BadTask), match=says):
        mistake(Holdfast("memory://"))


async def nothing() -> None: ...


# -- what is preferred -----------------------------------------------------------------------------------------------------


async def beaten(
    app: Holdfast, name: str, *, running: int = 0, slots: int = 1, capabilities: tuple[str, ...] = ("gpu",)
) -> None:
    """Have a worker of this kind known that was heard of just now."""
    store = app.client().store
    await store.open()
    worker = Worker(id=app.new_id(), name=name, slots=slots, capabilities=capabilities)
    await store.register(worker)
    await store.beat(Beat(worker=worker.id, counters=f'{{"concurrent_jobs": {running}}}'))


async def claims(app: Holdfast, *capabilities: str) -> int:
    """Return how many jobs a worker with these capabilities is given, by what its heartbeat has told it."""
    store = app.client().store
    worker = Worker(id=app.new_id(), name="asking", capabilities=capabilities)
    await store.register(worker)
    signal = await store.beat(Beat(worker=worker.id))
    request = ClaimRequest(
        worker=worker.id,
        tasks=frozenset(app.tasks),
        limit=10,
        capabilities=frozenset(capabilities),
        idle=frozenset(signal.idle),
        look=True,
    )
    claimed = await store.claim(request)
    await store.retire(worker.id)
    return len(claimed)


@pytest.fixture
async def encode(app: Holdfast) -> Any:
    @app.task(name="encode", prefers={"gpu"}, prefer_for=30)
    async def encode() -> None: ...

    return encode


async def test_a_job_is_left_to_an_idle_worker_that_has_what_it_prefers(app: Holdfast, encode: Any) -> None:
    await beaten(app, "able")
    await encode.enqueue()
    assert await claims(app) == 0
    assert await claims(app, "tape") == 0
    assert await claims(app, "gpu", "tape") == 1


async def test_nobody_waits_for_a_worker_that_is_busy_or_silent_or_gone(app: Holdfast, encode: Any) -> None:
    store = app.client().store
    await beaten(app, "busy", running=1)
    await encode.enqueue()
    assert await claims(app) == 1, "it was left to a worker that has enough to do"

    await beaten(app, "silent")
    await store.rewind(61)
    await encode.enqueue()
    assert await claims(app) == 1, "it was left to a worker that nobody has heard of for a minute"

    await beaten(app, "disabled")
    (view, *_) = [view for view in await store.workers() if view.worker.name == "disabled"]
    await store.disable(view.worker.id)
    await encode.enqueue()
    assert await claims(app) == 1, "it was left to a worker that may claim nothing"

    await store.enable(view.worker.id)
    await store.beat(Beat(worker=view.worker.id))
    await store.drain(view.worker.id)
    await encode.enqueue()
    assert await claims(app) == 1, "it was left to a worker that is about to end"


async def test_it_is_left_to_others_for_no_longer_than_it_says(app: Holdfast, encode: Any) -> None:
    await encode.enqueue()
    await encode.options(prefer_for=3600).enqueue()
    await app.client().store.rewind(31)
    await beaten(app, "able")
    assert await claims(app) == 1, "one waits for an hour, the other has waited for its half minute"


async def test_what_is_preferred_is_shown_apart_from_what_is_required(app: Holdfast) -> None:
    @app.task(requires={"tape"}, prefers=["gpu", "nvenc"], prefer_for=5)
    async def copy() -> None: ...

    view = await (await copy.enqueue()).view()
    assert (view.requires, dict(view.prefers)) == (("tape",), {"gpu": 5.0, "nvenc": 5.0})
    plain = await (await copy.options(requires=(), prefers=()).enqueue()).view()
    assert (plain.requires, dict(plain.prefers)) == ((), {})


async def test_real_workers_give_way_and_step_in(app: Holdfast, encode: Any) -> None:
    """The plain one, which hears of the other by its heartbeat, leaves jobs alone until that one is gone."""

    @app.task(requires={"plain"})
    async def note() -> None: ...

    async with app.worker(name="plain", capabilities={"plain"}) as plain:
        async with app.worker(name="able", capabilities={"gpu"}):

            async def heard() -> bool:
                plain._heartbeat._beat_at = 0.0  # it would beat in a quarter of a minute
                plain._heartbeat.hurry()
                return plain._claimer.idle == {"gpu"}

            await until(heard)
            # what it asked for before it heard has been answered when this is done
            await (await note.enqueue()).result(timeout=WAIT)
            handles = [await encode.enqueue() for _ in range(5)]
            for handle in handles:
                await handle.result(timeout=WAIT)
            assert {(await handle.view()).worker_name for handle in handles} == {"able"}
        late = await encode.options(prefer_for=0.2).enqueue()
        await late.result(timeout=WAIT)
        assert (await late.view()).worker_name == "plain"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prefers": "gpu"}, "prefers='gpu' is one text"),
        ({"prefers": ["a\x1eb"]}, "no record separator"),
        ({"prefers": ["gpu"], "requires": ["gpu"]}, "what is required need not be preferred: gpu"),
        ({"prefers": ["gpu"], "prefer_for": -1}, "prefer_for"),
        ({"prefers": [""]}, "must not be empty"),
    ],
)
def test_a_preference_that_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises((BadTask, BadJob), match=says):

        @Holdfast("memory://").task(**options)
        async def task() -> None: ...
