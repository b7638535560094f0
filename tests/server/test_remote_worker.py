"""The ordinary worker behind HTTP: it runs everything, dies as any other, and outlives its server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast import Holdfast, Job, JobFailed
from holdfast.core.job import NewJob
from holdfast.core.lease import Lease
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.errors import BadSetting, BadUrl, HoldfastError, NotAllowed, StoreUnavailable
from holdfast.notify.http import HttpNotifier
from holdfast.notify.port import Hint
from holdfast.runtime.counters import HINTED
from holdfast.server.running import listening
from holdfast.store.http import HttpStore
from holdfast.store.port import Grain, Key, Role, Settlement, Worker, WorkerKind, WorkerState
from holdfast.system import SystemEnvironment
from tests.server import old_tokens, remote_jobs
from tests.server.conftest import Asking
from tests.server.served import SECRET, Served, made_key, serving
from tests.server.test_attempts import WRITES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
LONG = 60.0
"""Seconds after which a test gives up that waits for processes."""


async def until(holds: Callable[[], Any], what: str) -> Any:
    """Wait until something holds, and return it."""
    deadline = time.monotonic() + LONG
    while True:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return own | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "NO_COLOR": "1"}


@contextmanager
def process(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of Holdfast until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        env=environment() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            yield running
        finally:
            with suppress(ProcessLookupError):
                running.kill()


def worker_of(url: str, key: str) -> Any:
    """Run a worker in a process of its own."""
    return process("worker", "tests.server.remote_jobs:app", "--server", url, HOLDFAST_KEY=key)


# -- in this process -------------------------------------------------------------------------------------------------------


class Shop:
    """An app, and the tasks that the tests run."""

    def __init__(self) -> None:
        self.app = app = Holdfast("memory://")

        @app.task(name="shop.child")
        async def child(number: int) -> int:
            return number + 1

        @app.task(name="shop.order")
        async def order(number: int, *, job: Job) -> int:
            job.progress(30, "half", step="packing")
            job.log.info("packing")
            with job.stage("packed"):
                await job.checkpoint("box", data={"number": number})
            handle = await child.enqueue(number)
            return await handle.result(timeout=LONG)

        @app.task(name="shop.first")
        async def first(number: int, *, job: Job) -> int:
            return job.continue_with(child, number + 1)

        @app.task(name="shop.total")
        async def total(*, job: Job) -> int:
            return sum(job.results(child, child))

        @app.task(name="shop.pay", retry=1)
        async def pay(*, job: Job) -> None:
            async with job.transaction():
                pass

        self.child, self.order, self.first, self.total, self.pay = child, order, first, total, pay


@pytest.fixture(scope="module")
def open_served() -> Iterator[Served]:
    with serving(Holdfast("memory://")) as served:
        yield served


async def test_a_remote_worker_runs_whatever_a_worker_runs(open_served: Served) -> None:
    served, shop = open_served, Shop()
    store = served.server.context.store
    key = served.run(made_key(store, Role.WORKER, "far"))
    with shop.app.override(served.url, key=key):
        async with shop.app, shop.app.worker(name="far away", concurrency=4) as worker:
            handle = await shop.order.enqueue(1)
            assert await handle.result(timeout=LONG) == 2
            several = await shop.app.enqueue_many([shop.child.call(number) for number in range(2)])
            waiter = await shop.total.options(after=several).enqueue()
            assert await waiter.result(timeout=LONG) == 3
            chain = await shop.first.start_chain(1)
            assert await chain.result(timeout=LONG) == 3
        assert worker.counters.snapshot()[HINTED] == 1
        await shop.app.close()
    view = next(view for view in served.run(store.workers()) if view.worker.name == "far away")
    assert (view.worker.kind, view.state) == (WorkerKind.REMOTE, WorkerState.OFFLINE)
    assert [line.message for line in served.run(store.logs(handle.id, limit=10))] == ["packing"]
    assert [part.name for part in served.run(store.parts(handle.id))] == ["box"]
    job = served.run(store.get([handle.id]))[0]
    assert (job.state, job.progress, job.step) == (State.SUCCEEDED, 30.0, "packing")
    counts = {view.figure.task: view.figure.count for view in served.run(store.figures(Grain.ALL))}
    assert counts == {"shop.order": 1, "shop.child": 4, "shop.total": 1, "shop.first": 1}


async def test_what_needs_a_database_is_refused_in_words(open_served: Served) -> None:
    served, shop = open_served, Shop()
    key = served.run(made_key(served.server.context.store, Role.WORKER))
    with shop.app.override(served.url, key=key):
        async with shop.app, shop.app.worker(concurrency=1):
            handle = await shop.pay.enqueue()
            with pytest.raises(JobFailed, match="need the database"):
                await handle.result(timeout=LONG)
            with pytest.raises(NotAllowed, match="not for workers and clients over HTTP"):
                await shop.app.pause("default")
        await shop.app.close()


async def test_the_command_line_makes_no_keys_through_a_server(open_served: Served) -> None:
    """Beside the database alone: what `holdfast keys` does is asked of the store itself."""
    admin = open_served.run(made_key(open_served.server.context.store, Role.ADMIN, queues=("mail",)))
    line = HttpStore(open_served.url, admin, SystemEnvironment())
    key = Key(id="a" * 12, name="heir", role=Role.ADMIN, digest="a" * 64)
    async with asyncio.timeout(LONG):
        with pytest.raises(NotAllowed, match="the command line beside the database"):
            await line.add_key(key, by="ann")
        with pytest.raises(NotAllowed, match="the command line beside the database"):
            await line.rotate_key(key.id, key, 1.0, by="ann")
    await line.close()


async def test_a_worker_whose_key_is_not_known_does_not_start(open_served: Served) -> None:
    shop = Shop()
    with shop.app.override(open_served.url, key="hf_000000000000_" + "x" * 43):
        with pytest.raises(NotAllowed, match="not known here"):
            async with shop.app.worker():
                pass
        await shop.app.close()


async def test_a_key_that_ends_is_an_outage_to_a_worker_and_an_error_to_a_client(open_served: Served) -> None:
    store = open_served.server.context.store
    key = open_served.run(made_key(store, Role.WORKER))
    http = HttpStore(open_served.url, key, SystemEnvironment())
    await http.open()
    open_served.run(store.revoke_key(key.split("_")[1], by="test"))
    with pytest.raises(StoreUnavailable, match="was revoked"):
        await until(lambda: registers(http), "the key is still good")
    with pytest.raises(NotAllowed, match="was revoked"):
        await http.enqueue([NewJob(id=SystemEnvironment().job_id(), task="t")])
    await http.close()


async def registers(http: HttpStore) -> bool:
    """Register a worker, for as long as that is allowed."""
    await http.register(Worker(id=SystemEnvironment().token(), name="w"))
    return False


async def test_an_error_of_the_servers_own_is_no_outage(open_served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a settlement that cannot be written would be repeated for ever, and its lease kept."""

    async def broken(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(open_served.server.context.store, "settle", broken)
    http = HttpStore(open_served.url, SECRET, SystemEnvironment())
    lease = Lease(SystemEnvironment().job_id(), SystemEnvironment().token())
    with pytest.raises(HoldfastError, match="the server's own") as error:
        await http.settle([Settlement(lease, Write(Event.SUCCEED, 0, result="1"))])
    assert not isinstance(error.value, StoreUnavailable)
    await http.close()


async def test_a_server_that_is_not_there_is_a_store_that_is_away() -> None:
    store = HttpStore("http://127.0.0.1:1", "key", SystemEnvironment())
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1"):
        await store.open()
    await store.close()


@pytest.mark.parametrize(
    "url", ["https://", "https://user:hf_secret@host", "https://key@host", "https://host?x=1", "https://host:port"]
)
def test_a_url_that_names_no_server_or_holds_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        Holdfast(url)
    assert "hf_secret" not in str(refused.value)


def test_a_server_without_a_key_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSetting, match="holdfast keys add"):
        Holdfast("https://jobs.example.com").world().make_store()


async def test_hints_come_back_after_the_server_did_and_meanwhile_it_is_told() -> None:
    app = Holdfast("memory://")
    heard: list[Any] = []
    with serving(app, housekeeping=False) as served:
        port = int(served.url.rpartition(":")[2])
        notifier = HttpNotifier(served.url, SECRET, SystemEnvironment())
        await notifier.listen(heard.append)
        assert notifier.healthy
    await until(lambda: not notifier.healthy, "nobody noticed that the server is gone")
    with serving(app, housekeeping=False, port=port):
        await until(lambda: notifier.healthy, "it did not come back")
        await until(lambda: any(hint.anything for hint in heard), "what was missed is not made up for")
        await notifier.close()


# -- in processes of their own ---------------------------------------------------------------------------------------------


async def test_the_job_of_a_worker_that_was_killed_is_taken_over_and_its_token_is_dead(tmp_path: Path) -> None:
    with serving(Holdfast("memory://"), housekeeping=False) as served:
        ask = Asking(served)
        key = ask.key(Role.WORKER)
        job_id = ask.enqueue(task="remote.hang", args={"mark": str(tmp_path / "first")}, lease_ms=30_000)
        with worker_of(served.url, key) as first:
            await until((tmp_path / "first").exists, "the first worker did not begin")
            view = served.run(ask.store.get([job_id]))[0]
            lease = served.run(ask.store.holding(view.worker_id))[0]
            first.send_signal(signal.SIGKILL)
        with worker_of(served.url, key):
            (tmp_path / "first").unlink()
            served.run(ask.store.rewind(60))
            assert [one.job_id for one in served.run(ask.store.reap(10))] == [job_id]
            served.server.context.notifier.hint(Hint(frozenset({"default"})))
            await until((tmp_path / "first").exists, "nobody took over")
            for write, body in WRITES.items():
                answer = ask.post(f"/jobs/{job_id}/{write}", {"token": str(lease.token)} | body)
                assert (answer.status_code, answer.json()["holder"]["attempt"]) == (409, 2), write
        ask.client.close()


def test_no_request_that_shows_a_token_is_left_out() -> None:
    lease = Lease(SystemEnvironment().job_id(), SystemEnvironment().token())
    assert set(old_tokens.bodies(lease)) == set(old_tokens.refusals("running", None)) == set(old_tokens.shows_a_token())


async def test_a_worker_that_stood_still_until_another_had_ended_its_job_stops_and_writes_nothing(tmp_path: Path) -> None:
    with serving(Holdfast("memory://")) as served:  # with the server's own reaper
        ask = Asking(served)
        key = ask.key(Role.WORKER)
        job_id = ask.enqueue(task="remote.patient", args={"folder": str(tmp_path)}, lease_ms=2000)
        with worker_of(served.url, key) as first:
            await until((tmp_path / "began 1").exists, "the job did not begin")
            still = served.run(ask.store.get([job_id]))[0].worker_id
            (lease,) = served.run(ask.store.holding(still))
            first.send_signal(signal.SIGSTOP)
            with worker_of(served.url, key):
                await until((tmp_path / "began 2").exists, "nobody took over")
                view = served.run(ask.store.get([job_id]))[0]
                assert view.worker_id != still
                assert old_tokens.told(ask, lease, still, key) == old_tokens.refusals("running", (view.worker_id, 2))
                (tmp_path / "go 2").touch()
                await until(lambda: ask.get(f"/jobs/{job_id}").json()["state"] == "succeeded", "the other did not end it")
                ended = ask.get(f"/jobs/{job_id}").json()
                first.send_signal(signal.SIGCONT)
                await until((tmp_path / "stopped 1").exists, "the handler goes on")
                assert old_tokens.told(ask, lease, still, key) == old_tokens.refusals("succeeded", None)
            first.send_signal(signal.SIGTERM)
            said, _ = first.communicate(timeout=LONG)
        assert f"job {job_id} (remote.patient), attempt 1: asked to stop" in said
        assert ask.get(f"/jobs/{job_id}").json() == ended
        assert (ended["result"], ended["attempt"], ended["failures"]) == (2, 2, 1)
        attempts = served.run(ask.store.attempts(job_id))
        assert [(one.attempt, one.event is Event.SUCCEED) for one in attempts] == [(1, False), (2, True)]
        assert served.run(ask.store.parts(job_id)) == served.run(ask.store.logs(job_id, limit=10)) == []
        ask.client.close()


async def test_workers_go_on_when_their_server_was_killed_and_no_job_is_lost_or_charged(tmp_path: Path) -> None:
    url, port = f"sqlite:///{tmp_path}/jobs.db", free_port()
    served = f"http://127.0.0.1:{port}"
    command = ("server", "--url", url, "--port", str(port), "--log-level", "error")
    app = Holdfast(url)
    async with app:
        with ExitStack() as stack:
            first = stack.enter_context(process(*command, HOLDFAST_ADMIN_SECRET=SECRET))
            await until(lambda: answers(served), "the server did not start")
            for _ in range(2):  # which would end at once if there were no server yet
                stack.enter_context(worker_of(served, SECRET))
            short = remote_jobs.short
            with remote_jobs.app.override(url):
                handles = await remote_jobs.app.enqueue_many([short.call(number) for number in range(150)])
                await remote_jobs.app.close()
            await until(lambda: ended(app, 20), "nothing was run")
            first.send_signal(signal.SIGKILL)
            first.wait(LONG)
            assert not await ended(app, 150)
            with process(*command, HOLDFAST_ADMIN_SECRET=SECRET) as second:
                await until(lambda: ended(app, 150), "the workers did not go on")
                second.send_signal(signal.SIGTERM)
                assert second.wait(LONG) == 0
        views = await app.client().store.get([handle.id for handle in handles])
        assert {(view.state, view.failures) for view in views if view is not None} == {(State.SUCCEEDED, 0)}
        assert [view.result for view in views if view is not None] == [str(number * 2) for number in range(150)]


async def ended(app: Holdfast, count: int) -> bool:
    """Tell whether so many jobs have ended."""
    return (await app.client().store.stats()).terminal >= count


def answers(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{url}/health/ready", verify=False).status_code == 200
    return False


def free_port() -> int:
    with listening("127.0.0.1", 0) as sock:
        port: int = sock.getsockname()[1]
    return port


async def test_a_server_may_stand_below_a_path() -> None:
    with serving(Holdfast("memory://"), housekeeping=False, prefix="/jobs") as served:
        store = HttpStore(f"{served.url}/jobs/", SECRET, SystemEnvironment())
        await store.open()
        notifier = HttpNotifier(f"{served.url}/jobs", SECRET, SystemEnvironment())
        await notifier.listen(lambda _: None)
        assert notifier.healthy
        await notifier.close()
        await store.close()
