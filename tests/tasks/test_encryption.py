"""Encryption: what the store gets to see, who can open it, and what happens to those who cannot."""

from __future__ import annotations

import base64
import os
import re
import sqlite3
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from holdfast import (
    BadArgs,
    BadJob,
    BadResult,
    BadSetting,
    Holdfast,
    HoldfastError,
    Job,
    MissingExtra,
    Retry,
    Retryable,
    State,
)
from holdfast.core.job import NewJob, Policy
from holdfast.encryption import BrokenSeal, Encryption, Sealed, SealError, UnknownKey
from holdfast.store.port import JobFilter
from holdfast.tasks.sealing import Purpose, Sealer
from holdfast.testing import FakeClock, assert_enqueued, drain, enqueued
from tests.tasks import sealed_for_children as tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytest_plugins = ["pytester"]

SECRET = "Vienna-1815-classified"
OLD, NEW, HASH = (Encryption.new_key() for _ in range(3))


def encryption(*, current: str = "2026", keys: dict[str, str | bytes] | None = None) -> Encryption:
    return Encryption(keys=keys or {"2026": NEW, "2025": OLD}, current=current, hash_key=HASH)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2030, 1, 1, tzinfo=UTC), seed=1)


class Fleet:
    """Apps on one store, as deployments with other keys see it."""

    def __init__(self, url: str, clock: FakeClock) -> None:
        self.clock = clock
        self.first = Holdfast(url, environment=clock, encryption=encryption())
        self.apps = [self.first]

    def another(self, encryption: Any) -> Holdfast:
        app = Holdfast("memory://", environment=self.clock, encryption=encryption)
        app._adapters = self.first._adapters
        self.apps.append(app)
        return app


@pytest.fixture
async def fleet(clock: FakeClock) -> AsyncIterator[Fleet]:
    made = Fleet("memory://", clock)
    yield made
    for app in made.apps:
        await app.close()


@pytest.fixture
def app(fleet: Fleet) -> Holdfast:
    return fleet.first


def greeting(app: Holdfast, **options: Any) -> Any:
    @app.task(name="greet", **options)
    async def greet(name: str) -> str:
        return f"Good day {name}"

    return greet


# -- the cipher ------------------------------------------------------------------------------------------------------------


def test_what_is_sealed_opens_again_and_never_looks_the_same() -> None:
    cipher = encryption()
    one, other = cipher.seal(b"clear", b"here"), cipher.seal(b"clear", b"here")
    assert one.key_id == "2026"
    assert one.data != other.data
    assert cipher.open(one, b"here") == cipher.open(other, b"here") == b"clear"


def test_a_rotated_key_still_opens_and_a_removed_one_does_not() -> None:
    before = encryption(current="2025").seal(b"clear", b"")
    assert encryption().open(before, b"") == b"clear"
    with pytest.raises(UnknownKey, match=r"sealed with the key '2025', which this process does not have") as unknown:
        encryption(keys={"2026": NEW}).open(before, b"")
    assert unknown.value.key_id == "2025"


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed, _: (sealed._replace(data=bytes([sealed.data[0] ^ 1]) + sealed.data[1:]), b"here"),
        lambda sealed, _: (sealed._replace(data=sealed.data[:-1]), b"here"),
        lambda sealed, _: (sealed._replace(data=b""), b"here"),
        lambda sealed, _: (sealed._replace(key_id="2025"), b"here"),
        lambda sealed, _: (sealed, b"there"),
    ],
)
def test_what_was_changed_or_moved_does_not_open(change: Callable[[Sealed, None], tuple[Sealed, bytes]]) -> None:
    cipher = encryption()
    sealed, context = change(cipher.seal(b"clear", b"here"), None)
    with pytest.raises(BrokenSeal, match=f"does not open with the key '{sealed.key_id}'"):
        cipher.open(sealed, context)


def test_a_key_may_be_bytes_or_text_and_is_shown_nowhere() -> None:
    raw = base64.urlsafe_b64decode(NEW)
    assert encryption().open(encryption(keys={"2026": raw}).seal(b"clear", b""), b"") == b"clear"
    assert repr(encryption()) == "<Encryption keys 2026, 2025; current 2026>"
    assert NEW not in repr(vars(encryption()))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"keys": {}, "current": "a"}, "current='a' is none of the keys of Encryption: there are none"),
        ({"keys": {"a": NEW}, "current": "b"}, "current='b' is none of the keys of Encryption: a"),
        ({"keys": {"a": "short"}, "current": "a"}, "keys['a'] of Encryption is no key"),
        ({"keys": {"a": b"x" * 16}, "current": "a"}, "keys['a'] of Encryption is no key"),
        ({"keys": {"": NEW}, "current": ""}, "the id of a key of Encryption: must not be empty"),
        ({"keys": {"a": NEW}, "current": "a", "hash_key": NEW}, "hash_key is one of the keys"),
        ({"keys": {"a": NEW}, "current": "a", "hash_key": "none"}, "hash_key of Encryption is no key"),
    ],
)
def test_keys_that_cannot_be_used_are_refused_without_showing_them(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSetting, match=re.escape(reason)) as refused:
        Encryption(**{"hash_key": HASH} | settings)
    assert NEW not in str(refused.value)


def test_without_the_package_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[encryption\]'"):
        encryption()


# -- texts -----------------------------------------------------------------------------------------------------------------


def test_a_sealed_text_is_json_that_names_its_key_and_nothing_else() -> None:
    stored = msgspec.json.decode(Sealer(encryption()).seal(f'"{SECRET}"', Purpose.ARGS, "greet"))
    assert stored.keys() == {"$sealed", "data"}
    assert stored["$sealed"] == "2026"
    assert SECRET.encode() not in base64.b64decode(stored["data"])


def test_a_text_opens_only_as_what_it_was_sealed_for() -> None:
    sealer = Sealer(encryption())
    text = sealer.seal("1", Purpose.ARGS, "greet")
    assert sealer.open(text, Purpose.ARGS, "greet") == "1"
    for purpose, task in [(Purpose.ARGS, "bye"), (Purpose.RESULT, "greet"), (Purpose.SIGNAL, "")]:
        with pytest.raises(BrokenSeal):
            sealer.open(text, purpose, task)


@pytest.mark.parametrize("text", ["{}", '{"a":1}', "7", '{"$sealed":7}', '{"$sealed":"2026","data":"AA==","more":1}', "[]"])
def test_a_clear_text_from_before_is_taken_as_it_is(text: str) -> None:
    assert Sealer(encryption()).open(text, Purpose.RESULT, "greet") == text


def test_whatever_a_cipher_of_ones_own_raises_is_told_as_a_seal_that_does_not_open() -> None:
    class Service:
        def seal(self, clear: bytes, context: bytes) -> Sealed:
            return Sealed("far-away", clear[::-1])

        def open(self, sealed: Sealed, context: bytes) -> bytes:
            raise ConnectionError("the key service does not answer")

        def hash(self, key: bytes) -> bytes:
            return key

    sealer = Sealer(Service())
    with pytest.raises(SealError, match="key 'far-away', and opening it raised ConnectionError: the key service"):
        sealer.open(sealer.seal("1", Purpose.ARGS, "greet"), Purpose.ARGS, "greet")


# -- jobs ------------------------------------------------------------------------------------------------------------------


async def test_args_and_results_come_back_and_lie_sealed_meanwhile(app: Holdfast) -> None:
    greet = greeting(app)
    handle = await greet.enqueue("Ada")
    assert_enqueued(app, greet, args={"name": "Ada"})
    (ran,) = await drain(app)
    assert ran.result == "Good day Ada"
    assert await handle.result() == "Good day Ada"
    assert await app.job(handle.id).result() == "Good day Ada"  # by the id alone
    view = await handle.view()
    assert msgspec.json.decode(view.args)["$sealed"] == "2026"
    assert msgspec.json.decode(view.result or "")["$sealed"] == "2026"


async def test_jobs_from_before_encryption_and_before_a_rotation_run(app: Holdfast, fleet: Fleet) -> None:
    await greeting(fleet.another(None)).enqueue("Ada")
    await greeting(fleet.another(encryption(current="2025"))).enqueue("Bob")
    greeting(app)
    assert [job.result for job in await drain(app)] == ["Good day Ada", "Good day Bob"]


@pytest.mark.parametrize("has", ["other keys", "none"])
async def test_a_job_whose_key_a_worker_lacks_waits_for_one_that_has_it(app: Holdfast, fleet: Fleet, has: str) -> None:
    handle = await greeting(app).enqueue("Ada")
    poorer = fleet.another(encryption(keys={"2025": OLD}, current="2025") if has == "other keys" else None)
    greeting(poorer, retry=1)
    (ran,) = await drain(poorer)
    assert ran.state is State.SCHEDULED
    report = await handle.report()
    assert report.failures == 0
    error = report.attempts[0].error
    assert error is not None
    assert error.code == "BAD_ARGS"
    assert "sealed with the key '2026'" in error.message
    (ran,) = await drain(app, until=timedelta(minutes=1))
    assert ran.result == "Good day Ada"
    if has == "other keys":
        with pytest.raises(UnknownKey, match="'2026'"):
            await poorer.job(handle.id).result()


async def test_args_moved_from_another_task_do_not_open(app: Holdfast) -> None:
    greet = greeting(app)

    @app.task(name="print")
    async def printed(name: str) -> str:
        return name

    moved = greet.args.encode("Ada")
    with pytest.raises(BadArgs, match=r"of task 'print' refused: .*belongs to another task"):
        printed.args.decode(moved)
    with pytest.raises(BadResult, match="belongs to another task"):
        printed.results.decode(greet.results.encode("Ada"))


async def test_what_a_job_stores_on_the_way_is_clear_to_it_and_to_nobody_else(app: Holdfast) -> None:
    @app.task(name="copy", retry=3)
    async def copy(*, job: Job) -> str:
        if job.attempt == 1:
            await job.checkpoint("page", data={"text": SECRET})
            raise Retryable("once more")
        assert job.parts["page"].data == f'{{"text":"{SECRET}"}}'
        return str(job.data("page")["text"])

    handle = await copy.enqueue()
    await drain(app, advance=True)
    assert await handle.result() == SECRET
    (part,) = (await handle.report()).parts
    assert SECRET not in (part.data or "")


async def test_a_part_whose_key_is_missing_lets_the_job_wait_and_costs_it_nothing(app: Holdfast, fleet: Fleet) -> None:
    def copying(app: Holdfast) -> Any:
        @app.task(name="copy", retry=2)
        async def copy(*, job: Job) -> str:
            if job.attempt == 1:
                await job.checkpoint("page", data=SECRET)
                raise Retryable("once more")
            return str(job.data("page"))

        return copy

    older = fleet.another(encryption(current="2025", keys={"2025": OLD}))
    handle = await copying(older).enqueue()
    copying(app)
    await drain(app)  # seals the part with the newer key
    (ran,) = await drain(older, until=timedelta(minutes=1))
    assert ran.state is State.SCHEDULED
    assert (await handle.view()).failures == 1
    await drain(app, until=timedelta(minutes=1))
    assert await app.job(handle.id).result() == SECRET


async def test_the_limit_is_on_the_clear_text(clock: FakeClock) -> None:
    app = Holdfast("memory://", environment=clock, encryption=encryption(), max_args_bytes=100)
    greet = greeting(app)
    longest = "x" * (100 - len('{"name":""}'))
    assert len(greet.args.encode(longest)) > 100
    with pytest.raises(BadArgs, match="the limit is 100 bytes"):
        greet.args.encode(longest + "x")


# -- unique keys -----------------------------------------------------------------------------------------------------------


async def test_a_unique_key_is_hashed_and_still_unique_after_a_rotation(app: Holdfast, fleet: Fleet) -> None:
    before = await greeting(fleet.another(encryption(current="2025")), key="greet:{name}").enqueue("Ada")
    greet = greeting(app, key="greet:{name}")
    again = await greet.enqueue("Ada")
    assert not again.created
    assert again.id == before.id
    assert not (await greet.options(key="greet:Ada").enqueue("Bob")).created
    assert (await greet.enqueue("Bob")).created
    (ada, bob) = enqueued(app)
    assert ada.key is not None
    assert re.fullmatch(r"hashed:[A-Za-z0-9_-]{43}", ada.key)
    assert ada.key != bob.key
    assert_enqueued(app, greet, key="greet:Ada", count=1)


async def test_the_same_key_hashes_otherwise_under_another_hash_key() -> None:
    other = Encryption(keys={"2026": NEW}, current="2026", hash_key=Encryption.new_key())
    assert Sealer(encryption()).hash("a") != Sealer(other).hash("a")
    assert Sealer(encryption()).hash("a") == Sealer(encryption(current="2025")).hash("a")


async def test_a_key_that_could_not_be_one_is_refused_before_it_is_hashed(app: Holdfast) -> None:
    with pytest.raises(BadJob, match="must not be empty"):
        await greeting(app).options(key="").enqueue("Ada")


# -- child processes -------------------------------------------------------------------------------------------------------


async def test_a_child_process_opens_upgrades_and_seals_by_the_app_it_imports() -> None:
    sealed = tasks.app.sealer
    assert sealed is not None
    async with tasks.app, tasks.app.worker(concurrency=1):
        handle = await tasks.where.options(retry=Retry(max_attempts=2, initial=0.001)).enqueue("hello")
        old = NewJob(
            id=tasks.app.new_id(), task="sealed.where", args=sealed.seal('{"word":"hi"}', Purpose.ARGS, "sealed.where")
        )
        store = tasks.app.world().make_store()
        await store.enqueue([msgspec.structs.replace(old, policy=Policy(Retry(max_attempts=2, initial=0.001)))])
        answers = [await handle.result(timeout=60), await tasks.app.job(old.id).result(timeout=60)]
        (part,) = await store.parts(handle.id)
    assert [(answer["text"], answer["seen"]) for answer in answers] == [
        ("hello", "hello"),
        ("from version 1: hi", "from version 1: hi"),
    ]
    assert os.getpid() not in {answer["process"] for answer in answers}
    assert "hello" not in str(part.data)


# -- the store sees nothing ------------------------------------------------------------------------------------------------


def found_in(path: Path) -> list[str]:
    """Return where the secret lies in the clear, shouted or not: table and column, or the file itself."""
    found = []
    with sqlite3.connect(path) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            cursor = db.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            for row in cursor:
                cells = zip(names, row, strict=True)
                found += [f"{table}.{name}" for name, value in cells if SECRET.lower() in str(value).lower()]
    db.close()
    found += [file.name for file in path.parent.glob(f"{path.name}*") if SECRET.lower().encode() in file.read_bytes().lower()]
    return found


async def busy(app: Holdfast) -> Any:
    """Let the secret go everywhere it may: args, key, part, step, signal, result, next step, retry."""

    @app.task(name="last", key="last:{text}")
    async def last(text: str, *, job: Job) -> str:
        return text

    @app.task(name="first", key="first:{text}", retry=3)
    async def first(text: str, *, job: Job) -> str:
        await job.checkpoint("page", data=[text])
        if job.attempt == 1:
            raise Retryable("once more")
        stepped = await job.step("shout", text.upper)
        heard = await job.wait_for("go")
        assert (stepped, heard) == (SECRET.upper(), {"said": SECRET})
        return job.continue_with(last, text)

    handle = await first.enqueue(SECRET)
    await drain(app, advance=True)
    await app.signal("go", {"said": SECRET})
    await drain(app, advance=True)
    assert await handle.result() == SECRET
    return handle


async def test_nothing_of_the_clear_text_reaches_the_store(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "jobs.db"
    async with Holdfast(f"sqlite:///{path}", environment=clock, encryption=encryption()) as app:
        await busy(app)
        assert found_in(path) == []
    assert found_in(path) == []


async def test_without_encryption_the_clear_text_is_found(tmp_path: Path, clock: FakeClock) -> None:
    """So the search can find something."""
    path = tmp_path / "jobs.db"
    async with Holdfast(f"sqlite:///{path}", environment=clock) as app:
        await busy(app)
        sealed = {"job.args", "job.key", "archive.result", "part.data", "signal.data"}
        assert {f"holdfast_{column}" for column in sealed} <= set(found_in(path))


async def test_results_of_blockers_and_chains_open_by_the_task_that_gave_them(app: Holdfast) -> None:
    @app.task(name="second")
    async def second(text: str) -> str:
        return text + "!"

    @app.task(name="first")
    async def first(text: str, *, job: Job) -> str:
        return job.continue_with(second, text)

    @app.task(name="both")
    async def both(*, job: Job) -> list[str]:
        return list(job.results(first, second))

    chain = await first.start_chain("a")
    plain = await second.enqueue("b")
    handle = await both.options(after=[chain, plain]).enqueue()
    await drain(app)
    assert await chain.result() == "a!"
    assert await handle.result() == ["a!", "b!"]
    assert [view.id for view in (await app.chains(task="first")).chains] == [chain.id]


async def test_chains_are_found_by_their_key(app: Holdfast) -> None:
    greet = greeting(app, key="greet:{name}")
    chain = await greet.start_chain("Ada")
    await greet.start_chain("Bob")
    assert [view.id for view in (await app.chains(key="greet:Ada")).chains] == [chain.id]
    store = app.world().make_store()
    assert (await store.find(JobFilter(key="greet:Ada"), limit=10)).jobs == []


# -- what is not sealed ----------------------------------------------------------------------------------------------------


async def test_the_text_of_an_exception_is_stored_in_the_clear_unless_a_middleware_keeps_it_out(clock: FakeClock) -> None:
    async def run(app: Holdfast) -> str:
        @app.task(name="fails", retry=1)
        async def fails(text: str) -> None:
            raise LookupError(f"no such person: {text}")

        handle = await fails.enqueue(SECRET)
        (ran,) = await drain(app)
        assert ran.error is not None
        report = await handle.report()
        await app.close()
        return str(ran.error) + str([attempt.error for attempt in report.attempts])

    clear = Holdfast("memory://", environment=clock, encryption=encryption())
    assert SECRET in await run(clear)

    quiet = Holdfast("memory://", environment=clock, encryption=encryption())

    @quiet.middleware
    async def keep_texts_out(job: Job, call_next: Any) -> Any:
        try:
            return await call_next(job)
        except HoldfastError:
            raise  # Retryable, Fatal, Cancel and the like: their texts are chosen
        except Exception as error:  # noqa: BLE001  whatever it is, its text stays here
            raise Retryable("its text is kept out of the store", code=type(error).__name__) from None

    told = await run(quiet)
    assert SECRET not in told
    assert "LookupError" in told


# -- the guide -------------------------------------------------------------------------------------------------------------


def test_the_examples_of_the_guide_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOBS_KEY_2026", "JOBS_KEY_2025", "JOBS_HASH_KEY"):
        monkeypatch.setenv(name, Encryption.new_key())
    guide = Path(__file__).parents[2] / "docs/guides/encrypting-args.md"
    blocks = re.findall(r"```python\n(# (\S+)\n.*?)```", guide.read_text(), re.DOTALL)
    assert len(blocks) == guide.read_text().count("```python\n")
    for text, name in blocks:
        pytester.path.joinpath(name).write_text(text)
    modules = [name.removesuffix(".py") for _, name in blocks if not name.startswith("test_")]
    pytester.makepyfile(test_imports=f"import {', '.join(modules)}\n\ndef test_all_blocks_are_code(): pass")
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error")
    plugin = () if entry_points(group="pytest11", name="holdfast") else ("-p", "holdfast.testing.plugin")
    pytester.runpytest_subprocess("-p", "no:cacheprovider", *plugin).assert_outcomes(passed=2)
