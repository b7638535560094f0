"""Crashes: a worker that dies at every step in turn, and what must hold whatever the step."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BadSetting, Holdfast, HoldfastError, Job, State
from holdfast.testing import Crash, Crashed, crashes, drain, drain_sync, enqueued

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STORES = ["memory", "sqlite"]


@pytest.fixture
def app() -> Holdfast:
    return Holdfast("postgresql://nobody@nowhere/none")  # every round overrides it


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str | Callable[[int], str]:
    return "memory://" if request.param == "memory" else lambda number: f"sqlite:///{tmp_path}/{number}.db"


# -- what a crash is -------------------------------------------------------------------------------------------------------


async def test_a_job_survives_a_crash_at_every_step(app: Holdfast, url: Any) -> None:
    @app.task(name="export")
    async def export(pages: int, *, job: Job) -> int:
        for page in range(pages):
            if not job.done(f"page-{page}"):
                await job.checkpoint(f"page-{page}")
        return pages

    rounds = crashes(app, url)
    for crash in rounds:
        async with crash:
            handle = await export.enqueue(2)
            (ran,) = await drain(app, advance=True, crash=crash)
            assert (ran.state, ran.result) == (State.SUCCEEDED, 2)
            assert await handle.result() == 2
            report = await handle.report()
            # died before the claim or after the settle: nobody notices
            assert [attempt.ended for attempt in report.attempts][-1] == "succeeded"
            assert len(report.attempts) <= 2
    assert rounds.points[:6] == [
        "before claim #1",
        "after claim #1",
        "before checkpoint #1",
        "after checkpoint #1",
        "before checkpoint #2",
        "after checkpoint #2",
    ]
    assert {"before settle #1", "after settle #1"} <= set(rounds.points)
    assert len(rounds.points) == len(set(rounds.points))


async def test_the_lease_stands_until_it_lapses_and_the_next_attempt_finds_what_was_stored(app: Holdfast) -> None:
    seen: list[tuple[int, bool]] = []

    @app.task(name="export", lease=timedelta(minutes=10))
    async def export(*, job: Job) -> None:
        seen.append((job.attempt, job.done("page")))
        await job.checkpoint("page")

    for crash in crashes(app):
        async with crash as clock:
            seen.clear()
            await export.enqueue()
            before = clock.now()
            await drain(app, advance=True, crash=crash)
            passed = clock.now() - before
            match crash.point:
                case "after claim #1" | "before checkpoint #1":
                    assert seen[-1] == (2, False)
                    assert passed >= timedelta(minutes=10)
                case "after checkpoint #1" | "before settle #1":
                    assert seen == [(1, False), (2, True)]
                    assert passed >= timedelta(minutes=10)
                case _:
                    assert seen == [(1, False)]
                    assert passed == timedelta()


async def test_nothing_of_the_dead_goes_on(app: Holdfast) -> None:
    went_on: list[str] = []

    @app.task(name="stubborn")
    async def stubborn(*, job: Job) -> str:
        try:
            await job.checkpoint("first")
        except Exception:  # noqa: BLE001  what a crash must not be caught by
            went_on.append("caught")
        return "done"

    for crash in crashes(app):
        async with crash:
            handle = await stubborn.enqueue()
            await drain(app, advance=True, crash=crash)
            assert await handle.result() == "done"
            assert (await handle.view()).failures <= 1
    assert went_on == []


async def test_a_handler_that_catches_even_its_death_reaches_nothing_any_more(app: Holdfast) -> None:
    @app.task(name="child")
    async def child() -> None: ...

    @app.task(name="undead")
    async def undead(*, job: Job) -> str:
        async with job.transaction() as tx:
            with suppress(BaseException):
                await child.options(conn=tx).enqueue()
            return tx.complete("done")

    for crash in crashes(app):
        async with crash:
            handle = await undead.enqueue()
            await drain(app, advance=True, crash=crash)
            assert await handle.result() == "done"
            assert len(enqueued(app, child)) == 1


async def test_the_dead_do_not_say_goodbye(app: Holdfast) -> None:
    @app.task(name="fine")
    async def fine() -> None: ...

    for crash in crashes(app):
        async with crash:
            await fine.enqueue()
            await drain(app, advance=True, crash=crash)
            store = app.world().make_store()
            silent = [view for view in await store.workers() if view.offline_at is None]
            await store.close()
            assert len(silent) == (0 if crash.point is None else 1)


def test_functions_in_threads_die_too(app: Holdfast) -> None:
    @app.task(name="export")
    def export(*, job: Job) -> int:
        job.checkpoint("page", data=7)
        job.progress(50)
        return int(job.data("page"))

    points = []
    for crash in crashes(app):
        with crash:
            handle = export.enqueue_sync()
            drain_sync(app, advance=True, crash=crash)
            assert handle.result_sync() == 7
            points.append(crash.point)
    assert {"before checkpoint #1", "after checkpoint #1", "before progress #1", "after settle #1"} <= set(points)


async def test_retries_and_scheduled_jobs_are_promoted_by_who_is_left(app: Holdfast) -> None:
    @app.task(name="late", retry=3)
    async def late(*, job: Job) -> int:
        if job.failures == 0:
            raise RuntimeError("once")
        return job.failures

    rounds = crashes(app)
    for crash in rounds:
        async with crash:
            handle = await late.options(delay=60).enqueue()
            await drain(app, advance=True, crash=crash)
            assert await handle.result() >= 1
    assert {"after promote #1", "before parts #1", "after settle #2"} <= set(rounds.points)


# -- effects ---------------------------------------------------------------------------------------------------------------


async def test_an_effect_outside_of_a_transaction_is_shown_to_happen_twice(app: Holdfast) -> None:
    """So the harness can fail: what is done before it is settled is done again by the next attempt."""
    sent: list[int] = []

    @app.task(name="mail")
    async def mail(number: int) -> None:
        sent.append(number)

    counts: Counter[int] = Counter()
    for crash in crashes(app):
        async with crash:
            sent.clear()
            await mail.enqueue(1)
            await drain(app, advance=True, crash=crash)
            counts[len(sent)] += 1
    assert set(counts) == {1, 2}


def orders(app: Holdfast, charged: list[int]) -> Any:
    """Declare a chain: a step, then a transaction that writes, enqueues and continues, then one that writes and completes."""

    def charge(order: int) -> str:
        charged.append(order)
        return f"charge-{order}"

    @app.task(name="receipt")
    async def receipt(charge: str) -> str:
        return charge

    @app.task(name="ship")
    async def ship(order: int, *, job: Job) -> str:
        async with job.transaction() as tx:
            await tx.execute("UPDATE account SET shipped = shipped + 1")
            return tx.complete("shipped")

    @app.task(name="pay")
    async def pay(order: int, *, job: Job) -> str:
        number = await job.step("charge", charge, order)
        async with job.transaction() as tx:
            await tx.execute("UPDATE account SET balance = balance + 1")
            await receipt.options(conn=tx).enqueue(number)
            return tx.continue_with(ship, order)

    return pay


async def test_a_chain_with_steps_and_transactions_loses_nothing_and_does_each_effect_once(
    app: Holdfast, tmp_path: Path
) -> None:
    charged: list[int] = []
    pay = orders(app, charged)
    rounds = crashes(app, lambda number: f"sqlite:///{tmp_path}/{number}.db")
    for crash in rounds:
        with sqlite3.connect(tmp_path / f"{crash.number}.db") as db:
            db.execute("CREATE TABLE account (balance INTEGER, shipped INTEGER)")
            db.execute("INSERT INTO account VALUES (0, 0)")
        charged.clear()
        async with crash:
            chain = await pay.start_chain(7)
            drained = await drain(app, advance=True, crash=crash)
            assert await chain.result() == "shipped"
            assert db.execute("SELECT balance, shipped FROM account").fetchall() == [(1, 1)]
            assert [job.state for job in enqueued(app)] == [State.SUCCEEDED] * 3
            assert {job.task for job in drained} <= {"pay", "ship", "receipt"}
        db.close()
        # what is outside of a transaction may be done twice, but only between it and its record
        assert len(charged) == (2 if crash.point == "before checkpoint #1" else 1)
    assert "before checkpoint #1" in rounds.points
    assert {point.partition(" #")[0] for point in rounds.points} >= {
        "before claim",
        "after claim",
        "before checkpoint",
        "after checkpoint",
        "before begin",
        "before execute",
        "before enqueue in transaction",
        "before settle in transaction",
        "before commit",
        "after commit",
        "before settle",
        "after settle",
    }


async def test_the_same_without_the_jobs_transaction_is_shown_to_overshoot(app: Holdfast, tmp_path: Path) -> None:
    """So the test above can fail."""

    @app.task(name="pay")
    async def pay(path: str) -> None:
        with sqlite3.connect(path) as db:
            db.execute("UPDATE account SET balance = balance + 1")
        db.close()

    balances = set()
    for crash in crashes(app):
        path = tmp_path / f"{crash.number}.db"
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE account AS SELECT 0 AS balance")
        async with crash:
            await pay.enqueue(str(path))
            await drain(app, advance=True, crash=crash)
        balances.update(db.execute("SELECT balance FROM account").fetchone())
        db.close()
    assert balances == {1, 2}


async def test_jobs_enqueued_in_a_transaction_are_there_once_on_every_store(app: Holdfast, url: Any) -> None:
    @app.task(name="child")
    async def child(number: int) -> int:
        return number

    @app.task(name="parent")
    async def parent(*, job: Job) -> str:
        async with job.transaction() as tx:
            for number in range(2):
                await child.options(conn=tx).enqueue(number)
            return tx.complete("done")

    rounds = crashes(app, url)
    for crash in rounds:
        async with crash:
            handle = await parent.enqueue()
            await drain(app, advance=True, crash=crash)
            assert await handle.result() == "done"
            assert [job.args["number"] for job in enqueued(app, child)] == [0, 1]
            assert {job.state for job in enqueued(app)} == {State.SUCCEEDED}
    assert {"before enqueue in transaction #2", "before commit #1", "after commit #1"} <= set(rounds.points)


async def test_transactions_on_a_connection_of_ones_own_die_too(app: Holdfast, tmp_path: Path) -> None:
    @app.task(name="pay")
    def pay(path: str, *, job: Job) -> str:
        db = sqlite3.connect(path)
        try:
            with job.transaction_sync(conn=db) as tx:
                db.execute("UPDATE account SET balance = balance + 1")
                return tx.complete("paid")
        finally:
            db.close()

    rounds = crashes(app, lambda number: f"sqlite:///{tmp_path}/{number}.db")
    for crash in rounds:
        path = tmp_path / f"{crash.number}.db"
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE account AS SELECT 0 AS balance")
        async with crash:
            handle = await pay.enqueue(str(path))
            await drain(app, advance=True, crash=crash)
            assert await handle.result() == "paid"
            assert db.execute("SELECT balance FROM account").fetchall() == [(1,)]
        db.close()
    assert {"before settle in transaction #1", "before commit #1", "after commit #1"} <= set(rounds.points)


async def test_waits_and_sleeps_go_on_after_a_crash(app: Holdfast) -> None:
    @app.task(name="patient")
    async def patient(*, job: Job) -> str:
        await job.sleep(60)
        heard = await job.wait_for("go", timeout=3600)
        return str(heard)

    rounds = crashes(app)
    for crash in rounds:
        async with crash as clock:
            before = clock.now()
            handle = await patient.enqueue()
            await drain(app, until=timedelta(minutes=5), crash=crash)
            await app.signal("go", "on")
            await drain(app, advance=True, crash=crash)
            assert await handle.result() == "on"
            assert clock.now() - before >= timedelta(seconds=60)
            assert (await handle.view()).failures <= 1
    assert "after settle #3" in rounds.points


# -- the rounds ------------------------------------------------------------------------------------------------------------


async def test_a_failing_test_names_the_point(app: Holdfast) -> None:
    @app.task(name="fine")
    async def fine() -> None: ...

    async def scenario() -> None:
        for crash in crashes(app):
            async with crash:
                await fine.enqueue()
                await drain(app, advance=True, crash=crash)
                assert crash.point != "before settle #1"

    with pytest.raises(AssertionError) as failed:
        await scenario()
    assert failed.value.__notes__ == ["in round 3 of crashes(…): the worker died before settle #1"]


async def test_the_last_round_is_one_without_a_crash_and_the_app_is_as_it_was(app: Holdfast) -> None:
    @app.task(name="fine")
    async def fine() -> None: ...

    last: Crash | None = None
    for crash in crashes(app):
        async with crash:
            assert enqueued(app) == []
            await fine.enqueue()
            await drain(app, crash=crash)
        last = crash
    assert last is not None
    assert last.point is None
    assert app.url == "postgresql://nobody@nowhere/none"


async def test_steps_are_counted_over_several_drains(app: Holdfast) -> None:
    @app.task(name="fine")
    async def fine() -> None: ...

    rounds = crashes(app)
    for crash in rounds:
        async with crash:
            for _ in range(2):
                handle = await fine.enqueue()
                await drain(app, advance=True, crash=crash)
                assert await handle.state() is State.SUCCEEDED
    assert "after settle #2" in rounds.points


async def test_a_scenario_that_runs_no_worker_that_could_die_is_refused(app: Holdfast) -> None:
    async def scenario() -> None:
        for crash in crashes(app):
            async with crash:
                await drain(app)

    with pytest.raises(HoldfastError, match=r"drain\(app, advance=True, crash=crash\)"):
        await scenario()


def test_a_store_that_is_not_fresh_in_every_round_is_refused(app: Holdfast) -> None:
    with pytest.raises(BadSetting, match="fresh store"):
        crashes(app, "sqlite:///jobs.db")


async def test_an_error_of_the_test_itself_is_not_taken_for_a_crash(app: Holdfast) -> None:
    @app.task(name="broken")
    async def broken() -> None:
        raise RuntimeError("really")

    async def scenario() -> None:
        for crash in crashes(app):
            async with crash:
                await broken.enqueue()
                await drain(app, advance=True, crash=crash, raises=True)

    with pytest.raises(RuntimeError, match="really"):
        await scenario()


def test_a_crash_is_no_exception_that_a_handler_could_survive() -> None:
    assert not issubclass(Crashed, Exception)
