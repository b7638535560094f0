"""Many rows with one statement: what goes in comes out, and a batch takes as many statements as a few jobs do."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.job import NewJob, Unique
from holdfast.core.lease import Hold, Lease
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.store.port import ClaimRequest, Enqueue, Settled, Settlement, Worker
from holdfast.store.sqlite import SqliteStore, working
from holdfast.store.sqlite.packing import ALONE, MOST, WIDE, Portion, portions
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from holdfast.core.lease import Claimed

WORLD = SystemEnvironment()
ODD = ['"', "\\", '{"a": "\\u0000"}', "\u2028\u00e9\U0001f600", "\x01\x7f", "", "null", "[1, 2.50, 1e999]", "'"]
"""Texts that a careless way through JSON would change."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "jobs.db"), WORLD)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def worker(store: SqliteStore) -> Worker:
    worker = Worker(id=WORLD.token(), name="packing")
    await store.register(worker)
    return worker


def job(args: str = "{}", **fields: Any) -> NewJob:
    return NewJob(id=WORLD.job_id(), task="t", args=args, **fields)


async def claim(store: SqliteStore, worker: Worker, limit: int = 1000) -> list[Claimed]:
    return await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"t"}), limit=limit))


def test_wide_texts_go_alone_and_the_others_together() -> None:
    wide = "w" * (WIDE + 1)
    ids = [bytes([n]) * 16 for n in range(3)]
    assert list(portions(ids, ["a", wide, None])) == [
        Portion(ids[1], ALONE, wide),
        Portion(ids[0] + ids[2], '["a",null]', None),
    ]
    assert list(portions([], [])) == []


def test_no_statement_takes_more_than_it_should() -> None:
    found = list(portions([b"i" * 16] * (MOST + 1), [None] * (MOST + 1)))
    assert [len(portion.ids) // 16 for portion in found] == [MOST, 1]


async def test_args_come_out_as_they_went_in(store: SqliteStore, worker: Worker) -> None:
    texts = [*ODD, "é" * WIDE, "é" * (WIDE + 1), "\\" * (WIDE + 1), "last"]
    await store.enqueue([job(text) for text in texts])
    assert [one.args for one in await claim(store, worker)] == texts


async def test_results_come_out_as_they_went_in(store: SqliteStore, worker: Worker) -> None:
    texts = ["null", '"\\""', '"\u2028"', '"' + "é" * WIDE + '"', "[1, 2.50]"]
    await store.enqueue([job() for _ in texts])
    held = await claim(store, worker)
    settlements = [
        Settlement(one.lease, Write(Event.SUCCEED, failures, result=text))
        for failures, (one, text) in enumerate(zip(held, texts, strict=True))
    ]
    assert await store.settle(settlements) == [Settled.APPLIED] * len(texts)
    views = [view for view in await store.get([one.job_id for one in held]) if view is not None]
    assert [view.result for view in views] == texts
    assert [view.failures for view in views] == list(range(len(texts)))


async def test_leases_of_different_lengths_in_one_claim_are_exact(store: SqliteStore, worker: Worker) -> None:
    lengths = [60.0, 1 / 3 + 5, 60.0, 12.345678901234567]
    await store.enqueue([job(lease=length) for length in lengths])
    held = await claim(store, worker)
    assert [one.lease_seconds for one in held] == lengths
    views = [view for view in await store.get([one.job_id for one in held]) if view is not None]
    assert [view.expires_at for view in views] == [one.expires_at for one in held]
    assert len({one.token for one in held}) == len(held)
    answers = await store.extend([one.lease for one in held])
    assert [answer.hold.value for answer in answers] == ["held"] * len(held)


async def test_among_leases_that_are_extended_each_is_answered_for_itself(
    store: SqliteStore, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "MOST", 3)  # the answers are put together from several statements
    jobs = [job(lease=60.0 + n) for n in range(5)]
    await store.enqueue(jobs)
    held = {one.job_id: one for one in await claim(store, worker)}
    asked, ended, kept, stolen, last = [held[one.id].lease for one in jobs]
    await store.cancel([asked.job_id], reason="a test")
    await store.settle([Settlement(ended, Write(Event.SUCCEED, 0, result="null"))])
    stale = Lease(stolen.job_id, WORLD.token())
    gone = Lease(WORLD.job_id(), WORLD.token())
    leases = [kept, asked, ended, stale, last, gone, kept]
    answers = await store.extend(leases)
    told = [(answer.hold, answer.cancel_requested) for answer in answers]
    none = (Hold.HELD, False)
    assert told == [none, (Hold.HELD, True), (Hold.ENDED, False), (Hold.TAKEN, False), none, (Hold.GONE, False), none]
    views = {view.id: view for view in await store.get([lease.job_id for lease in leases]) if view is not None}
    for lease, answer in zip(leases, answers, strict=True):
        if answer.hold is Hold.HELD:
            assert views[lease.job_id].expires_at == answer.expires_at
            assert answer.expires_at is not None
            assert answer.expires_at > held[lease.job_id].expires_at
    assert views[stolen.job_id].expires_at == held[stolen.job_id].expires_at, "extended under a token that is not current"


async def test_jobs_of_one_lane_keep_their_order_whatever_else_they_differ_in(store: SqliteStore, worker: Worker) -> None:
    jobs = [job(f"{n}", tags=("odd",) if n % 2 else (), lease=60.0 + n % 3) for n in range(20)]
    await store.enqueue(jobs)
    assert [one.args for one in await claim(store, worker)] == [str(n) for n in range(20)]


async def test_among_simple_successes_the_others_are_told_apart(store: SqliteStore, worker: Worker) -> None:
    keyed, *plain = [job(unique=Unique(scope="s", key="k")), job(), job(), job()]
    waiter = job(after=(plain[2].id,))
    await store.enqueue([keyed, *plain, waiter])
    held = {one.job_id: one for one in await claim(store, worker)}
    done = Write(Event.SUCCEED, 0, result="null")
    stale = Settlement(Lease(plain[0].id, WORLD.token()), done)
    await store.settle([Settlement(held[plain[1].id].lease, done)])
    calls = [
        stale,
        Settlement(held[plain[1].id].lease, done),
        Settlement(held[keyed.id].lease, done),
        Settlement(held[plain[2].id].lease, done),
    ]
    assert await store.settle(calls) == [Settled.STALE, Settled.REPEATED, Settled.FREED, Settled.APPLIED]
    views = [view for view in await store.get([plain[0].id, keyed.id, plain[2].id, waiter.id]) if view is not None]
    assert [view.state for view in views] == [State.RUNNING, State.SUCCEEDED, State.SUCCEEDED, State.READY]
    (again,) = await store.enqueue([job(unique=Unique(scope="s", key="k"))])
    assert again.status is Enqueue.CREATED, "the key was freed"


async def test_a_job_settled_twice_in_one_call_is_applied_once(store: SqliteStore, worker: Worker) -> None:
    await store.enqueue([job()])
    (one,) = await claim(store, worker)
    done = Settlement(one.lease, Write(Event.SUCCEED, 0, result="null"))
    assert await store.settle([done, done]) == [Settled.APPLIED, Settled.REPEATED]


async def test_ids_that_are_known_are_found_among_new_ones(store: SqliteStore) -> None:
    old, new, newer = job(), job(), job()
    await store.enqueue([new])
    answers = await store.enqueue([newer, new, old])
    assert [answer.status for answer in answers] == [Enqueue.CREATED, Enqueue.REPEATED, Enqueue.CREATED]


async def test_a_batch_takes_no_more_statements_than_a_few_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: Counter[str] = Counter()
    open_file = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        opened: sqlite3.Connection = open_file(*args, **options)
        opened.set_trace_callback(lambda statement: ran.update([statement.split("(")[0]]))
        return opened

    monkeypatch.setattr(sqlite3, "connect", traced)
    store = SqliteStore(str(tmp_path / "jobs.db"), WORLD)
    await store.open()
    worker = Worker(id=WORLD.token(), name="counted")
    await store.register(worker)

    async def count(jobs: int) -> list[int]:
        taken = []
        ran.clear()
        await store.enqueue([job() for _ in range(jobs)])
        taken.append(ran.total())
        ran.clear()
        held = await claim(store, worker, jobs)
        taken.append(ran.total())
        ran.clear()
        await store.settle([Settlement(one.lease, Write(Event.SUCCEED, 0, result="null")) for one in held])
        return [*taken, ran.total()]

    await count(3)
    few, many = await count(3), await count(300)
    await store.close()
    assert many == few
    assert max(few) < 15
