"""Args that change: stored ones of an older version are upgraded, those of a newer one wait."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BadArgs, BadTask, Holdfast, Job, State
from holdfast.core.job import NewJob
from holdfast.store.port import JobFilter
from holdfast.tasks.codec import ArgsCodec
from holdfast.testing import FakeClock, drain, enqueued

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytest_plugins = ["pytester"]

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START, seed=1)


@pytest.fixture
def app(clock: FakeClock) -> Holdfast:
    return Holdfast("memory://", environment=clock)


@pytest.fixture(autouse=True)
async def closed(app: Holdfast) -> AsyncIterator[None]:
    yield
    await app.close()


def two(name: str, born: date) -> str:
    return f"{name} {born}"


def codec_of_two(version: int = 3) -> ArgsCodec:
    codec = ArgsCodec.of(two, task="two", version=version)
    codec.evolution.add(1, lambda args: {"name": args["first"] + " " + args["last"], "year": args["year"]})
    if version > 2:
        codec.evolution.add(2, lambda args: {"name": args["name"], "born": date(args["year"], 1, 1)})
    return codec


async def store_job(app: Holdfast, task: str, args: str) -> NewJob:
    """Put a job there as another version of the app would have."""
    store = app.world().make_store()
    await store.open()
    job = NewJob(id=app.new_id(), task=task, args=args)
    await store.enqueue([job])
    await store.close()
    return job


# -- what is stored --------------------------------------------------------------------------------------------------------


def test_the_first_version_is_stored_without_a_word() -> None:
    assert ArgsCodec.of(two, task="two").encode("Ada", date(1815, 12, 10)) == '{"name":"Ada","born":"1815-12-10"}'


def test_a_later_version_says_which_it_is() -> None:
    codec = codec_of_two()
    text = codec.encode("Ada", date(1815, 12, 10))
    assert text == '{"$version":3,"name":"Ada","born":"1815-12-10"}'
    assert codec.decode(text) == ((), {"name": "Ada", "born": date(1815, 12, 10)})


def test_a_call_without_args_says_its_version_too() -> None:
    def nothing(n: int = 1) -> None: ...

    codec = ArgsCodec.of(nothing, task="nothing", version=2)
    assert codec.encode() == '{"$version":2}'
    assert codec.decode('{"$version":2}') == ((), {})


def test_the_limit_on_the_size_is_on_the_args_and_not_on_their_version() -> None:
    def one(text: str) -> None: ...

    plain = ArgsCodec.of(one, task="one", max_bytes=100)
    later = ArgsCodec.of(one, task="one", max_bytes=100, version=2)
    longest = "x" * (100 - len('{"text":""}'))
    plain.encode(longest)
    assert later.decode(later.encode(longest)) == ((), {"text": longest})
    with pytest.raises(BadArgs, match="the limit is 100 bytes"):
        later.encode(longest + "x")


# -- upgrading -------------------------------------------------------------------------------------------------------------


def test_old_args_take_every_step_up_to_the_version_that_stands() -> None:
    expected = ((), {"name": "Ada King", "born": date(1815, 1, 1)})
    assert codec_of_two().decode('{"first":"Ada","last":"King","year":1815}') == expected
    assert codec_of_two().decode('{"$version":2,"name":"Ada King","year":1815}') == expected


def test_upgraded_args_are_validated_and_the_error_names_task_version_and_field() -> None:
    with pytest.raises(BadArgs) as refused:
        codec_of_two(version=2).decode('{"first":"Ada","last":"King","year":1815}')
    assert refused.value.task == "two"
    assert refused.value.path == "year"
    assert "stored as version 1, upgraded to 2" in str(refused.value)


def test_args_of_this_version_that_do_not_fit_name_it_too() -> None:
    with pytest.raises(BadArgs, match=r"of task 'two' refused at born: .*\(version 3\)"):
        codec_of_two().decode('{"$version":3,"name":"Ada","born":7}')


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda args: {"name": args["nick"]}, "version 1, and their upgrade to 2 raised KeyError: 'nick'"),
        (lambda args: args.update(name="x"), "version 1, and their upgrade to 2 returned None: return the dict"),
        (lambda _: {"name": object()}, "what the upgrade to version 2 returned cannot be encoded"),
    ],
)
def test_a_broken_step_is_named(step: Any, reason: str) -> None:
    codec = ArgsCodec.of(two, task="two", version=2)
    codec.evolution.add(1, step)
    with pytest.raises(BadArgs, match=re.escape(reason)):
        codec.decode('{"name":"Ada"}')


@pytest.mark.parametrize("version", [1, 3])
def test_args_of_a_newer_version_are_refused_as_such(version: int) -> None:
    codec = codec_of_two() if version == 3 else ArgsCodec.of(two, task="two")
    with pytest.raises(BadArgs, match=f"of version 4, and this process knows the task up to version {version}"):
        codec.decode('{"$version":4,"name":"Ada","born":{"year":1815}}')


def test_text_written_by_hand_is_of_the_version_that_stands_unless_it_says_another() -> None:
    codec = codec_of_two()
    assert codec.accept('{ "name": "Ada", "born": "1815-12-10" }') == '{"$version":3,"name":"Ada","born":"1815-12-10"}'
    assert codec.accept('{ "$version": 2, "name": "Ada", "year": 1815 }') == '{"$version":3,"name":"Ada","born":"1815-01-01"}'
    with pytest.raises(BadArgs, match="first"):
        codec.accept('{"first":"Ada","last":"King","year":1815}')


# -- declaring -------------------------------------------------------------------------------------------------------------


def test_steps_that_could_never_be_taken_are_refused(app: Holdfast) -> None:
    @app.task(name="plain")
    def plain(n: int) -> None: ...

    @app.task(name="grown", version=3)
    def grown(n: int) -> None: ...

    with pytest.raises(BadTask, match=r"'plain' cannot be upgraded from version 1: .*@app.task\(version=2\)"):
        plain.upgrade(1)(dict)
    with pytest.raises(BadTask, match="steps from 1 to 2"):
        grown.upgrade(3)(dict)
    grown.upgrade(1)(dict)
    with pytest.raises(BadTask, match="two upgrades from version 1"):
        grown.upgrade(1)(dict)
    with pytest.raises(BadTask, match="awaits"):

        @grown.upgrade(2)  # type: ignore[type-var]  # a type checker says it too
        async def waits(args: dict[str, Any]) -> dict[str, Any]:
            return args


@pytest.mark.parametrize("version", [0, True, "2"])
def test_a_version_that_is_none_is_refused(app: Holdfast, version: Any) -> None:
    with pytest.raises(BadTask, match="version must be a whole number from 1"):

        @app.task(name="odd", version=version)
        def odd() -> None: ...


def test_an_upgrade_stays_a_plain_function(app: Holdfast) -> None:
    @app.task(name="grown", version=2)
    def grown(n: int) -> None: ...

    @grown.upgrade(1)
    def as_number(args: dict[str, Any]) -> dict[str, Any]:
        return {"n": int(args["n"])}

    assert as_number({"n": "7"}) == {"n": 7}


async def test_a_missing_step_keeps_a_worker_from_starting(app: Holdfast) -> None:
    @app.task(name="grown", version=3)
    async def grown(n: int) -> None: ...

    grown.upgrade(2)(dict)
    missing = r"'grown' is of version 3 and has no upgrade from version 1.*@task.upgrade\(1\)"
    with pytest.raises(BadTask, match=missing):
        async with app.worker(concurrency=1):
            pass
    with pytest.raises(BadTask, match=missing):
        await drain(app)
    with pytest.raises(BadArgs, match="there is no upgrade to 2"):
        grown.args.decode('{"n":1}')


# -- jobs ------------------------------------------------------------------------------------------------------------------


async def test_a_job_stored_before_the_change_runs_after_it(app: Holdfast) -> None:
    @app.task(name="greet", version=2, key="greet:{name}")
    async def greet(name: str, *, polite: bool, job: Job) -> str:
        return f"{'Good day' if polite else 'Hi'} {name}"

    @greet.upgrade(1)
    def politely(args: dict[str, Any]) -> dict[str, Any]:
        return {**args, "polite": True}

    await store_job(app, "greet", '{"name":"Ada"}')
    await greet.enqueue("Bob", polite=False)
    assert [(job.args, job.key) for job in enqueued(app)] == [
        ({"name": "Ada", "polite": True}, None),
        ({"name": "Bob", "polite": False}, "greet:Bob"),
    ]
    assert [job.result for job in await drain(app)] == ["Good day Ada", "Hi Bob"]


@pytest.mark.row(33)
async def test_a_job_of_a_newer_version_waits_at_no_cost_for_a_worker_that_can(app: Holdfast, clock: FakeClock) -> None:
    @app.task(name="greet", retry=1)
    async def greet(name: str) -> str:
        return name

    job = await store_job(app, "greet", '{"$version":2,"name":{"first":"Ada"}}')
    (ran,) = await drain(app)
    assert ran.state is State.SCHEDULED
    report = await app.job(job.id).report()
    assert report.failures == 0
    (error,) = [attempt.error for attempt in report.attempts]
    assert error is not None
    assert error.code == "BAD_ARGS"
    assert "of version 2, and this process knows the task up to version 1" in error.message

    newer = Holdfast("memory://", environment=clock)
    newer._adapters = app._adapters  # the same store, as another deployment sees it

    @newer.task(name="greet", version=2)
    async def greet_whole(name: dict[str, str]) -> str:
        return name["first"]

    greet_whole.upgrade(1)(lambda args: {"name": {"first": args["name"]}})
    assert [job.result for job in await drain(newer, until=timedelta(minutes=1))] == ["Ada"]
    await newer.close()


async def test_periodic_jobs_and_calls_from_text_carry_the_version(app: Holdfast) -> None:
    @app.task(name="tick", version=2, cron="* * * * *")
    async def tick(n: int = 7) -> int:
        return n

    tick.upgrade(1)(dict)
    await app.enqueue_many([tick.call_text('{"n": 8}', {})])
    drained = await drain(app, until=timedelta(seconds=61))
    assert [job.result for job in drained] == [8, 7]
    page = await app.world().make_store().find(JobFilter(task="tick"), limit=10)
    assert sorted(view.args for view in page.jobs) == ['{"$version":2,"n":8}', '{"$version":2}']


# -- the guide -------------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_guide_pass(pytester: pytest.Pytester) -> None:
    guide = Path(__file__).parents[2] / "docs/guides/changing-args.md"
    blocks = re.findall(r"```python\n(# (\S+)\n.*?)```", guide.read_text(), re.DOTALL)
    assert len(blocks) == guide.read_text().count("```python\n")
    for text, name in blocks:
        pytester.path.joinpath(name).write_text(text)
    modules = [name.removesuffix(".py") for _, name in blocks if not name.startswith("test_")]
    pytester.makepyfile(test_imports=f"import {', '.join(modules)}\n\ndef test_all_blocks_are_code(): pass")
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error")
    plugin = () if entry_points(group="pytest11", name="holdfast") else ("-p", "holdfast.testing.plugin")
    pytester.runpytest_subprocess("-p", "no:cacheprovider", *plugin).assert_outcomes(passed=5)
