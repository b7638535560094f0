"""Limits of an app: seen, set and cleared while jobs run. On every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import BadJob, BadSetting, Handle, Holdfast, Limit, LimitRule, State
from holdfast.core.limits import LimitKind, LimitName
from holdfast.encryption import Encryption
from tests.support.until import until

WAIT = 20.0


async def test_a_limit_is_set_while_jobs_run_and_cleared_again(app: Holdfast) -> None:
    running, most = 0, 0
    go = asyncio.Event()

    @app.task(limit=Limit(1))
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    handles = [await work.enqueue() for _ in range(5)]
    async with app.worker(concurrency=5):
        await _until_running(handles, 1)
        await app.set_limit(task=work, most=3, by="ann")
        await _until_running(handles, 3)
        (view,) = [view for view in await app.limits() if view.name.kind is LimitKind.TASK]
        assert (view.declared, view.override, view.override_by) == (LimitRule(most=1), LimitRule(most=3), "ann")
        assert (view.rule, view.running) == (LimitRule(most=3), 3)
        go.set()
        for handle in handles:
            await handle.result(timeout=WAIT)
    assert most == 3
    await app.clear_limit(task=work)
    (view,) = [view for view in await app.limits() if view.name.kind is LimitKind.TASK]
    assert (view.override, view.rule) == (None, LimitRule(most=1))


async def _until_running(handles: list[Handle[None]], jobs: int) -> None:
    async def run() -> bool:
        return [await handle.state() for handle in handles].count(State.RUNNING) == jobs

    await until(run)


async def test_each_kind_of_limit_is_set_by_its_name(app: Holdfast) -> None:
    await app.set_limit(queue="mail", rate=60, per=timedelta(minutes=1))
    await app.set_limit(task="mail.send", most=2)
    await app.set_limit(scope="tenants", most=4)
    await app.set_limit(scope="tenants", key="acme", weight=2.0)
    found = {view.name: view.override for view in await app.limits()}
    assert found == {
        LimitName(LimitKind.QUEUE, "mail"): LimitRule(rate=1.0),
        LimitName(LimitKind.TASK, "mail.send"): LimitRule(most=2),
        LimitName(LimitKind.KEY, "tenants"): LimitRule(most=4),
        LimitName(LimitKind.KEY, "tenants", "acme"): LimitRule(weight=2.0),
    }


async def test_setting_a_limit_that_makes_no_sense_is_refused(app: Holdfast) -> None:
    with pytest.raises(BadJob, match="one of queue, task and scope"):
        await app.set_limit(most=2)
    with pytest.raises(BadJob, match="says nothing"):
        await app.set_limit(queue="mail")
    with pytest.raises(BadJob, match="must be a whole number"):
        await app.set_limit(queue="mail", most=-1)
    with pytest.raises(BadJob, match="has no keys"):
        await app.clear_limit(queue="mail", key="a")
    with pytest.raises(BadSetting, match="by="):
        await app.set_limit(queue="mail", most=1, by=7)  # type: ignore[arg-type]
    assert await app.limits() == []


def test_limits_from_blocking_code() -> None:
    app = Holdfast("memory://")
    app.set_limit_sync(queue="mail", most=2)
    assert [view.rule for view in app.limits_sync()] == [LimitRule(most=2)]
    app.clear_limit_sync(queue="mail")
    assert app.limits_sync() == []
    app.close_sync()


async def test_the_key_of_an_app_that_encrypts_is_the_one_its_jobs_have() -> None:
    app = Holdfast(
        "memory://", encryption=Encryption(current="a", keys={"a": Encryption.new_key()}, hash_key=Encryption.new_key())
    )

    @app.task(limit=Limit(2, key="{tenant}", scope="tenants"))
    async def work(tenant: str) -> None: ...

    handle = await work.enqueue("acme")
    await app.set_limit(scope="tenants", key="acme", most=7)
    view = await handle.view()
    assert view.limit is not None
    assert view.limit.key != "acme"
    assert [one.name for one in await app.limits()] == [view.limit.name]
    await app.close()
