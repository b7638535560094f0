"""Looking at what was enqueued."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from unittest.mock import ANY

import pytest

from holdfast import BadArgs, BadTask, Holdfast, Job, State
from holdfast.testing import FakeClock, assert_enqueued, assert_not_enqueued, drain, enqueued

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast import Task

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
async def app() -> AsyncIterator[Holdfast]:
    app = Holdfast("memory://", environment=FakeClock(START))
    yield app
    await app.close()


@pytest.fixture
def send(app: Holdfast) -> Task[[int, str], None]:
    @app.task(name="send", tags=["mail"])
    async def send(user: int, language: str = "en", *, job: Job) -> None:
        return

    return send


@pytest.fixture
def other(app: Holdfast) -> Task[[], None]:
    @app.task(name="other")
    async def other() -> None:
        return

    return other


async def test_args_come_back_as_the_function_would_see_them(app: Holdfast, send: Task[..., None]) -> None:
    await send.enqueue(1)
    await send.enqueue(user=2, language="de")
    first, second = enqueued(app, send)
    assert (first.args, second.args) == ({"user": 1, "language": "en"}, {"user": 2, "language": "de"})
    assert (first.task, first.queue, first.state, first.tags) == ("send", "default", State.READY, ("mail",))


async def test_the_job_a_handler_asks_for_is_no_arg(app: Holdfast) -> None:
    @app.task(name="asks")
    async def asks(n: int, job: Job = None) -> None:  # type: ignore[assignment]
        return

    await asks.enqueue(1)
    assert [job.args for job in enqueued(app, asks)] == [{"n": 1}]


async def test_without_a_task_everything_is_returned_oldest_first(
    app: Holdfast, send: Task[..., None], other: Task[..., None]
) -> None:
    await other.enqueue()
    await app.enqueue_many([send.call(n) for n in range(600)])
    jobs = enqueued(app)
    assert [job.task for job in jobs[:2]] == ["other", "send"]
    assert [job.args["user"] for job in jobs[1:]] == list(range(600))


async def test_what_is_given_must_match(app: Holdfast, send: Task[..., None]) -> None:
    await send.options(queue="mail", priority="high", key="u:1", delay=60).enqueue(1, "de")
    due = START + timedelta(minutes=1)
    (job,) = assert_enqueued(
        app,
        send,
        args={"user": 1},
        count=1,
        queue="mail",
        priority="high",
        key="u:1",
        tags=["mail"],
        delay=timedelta(minutes=1),
        run_at=due,
        state="scheduled",
    )
    assert job.run_at == due
    assert_enqueued(app, send)
    assert_enqueued(app, send, args=(1, "de"))
    assert_enqueued(app, send, args=[1])
    assert_enqueued(app, send, args={"language": "de", "user": ANY})


@pytest.mark.parametrize(
    "wrong",
    [
        {"args": {"user": 2}},
        {"args": (1, "en")},
        {"count": 2},
        {"count": 0},
        {"queue": "default"},
        {"priority": 5},
        {"key": "u:2"},
        {"tags": ["mail", "urgent"]},
        {"delay": 61},
        {"delay": 0},
        {"run_at": START},
        {"state": State.READY},
    ],
    ids=str,
)
async def test_what_does_not_match_fails_and_shows_what_is_there(
    app: Holdfast, send: Task[..., None], other: Task[..., None], wrong: dict[str, object]
) -> None:
    await other.enqueue()
    await send.options(queue="mail", priority="high", key="u:1", delay=60).enqueue(1, "de")
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(app, send, **wrong)  # type: ignore[arg-type]
    lines = str(failed.value).splitlines()
    assert lines[0].endswith("there are 2:")
    assert lines[1] == "  send(user=1, language='de')  queue=mail state=scheduled key=u:1 delay=60"
    assert lines[2] == "  other()  queue=default state=ready"


async def test_the_message_says_what_was_asked_for(app: Holdfast, send: Task[..., None]) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(app, send, args={"user": 7}, queue="mail")
    assert str(failed.value) == "nothing was enqueued like send(user=7)  queue=mail; nothing was enqueued at all"


async def test_a_long_list_is_cut(app: Holdfast, send: Task[..., None]) -> None:
    await app.enqueue_many([send.call(n) for n in range(30)])
    with pytest.raises(AssertionError, match=r"there are 30:(\n.*){20}\n  … and 10 more"):
        assert_enqueued(app, send, args={"user": 99})


async def test_a_ready_job_has_no_delay(app: Holdfast, send: Task[..., None]) -> None:
    await send.enqueue(1)
    assert_enqueued(app, send, delay=0)


async def test_what_ran_was_enqueued_too(app: Holdfast, send: Task[..., None]) -> None:
    await send.enqueue(1)
    await drain(app)
    assert_enqueued(app, send, args=(1,), state=State.SUCCEEDED)


async def test_not_enqueued_is_about_what_is_given(app: Holdfast, send: Task[..., None], other: Task[..., None]) -> None:
    await send.enqueue(1)
    assert_not_enqueued(app, other)
    assert_not_enqueued(app, send, args={"user": 2})
    assert_not_enqueued(app, send, queue="mail")
    with pytest.raises(AssertionError, match=r"1 job\(s\) were enqueued like send\(…\)"):
        assert_not_enqueued(app, send)


async def test_a_misspelt_arg_is_an_error_and_not_a_mismatch(app: Holdfast, send: Task[..., None]) -> None:
    with pytest.raises(BadArgs, match="no parameter 'usr'; it has user, language"):
        assert_not_enqueued(app, send, args={"usr": 1})
    with pytest.raises(BadArgs, match="takes 2 args, not 3"):
        assert_not_enqueued(app, send, args=(1, 2, 3))
    with pytest.raises(BadArgs, match="a mapping or a sequence"):
        assert_not_enqueued(app, send, args="de")


async def test_a_task_of_another_app_is_an_error(app: Holdfast, send: Task[..., None]) -> None:
    with pytest.raises(BadTask, match="not declared with this app"):
        assert_not_enqueued(Holdfast("memory://"), send)


async def test_jobs_of_undeclared_tasks_are_shown_as_stored(app: Holdfast) -> None:
    other = Holdfast("memory://")
    other._adapters = app._adapters

    @other.task(name="foreign")
    async def foreign(n: int) -> None:
        return

    await foreign.enqueue(1)
    (job,) = enqueued(app)
    assert (job.task, job.args) == ("foreign", {"args": '{"n":1}'})
    await other.close()


def test_blocking_tests_look_the_same_way(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="work")
    def work(n: int) -> None:
        return

    work.enqueue_sync(1)
    assert_enqueued(app, work, args={"n": 1}, count=1)
    app.close_sync()
