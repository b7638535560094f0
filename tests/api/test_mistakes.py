"""Mistakes users make: each is refused when it is made, in one sentence that says what to write instead."""

from __future__ import annotations

import re
import socket  # noqa: TC003  tasks are declared from annotations
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from holdfast import BadArgs, BadJob, BadSetting, BadTask, BadUrl, Holdfast, HoldfastError, Job

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def app() -> Holdfast:
    """An app that never opens its store."""
    return Holdfast("memory://")


def sends(user_id: int) -> None: ...


async def awaits(user_id: int = 1) -> None: ...


def test_two_tasks_of_one_name_are_both_named_with_their_places(app: Holdfast) -> None:
    def first() -> None: ...
    def second() -> None: ...

    app.task(name="mail.send")(first)
    with pytest.raises(BadTask, match=r"two tasks named 'mail\.send'") as refused:
        app.task(name="mail.send")(second)
    for function in (first, second):
        assert f"test_mistakes.py:{function.__code__.co_firstlineno}" in str(refused.value)
    assert "@app.task(name=" in str(refused.value)
    assert app.tasks["mail.send"].function is first


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cron": "every day"}, [r"cron='every day' does not parse", "minute hour day month weekday", r"'\*/15 \* \* \* \*'"]),
        ({"cron": "61 * * * *"}, ["cron='61", "does not parse"]),
        ({"cron": "0 0 30 2 *"}, ["cron="]),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, ["timezone='Mars/Olympus' is not known", "'Europe/Berlin'"]),
        ({"cron": "* * * * *", "timezone": "../etc/passwd"}, ["timezone=", "is not known"]),
        ({"executor": "threads"}, ["executor='threads' is none of async, thread, process, command"]),
        ({"executor": "thread"}, ["executor='thread', but its function awaits: use 'async' or 'process'"]),
        ({"missed": "never"}, ["missed='never' is none of latest, all, skip"]),
        ({"on_conflict": "overwrite"}, ["on_conflict='overwrite' is none of skip, replace, debounce"]),
        ({"priority": "urgent"}, ["priority", "'urgent' is none of low, normal, high, nor a number from 0 to 9"]),
        ({"queue": ""}, ["queue", "must not be empty"]),
        ({"queue": "a\0b"}, ["queue", "NUL character"]),
        ({"retry": 0}, ["max_attempts", "must be a whole number from 1, or None for endless retries, not 0"]),
        ({"timeout": 0}, ["timeout", "must be a number of seconds"]),
        ({"timeout": "30"}, ["timeout", "must be a number of seconds"]),
    ],
    ids=str,
)
def test_a_declaration_that_cannot_work_is_refused(app: Holdfast, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(HoldfastError) as refused:
        app.task(**options)(awaits)
    for word in words:
        assert re.search(word, str(refused.value)), str(refused.value)
    assert not app.tasks


def test_a_periodic_task_cannot_need_args(app: Holdfast) -> None:
    with pytest.raises(BadTask, match=r"has cron=, so it must run without args: .*'user_id'"):
        app.task(cron="* * * * *")(sends)
    app.task(cron="* * * * *")(awaits)


def test_a_process_cannot_import_a_function_defined_inside_another(app: Holdfast) -> None:
    def local() -> None: ...

    with pytest.raises(BadTask, match=r"executor='process': .* Define it at the top level of a module"):
        app.task(executor="process")(local)
    app.task(executor="process")(sends)


def test_a_function_that_does_not_await_cannot_run_on_the_event_loop(app: Holdfast) -> None:
    with pytest.raises(BadTask, match="executor='async', but its function does not await: use 'thread' or 'process'"):
        app.task(executor="async")(sends)


def test_what_cannot_be_stored_is_refused_with_the_parameter_at_fault(app: Holdfast) -> None:
    def connects(number: int, connection: socket.socket) -> None: ...
    def gathers(*numbers: int) -> None: ...
    def spreads(**numbers: int) -> None: ...
    def twice(*, job: Job, again: Job) -> None: ...
    def by_position(job: Job, /) -> None: ...
    def gives() -> socket.socket:
        raise NotImplementedError

    cases: list[tuple[Callable[..., Any], str]] = [
        (connects, "parameter 'connection': socket cannot be stored as JSON: use a dataclass.* or pass an id"),
        (gathers, r"parameter '\*numbers': .* take one list"),
        (spreads, r"parameter '\*\*numbers': .* take one dict"),
        (twice, "asks for the job twice: job and again"),
        (by_position, "the job is passed by name, so 'job' cannot be positional-only"),
        (gives, "socket cannot be stored"),
    ]
    for function, words in cases:
        with pytest.raises(BadTask, match=words):
            app.task()(function)


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        (("one",), {}, "user_id.*int"),
        ((), {}, "missing argument 'user_id'"),
        ((1, 2), {}, "argument"),
        ((1,), {"name": "a"}, "name"),
        ((2**80,), {}, "64 bits"),
    ],
)
def test_wrong_args_are_refused_before_anything_is_stored(app: Holdfast, args: Any, kwargs: Any, words: str) -> None:
    task = app.task(name="sends")(sends)
    with pytest.raises(BadArgs, match=f"args of task 'sends' refused.*{words}"):
        task.call(*args, **kwargs)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dealy": 5}, "there is no option 'dealy'; there are after, conn, delay, expires_in"),
        ({"on_conflict": "overwrite"}, "'overwrite' is none of skip, replace, debounce"),
        ({"priority": "urgent"}, "priority: 'urgent' is none of low, normal, high"),
        ({"priority": 11}, "priority: must be a whole number from 0 to 9, not 11"),
        ({"priority": 9.5}, "priority: must be a whole number"),
        ({"delay": -1}, "delay: must be a number of seconds from 0"),
        ({"delay": "5"}, "delay: must be a number of seconds from 0"),
        ({"lease": 0}, "lease: must be a number of seconds from"),
        ({"timeout": -1}, "timeout: must be a number of seconds from"),
        ({"expires_in": -1}, "expires_in: must be a number of seconds from"),
        ({"queue": ""}, "queue: must not be empty"),
        ({"queue": "q" * 201}, "queue: 201 characters, the limit is 200"),
        ({"tags": [""]}, r"tags\[0\]: must not be empty"),
        ({"retry": -1}, "must be a whole number from 1, or None"),
        ({"key": "a", "key_window": -1}, "window: must be a number of seconds"),
    ],
    ids=str,
)
def test_options_that_no_store_takes_are_refused(app: Holdfast, options: dict[str, Any], words: str) -> None:
    task = app.task()(sends)
    with pytest.raises(BadJob, match=words):
        task.options(**options).call(1)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "names no store Holdfast knows"),
        (3, "a store's URL is a text, not 3"),
        ("jobs.db", "'jobs.db' names no store Holdfast knows"),
        ("mysql://localhost/jobs", "the scheme 'mysql' names no store"),
        ("sqlite://", "names no file"),
        ("postgresql://localhost:port/jobs", "cannot be read"),
        ("postgresql://localhost/jobs?schema=", "leave it out"),
        ("postgresql://localhost/jobs?prepare=maybe", "neither 'on' nor 'off'"),
    ],
)
def test_a_url_that_names_no_store_is_refused(url: Any, words: str) -> None:
    with pytest.raises(BadUrl, match=words) as refused:
        Holdfast(url)
    if "?" not in str(url):
        assert "sqlite:///jobs.db" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": 0}, "concurrency must be a whole number from 1, not 0: a worker needs a slot"),
        ({"concurrency": 2.5}, "concurrency must be a whole number"),
        ({"prefetch": -1}, "prefetch must be a whole number from 0"),
        ({"queues": []}, "queues is empty: leave it out to serve every queue"),
        ({"delay": -1}, "delay must be a number of seconds from 0"),
        ({"poll": 0}, "poll must be a number of seconds above 0"),
        ({"retry_share": 2}, "retry_share must be from 0 to 1"),
        ({"shutdown_timeout": float("nan")}, "shutdown_timeout must be a number of seconds from 0"),
    ],
    ids=str,
)
def test_a_worker_that_could_not_work_is_refused(app: Holdfast, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSetting, match=words):
        app.worker(**options)


# what is noticed in the declaration and not at the first enqueue, perhaps months later


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": 11}, "priority"),
        ({"lease": 0}, "lease"),
        ({"expires_in": -1}, "expires_in"),
        ({"key": "a", "key_window": -1}, "window"),
        ({"tags": [""]}, "tags"),
        ({"tags": "letters"}, "tags"),
        ({"key": "{nope}"}, "nope.*user_id"),
        ({"key": "{user_id"}, "key"),
        ({"name": ""}, "name|task"),
    ],
    ids=str,
)
def test_a_declaration_is_checked_as_a_whole(app: Holdfast, options: dict[str, Any], words: str) -> None:
    with pytest.raises(HoldfastError, match=words):
        app.task(**options)(sends)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"timeout": 0}, "timeout must be a number of seconds from"),
        ({"retry": 0}, "retry.max_attempts must be a whole number from 1"),
        ({"priority": "urgent"}, "priority: 'urgent' is none of low, normal, high"),
        ({"queue": ""}, "queue must not be empty"),
        ({"tags": [""]}, "tags[0] must not be empty"),
        ({"key": "a", "key_window": -1}, "key_window must be a number of seconds"),
        ({"key": 5}, "key must be a text or a function of the args, not 5"),
    ],
    ids=str,
)
def test_a_refused_declaration_names_its_task(app: Holdfast, options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadTask) as refused:
        app.task(name="mail.send", **options)(sends)
    assert str(refused.value).startswith(f"task 'mail.send': {says}")


@pytest.mark.parametrize("options", [{"timezone": "Europe/Berlin"}, {"missed": "all"}], ids=str)
def test_what_only_a_periodic_task_has_needs_cron(app: Holdfast, options: dict[str, Any]) -> None:
    with pytest.raises(BadTask, match="without cron="):
        app.task(**options)(awaits)
    app.task(cron="* * * * *", **options)(awaits)


@pytest.mark.parametrize("options", [{"on_conflict": "replace"}, {"key_window": 5}, {"key_scope": "mail"}], ids=str)
def test_what_is_said_about_a_key_needs_one(app: Holdfast, options: dict[str, Any]) -> None:
    task = app.task(name="sends")(sends)
    with pytest.raises(BadJob, match=f"of task 'sends' refused at {next(iter(options))}: .*give key= too"):
        task.options(**options)
    assert task.options(key="a", **options).call(1).job.unique is not None
    later = app.task(name="later", **options)(sends)  # for keys that come with each job
    assert later.options(key="a").call(1).job.unique is not None


async def test_a_task_where_a_call_is_meant_is_refused_with_the_fix(app: Holdfast) -> None:
    task = app.task(name="sends")(sends)
    with pytest.raises(BadArgs, match=r"calls\[1\]: must be a call: write task\.call\(…\), not <Task sends>"):
        await app.enqueue_many([task.call(1), task])  # type: ignore[list-item]


def test_two_things_said_about_one_queue_are_refused(app: Holdfast) -> None:
    app.queue("mail", weight=2)
    app.queue("mail", weight=2)
    with pytest.raises(BadSetting, match=r"queue 'mail' was declared before, as .*weight=2"):
        app.queue("mail", weight=3)


def test_the_decorator_without_parentheses_is_refused_with_the_fix(app: Holdfast) -> None:
    with pytest.raises(BadTask, match=r"@app\.task\(\)"):
        app.task(sends)  # type: ignore[arg-type]


def test_text_where_a_list_is_meant_is_refused(app: Holdfast) -> None:
    with pytest.raises(HoldfastError, match=r"queues.*\['mail'\]|queues.*list"):
        app.worker(queues="mail")
    with pytest.raises(HoldfastError, match="tags"):
        app.task()(sends).options(tags="letters").call(1)


@pytest.mark.parametrize("options", [{"run_at": "tomorrow"}, {"tags": 3}], ids=str)
def test_options_of_another_type_are_refused_by_name(app: Holdfast, options: dict[str, Any]) -> None:
    with pytest.raises(HoldfastError, match=next(iter(options))):
        app.task()(sends).options(**options).call(1)


# what an app is asked with: refused in the same words on every store


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"after": "garbage"}, "after='garbage' is no job id: a job id is a UUID, or its text"),
        ({"after": 5}, "after=5 is no job id"),
        ({"limit": 0}, "limit= must be a whole number from 1, not 0"),
        ({"limit": -1}, "limit= must be a whole number from 1, not -1"),
        ({"limit": "x"}, "limit= must be a whole number from 1, not 'x'"),
        ({"tag": 1}, "tag= cannot be 1: expected str, got int"),
        ({"task": len}, "task= cannot be <built-in function len>"),
        ({"key": ""}, "key= cannot be '': must not be empty"),
        ({"queue": "a\0b"}, "NUL character"),
        ({"created_from": "2020"}, "created_from= must be a datetime with a time zone"),
        ({"created_before": datetime(2020, 1, 1)}, "created_before= must be a datetime with a time zone"),  # noqa: DTZ001
        ({"states": ["bogus"]}, "states= has 'bogus'; there are blocked, .*canceled, and live, waiting, ended for several"),
        ({"states": 5}, "states= must be a list of states, not 5"),
    ],
    ids=str,
)
async def test_a_list_of_chains_asked_for_with_what_cannot_be_is_refused(
    app: Holdfast, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadSetting, match=words):
        await app.chains(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"message": 5}, "message= must be a text, not 5"),
        ({"code": ""}, "code= must not be empty"),
        ({"code": None}, "code= must be a text, not None"),
        ({"by": 3}, "by= must be a text, not 3"),
        ({"by": "a\0b"}, "by= has a NUL character"),
    ],
    ids=str,
)
async def test_an_end_from_outside_with_what_cannot_be_stored_is_refused(
    app: Holdfast, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadSetting, match=words):
        await app.fail(uuid4(), **given)


async def test_who_completes_or_signals_is_a_text(app: Holdfast) -> None:
    wrong: Any = 3
    with pytest.raises(BadSetting, match="by= must be a text, not 3"):
        await app.complete(uuid4(), by=wrong)
    with pytest.raises(BadSetting, match="by= must be a text, not 3"):
        await app.signal("paid", by=wrong)
    with pytest.raises(BadSetting, match="'x' is no job id"):
        await app.complete("x")


async def test_a_time_out_is_a_number(app: Holdfast) -> None:
    wrong: Any = "3"
    with pytest.raises(BadSetting, match="timeout= must be a number of seconds, or None, not '3'"):
        await app.job(uuid4()).result(wrong)


def test_what_cannot_encrypt_is_refused_when_the_app_is_made() -> None:
    wrong: Any = "secret"
    with pytest.raises(BadSetting, match=r"encryption= takes holdfast\.encryption\.Encryption\(…\), not 'secret'"):
        Holdfast("memory://", encryption=wrong)


def test_a_task_that_nobody_runs_continues_with_nothing(app: Holdfast) -> None:
    with pytest.raises(BadTask, match="nobody runs it, so it continues with nothing: leave continues_with= out"):
        app.task(name="approve", executor="outside", continues_with=["ship"])(sends)
