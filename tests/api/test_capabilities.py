"""Jobs that only some workers can run. On every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BadJob, BadSetting, BadTask, Holdfast, State
from holdfast.testing import drain

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
