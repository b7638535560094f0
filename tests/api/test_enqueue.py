"""Enqueuing: what is asked for is what is stored, in order, all or none. On every store."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BadArgs, BadJob, Holdfast, Job, JobCanceled, Retry, State
from holdfast.store.port import Enqueue

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAIT = 20.0


async def test_jobs_enqueued_together_run_in_their_order(app: Holdfast) -> None:
    ran: list[int] = []

    @app.task()
    async def note(number: int) -> int:
        ran.append(number)
        return number * 2

    handles = await app.enqueue_many([note.call(number) for number in range(30)])
    assert len({handle.id for handle in handles}) == 30
    async with app.worker(concurrency=1):
        assert [await handle.result(timeout=WAIT) for handle in handles] == [number * 2 for number in range(30)]
    assert ran == list(range(30))


async def test_one_refused_call_leaves_nothing_behind(app: Holdfast) -> None:
    @app.task()
    async def note(number: int) -> None: ...

    app.queue("narrow", max_depth=1)
    with pytest.raises(BadArgs):
        await app.enqueue_many([note.call(number) for number in [1, 2, "three"]])  # type: ignore[arg-type]
    with pytest.raises(Exception, match="narrow"):
        await app.enqueue_many([note.call(1), *(note.options(queue="narrow").call(number) for number in range(2))])
    assert (await app.stats())["live"] == 0


async def test_nothing_to_enqueue_gives_no_handles(app: Holdfast) -> None:
    assert await app.enqueue_many([]) == []


async def test_the_same_call_enqueued_twice_makes_one_job(app: Holdfast) -> None:
    @app.task()
    async def note(number: int) -> None: ...

    call = note.call(1)
    (first,) = await app.enqueue_many([call])
    (second,) = await app.enqueue_many([call])
    assert (first.created, second.created) == (True, False)
    assert second.status is Enqueue.REPEATED
    assert first.id == second.id
    assert (await app.stats())["live"] == 1


async def test_many_callers_at_once_each_get_their_own_job(app: Holdfast) -> None:
    @app.task()
    async def note(number: int) -> None: ...

    handles = await asyncio.gather(*(note.enqueue(number) for number in range(60)))
    views = [await handle.view() for handle in handles]
    assert [view.args for view in views] == [f'{{"number":{number}}}' for number in range(60)]


async def test_a_caller_that_gives_up_takes_nobody_with_it(app: Holdfast) -> None:
    @app.task()
    async def note(number: int) -> None: ...

    await app.stats()  # the store is open
    callers = [asyncio.create_task(note.enqueue(number)) for number in range(10)]
    await asyncio.sleep(0)
    callers[3].cancel()
    done = await asyncio.gather(*callers, return_exceptions=True)
    assert sum(isinstance(one, BaseException) for one in done) == 1
    for handle in done:
        if not isinstance(handle, BaseException):
            assert await handle.state() is State.READY


@pytest.mark.parametrize(
    ("options", "field", "expected"),
    [
        ({"queue": "mail"}, "queue", "mail"),
        ({"priority": "high"}, "priority", 8),
        ({"priority": "low"}, "priority", 2),
        ({"priority": 0}, "priority", 0),
        ({"tags": ["a", "b"]}, "tags", ("a", "b")),
        ({"lease": timedelta(seconds=5)}, "lease_seconds", 5.0),
        ({"trace": "00-1-2-03"}, "trace", "00-1-2-03"),
        ({"retry": 7}, "policy.retry", Retry(max_attempts=7)),
        ({"retry": None}, "policy.retry", Retry(max_attempts=None)),
        ({"retry": Retry(max_attempts=2, initial=1)}, "policy.retry", Retry(max_attempts=2, initial=1)),
        ({"timeout": 30}, "policy.timeout", 30.0),
        ({"timeout": timedelta(minutes=2)}, "policy.timeout", 120.0),
        ({"timeout": None}, "policy.timeout", None),
    ],
    ids=str,
)
async def test_options_are_stored_with_the_job(memory: Holdfast, options: dict[str, Any], field: str, expected: object) -> None:
    @memory.task()
    async def note() -> None: ...

    value: Any = await (await note.options(**options).enqueue()).view()
    for part in field.split("."):
        value = getattr(value, part)
    assert value == expected


async def test_what_options_leave_out_stays_as_declared_and_the_task_unchanged(memory: Holdfast) -> None:
    @memory.task(queue="mail", priority="high", tags=["letters"], retry=9)
    async def note() -> None: ...

    view = await (await note.options(queue="other").enqueue()).view()
    assert (view.queue, view.priority, view.tags, view.policy.retry.max_attempts) == ("other", 8, ("letters",), 9)
    assert (await (await note.enqueue()).view()).queue == "mail"


async def test_a_delay_and_a_future_time_keep_a_job_waiting_and_a_past_time_does_not(app: Holdfast) -> None:
    @app.task()
    async def note() -> None: ...

    tomorrow = datetime.now(UTC) + timedelta(days=1)
    delayed = await (await note.options(delay=3600).enqueue()).view()
    later = await (await note.options(run_at=tomorrow).enqueue()).view()
    assert delayed.state is later.state is State.SCHEDULED
    assert delayed.run_at is not None
    assert abs((delayed.run_at - delayed.created_at).total_seconds() - 3600) < 1
    assert later.run_at is not None
    assert abs((later.run_at - tomorrow).total_seconds()) < 0.001
    past = await note.options(run_at=datetime.now(UTC) - timedelta(days=1)).enqueue()
    assert await past.state() is State.READY
    nearly = await note.options(delay=timedelta(milliseconds=50)).enqueue()
    async with app.worker():
        await past.result(timeout=WAIT)
        await nearly.result(timeout=WAIT)
    assert (await app.stats())["scheduled"] == 2


async def test_priorities_decide_who_runs_first(app: Holdfast) -> None:
    ran: list[str] = []

    @app.task()
    async def note(name: str) -> None:
        ran.append(name)

    calls = [note.options(priority=priority).call(str(priority)) for priority in ("low", "normal", 9, "high", 0)]
    handles = await app.enqueue_many(calls)
    async with app.worker(concurrency=1):
        for handle in handles:
            await handle.result(timeout=WAIT)
    assert ran == ["9", "high", "normal", "low", "0"]


async def test_a_job_that_waits_too_long_is_canceled(app: Holdfast) -> None:
    @app.task(expires_in=0.02)
    async def note() -> None: ...

    handle = await note.enqueue()
    await asyncio.sleep(0.05)
    async with app.worker():
        with pytest.raises(JobCanceled) as canceled:
            await handle.result(timeout=WAIT)
    assert canceled.value.code == "EXPIRED"


async def test_a_negative_delay_and_a_time_without_zone_are_refused_with_the_fix(memory: Holdfast) -> None:
    @memory.task()
    async def note() -> None: ...

    with pytest.raises(BadJob, match="delay: must be a number of seconds from 0"):
        await note.options(delay=-1).enqueue()
    with pytest.raises(BadJob, match=r"run_at: must have a time zone: use datetime\.now\(UTC\)"):
        await note.options(run_at=datetime.now()).enqueue()  # noqa: DTZ005  the mistake
    with pytest.raises(BadJob, match="give delay or run_at, not both"):
        await note.options(run_at=datetime.now(UTC), delay=1).enqueue()
    assert (await memory.stats())["live"] == 0


def test_calling_a_task_runs_the_plain_function(memory: Holdfast) -> None:
    @memory.task()
    def double(number: int) -> int:
        """Doubles."""
        return number * 2

    @memory.task()
    async def greet(name: str) -> str:
        return f"hello {name}"

    assert double(21) == 42
    assert (double.__doc__, double.__name__) == ("Doubles.", "double")
    assert asyncio.run(greet("you")) == "hello you"


async def test_the_job_may_be_the_first_parameter(memory: Holdfast) -> None:
    @memory.task()
    def count(job: Job, number: int, *, more: int = 1) -> int:
        return job.attempt + number + more

    handle = await count.enqueue(number=40)
    async with memory.worker():
        assert await handle.result(timeout=WAIT) == 42


def test_a_task_is_named_after_its_module_and_function(memory: Holdfast) -> None:
    @memory.task()
    def local() -> None: ...

    @memory.task(name="mail.welcome")
    def named() -> None: ...

    assert local.name.endswith("test_enqueue.test_a_task_is_named_after_its_module_and_function.<locals>.local")
    assert named.name == "mail.welcome"
    assert list(memory.tasks) == [local.name, "mail.welcome"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [(["billing.py"], "billing.Mail.send"), (["-m", "billing"], "billing.Mail.send"), (["-m", "shop"], "shop.send")],
)
def test_a_script_names_its_tasks_as_others_would_import_them(tmp_path: Path, command: list[str], expected: str) -> None:
    (tmp_path / "billing.py").write_text(
        "from holdfast import Holdfast\n"
        "app = Holdfast('memory://')\n"
        "class Mail:\n"
        "    @staticmethod\n"
        "    def send(number: int) -> int: return number\n"
        "print(app.task()(Mail.send).name)\n"
    )
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "__main__.py").write_text(
        "from holdfast import Holdfast\ndef send() -> None: ...\nprint(Holdfast('memory://').task()(send).name)\n"
    )
    done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (expected, "")


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_worker_elsewhere_runs_what_a_producer_enqueued(make_app: Callable[..., Holdfast]) -> None:
    producer, consumer = make_app(), make_app()

    @producer.task(name="double")
    async def double(number: int) -> int:
        raise NotImplementedError

    @consumer.task(name="double")
    async def other(number: int) -> int:
        return number * 2

    handle = await double.enqueue(21)
    async with consumer.worker():
        assert await handle.result(timeout=WAIT) == 42
