"""Unique keys: at most one job holds a key, and the one who asks is told which. On every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from holdfast import BadJob, Holdfast, JobCanceled, NotAllowed, State
from holdfast.store.port import Enqueue

if TYPE_CHECKING:
    from holdfast import Handle

WAIT = 20.0


async def finish(app: Holdfast, *handles: Handle[object]) -> None:
    async with app.worker():
        for handle in handles:
            await handle.result(timeout=WAIT)


async def test_a_taken_key_gives_the_job_that_holds_it(app: Holdfast) -> None:
    @app.task(key="{user_id}")
    async def welcome(user_id: int, text: str = "") -> None: ...

    first = await welcome.enqueue(1)
    again = await welcome.enqueue(1, "again")
    other = await welcome.enqueue(2)
    assert (first.created, again.created, other.created) == (True, False, True)
    assert (again.status, again.id) == (Enqueue.EXISTING, first.id)
    view = await first.view()
    assert (view.key, view.scope, view.args) == ("1", welcome.name, '{"user_id":1}')
    await finish(app, first, other)
    assert (await welcome.enqueue(1)).created, "the key is free once its job has ended"


@pytest.mark.row(35)
async def test_one_of_many_concurrent_callers_creates_the_job(app: Holdfast) -> None:
    @app.task(key="only")
    async def welcome(number: int) -> None: ...

    handles = await asyncio.gather(*(welcome.enqueue(number) for number in range(25)))
    assert sum(handle.created for handle in handles) == 1
    assert len({handle.id for handle in handles}) == 1


async def test_a_template_may_use_defaults_and_parts_of_args(memory: Holdfast) -> None:
    @memory.task(key="{user[name]}-{kind}")
    async def welcome(user: dict[str, str], kind: str = "mail") -> None: ...

    assert (await (await welcome.enqueue({"name": "ann"})).view()).key == "ann-mail"


async def test_a_function_of_the_args_gives_the_key(memory: Holdfast) -> None:
    @memory.task(key=lambda user_id, **_: f"user:{user_id}")
    async def welcome(user_id: int, text: str) -> None: ...

    first, again = await welcome.enqueue(1, "a"), await welcome.enqueue(1, "b")
    assert (await first.view()).key == "user:1"
    assert again.id == first.id


async def test_a_key_that_cannot_be_made_is_refused(memory: Holdfast) -> None:
    @memory.task(key=lambda number: number)
    async def numbers(number: int) -> None: ...

    with pytest.raises(BadJob, match="key= must give a string, not int"):
        await numbers.enqueue(1)

    @memory.task(name="template")
    async def plain(number: int) -> None: ...

    with pytest.raises(BadJob, match="must not be empty"):
        await plain.options(key="").enqueue(1)


async def test_a_key_of_the_options_is_taken_as_it_is(memory: Holdfast) -> None:
    @memory.task(key="user-{number}")
    async def welcome(number: int) -> None: ...

    assert (await (await welcome.options(key="{number}").enqueue(1)).view()).key == "{number}"


async def test_replace_keeps_the_earlier_time_and_debounce_takes_the_later(app: Holdfast) -> None:
    @app.task()
    async def save(text: str) -> str:
        return text

    soon = await save.options(key="replaced", delay=60).enqueue("old")
    replaced = await save.options(key="replaced", delay=3600, on_conflict="replace").enqueue("new")
    assert replaced.created
    assert replaced.id != soon.id
    with pytest.raises(JobCanceled):
        await soon.result(timeout=WAIT)
    view = await replaced.view()
    assert view.run_at is not None
    assert (view.run_at - view.created_at).total_seconds() < 61

    first = await save.options(key="debounced", delay=60).enqueue("old")
    last = await save.options(key="debounced", delay=3600, on_conflict="debounce").enqueue("new")
    assert await first.state() is State.CANCELED
    view = await last.view()
    assert view.run_at is not None
    assert (view.run_at - view.created_at).total_seconds() > 3599


async def test_a_running_holder_is_not_replaced(app: Holdfast) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task(key="one", on_conflict="replace")
    async def save(number: int) -> int:
        started.set()
        await go_on.wait()
        return number

    async with app.worker():
        running = await save.enqueue(1)
        await asyncio.wait_for(started.wait(), WAIT)
        again = await save.enqueue(2)
        assert (again.created, again.id) == (False, running.id)
        go_on.set()
        assert await again.result(timeout=WAIT) == 1


async def test_a_window_holds_the_key_after_the_end(app: Holdfast) -> None:
    @app.task(key="hourly", key_window=timedelta(hours=1))
    async def report() -> None: ...

    first = await report.enqueue()
    await finish(app, first)
    again = await report.enqueue()
    assert (again.created, again.id) == (False, first.id)
    client = app.client()
    await client.store.rewind(3601)
    assert (await report.enqueue()).created


async def test_a_scope_is_shared_by_tasks_and_else_each_has_its_own(app: Holdfast) -> None:
    @app.task(key="{user_id}", key_scope="users")
    async def one(user_id: int) -> None: ...

    @app.task(key="{user_id}", key_scope="users")
    async def two(user_id: int) -> None: ...

    @app.task(key="{user_id}")
    async def apart(user_id: int) -> None: ...

    first, second, third = await one.enqueue(1), await two.enqueue(1), await apart.enqueue(1)
    assert (second.created, second.id) == (False, first.id)
    assert third.created


@pytest.mark.row(35)
async def test_a_job_cannot_come_back_while_another_holds_its_key(app: Holdfast) -> None:
    @app.task(key="one")
    async def save() -> None: ...

    first = await save.enqueue()
    await first.cancel()
    await save.enqueue()
    with pytest.raises(NotAllowed, match="another live job holds its unique key"):
        await first.retry()
