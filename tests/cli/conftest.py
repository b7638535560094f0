"""The command line in this process: what it printed, and its exit code. And stores for it to look at."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

import msgspec
import pytest
from uuid_utils.compat import uuid7

from holdfast.__main__ import main
from holdfast.connect import connect
from holdfast.core.job import NewJob, Policy
from holdfast.core.outcome import Error, Failed, Outcome, Succeeded
from holdfast.core.retry import Retry
from holdfast.core.settle import Write, settle
from holdfast.core.states import Event
from holdfast.store.port import ClaimRequest, Settlement, Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from holdfast.core.lease import Claimed
    from holdfast.store.port import Store

T = TypeVar("T")
TASK = "mail.send"
BOOM = Error("BOOM", "it broke", 'Traceback\n  File "mail.py", line 7\nBoom: it broke')


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)

    @property
    def rows(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Done]:
    """Run a command in this process, in an empty folder and with no settings but those of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["holdfast", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert "Traceback (most recent call last)" not in printed.err
        code = ended.value.code
        return Done(code if isinstance(code, int) else 1, printed.out, printed.err + (code if isinstance(code, str) else ""))

    return run


@dataclass
class Shop:
    """A store by its URL, and short words for what tests put into it; each opens the store, acts and closes it."""

    url: str
    workers: dict[str, UUID] = field(default_factory=dict)

    def do(self, work: Callable[[Store], Awaitable[T]]) -> T:
        async def run() -> T:
            store = connect(self.url)
            await store.open()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def enqueue(self, *, task: str = TASK, retry: Retry | None = None, **fields: Any) -> UUID:
        policy = Policy(retry=retry or Retry(max_attempts=1))
        job = NewJob(**{"id": uuid7(), "task": task, "policy": policy, "args": '{"to":"ann"}', **fields})

        async def work(store: Store) -> UUID:
            return (await store.enqueue([job]))[0].job_id

        return self.do(work)

    def worker(self, name: str = "w1", **fields: Any) -> UUID:
        if name not in self.workers:
            worker = Worker(**{"id": uuid4(), "name": name, "slots": 1, **fields})
            self.do(lambda store: store.register(worker))
            self.workers[name] = worker.id
        return self.workers[name]

    def claim(self, name: str = "w1", *, task: str = TASK, limit: int = 1) -> list[Claimed]:
        request = ClaimRequest(worker=self.worker(name), tasks=frozenset({task}), limit=limit, look=True)
        return self.do(lambda store: store.claim(request))

    def settle(self, claimed: Claimed, outcome: Outcome) -> None:
        write = settle(outcome, claimed.policy.retry, claimed.failures, claimed.claimed_at, lambda: 0.5)
        self.do(lambda store: store.settle([Settlement(claimed.lease, write)]))

    def go_on(self, claimed: Claimed, task: str = TASK, **fields: Any) -> UUID:
        """Have a running step continue; returns the id of the next one."""
        then = NewJob(**{"id": uuid7(), "task": task, **fields})
        settlement = Settlement(claimed.lease, Write(Event.CONTINUE, claimed.failures), then)
        self.do(lambda store: store.settle([settlement]))
        return then.id

    def chain(self, steps: int = 2, **fields: Any) -> list[UUID]:
        """Start a chain and let it continue; returns the ids of its steps, of which the last waits."""
        first = uuid7()
        ids = [self.enqueue(id=first, chain_id=first, **fields)]
        while len(ids) < steps:
            ids.append(self.go_on(self.claim()[0]))
        return ids

    def succeed(self, result: str = "null", **fields: Any) -> UUID:
        job_id = self.enqueue(**fields)
        self.settle(self.claim(task=fields.get("task", TASK))[0], Succeeded(result))
        return job_id

    def fail(self, **fields: Any) -> UUID:
        job_id = self.enqueue(**fields)
        self.settle(self.claim(task=fields.get("task", TASK))[0], Failed(BOOM, fatal=True))
        return job_id

    def state(self, job_id: UUID) -> str | None:
        async def work(store: Store) -> str | None:
            view = (await store.get([job_id]))[0]
            return None if view is None else view.state

        return self.do(work)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: object) -> Shop:
    """A store in a file, which the command line knows from the environment."""
    shop = Shop(f"sqlite:///{tmp_path}/jobs.db")
    shop.do(lambda store: store.now())
    monkeypatch.setenv("HOLDFAST_URL", shop.url)
    return shop


@pytest.fixture
def postgres_shop(postgres_url: str, monkeypatch: pytest.MonkeyPatch, cli: object) -> Shop:
    """A store in a schema of its own of a PostgreSQL database."""
    shop = Shop(f"{postgres_url}?schema=s{uuid4().hex[:12]}")
    shop.do(lambda store: store.now())
    monkeypatch.setenv("HOLDFAST_URL", shop.url)
    return shop
