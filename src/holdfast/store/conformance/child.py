"""A process of the process suite: `python -P child.py OPENER URL ROLE OPTIONS`.

It opens the store, says `{"ready": …}`, waits for a line of input, plays its role, and reports in JSON lines. Roles:

- `work`: claim and settle until nothing is left; reports the ids it claimed and the ids whose settlement was applied.
- `hold`: claim some jobs, report them, and wait to be killed.
- `finish`: for each line of its input either claim a batch (`claim`) or settle the jobs of that batch, `one by one` or
  `at once`; reports the ids it claimed and the ids whose settlement was applied.
- `produce`: for each line of its input (a key), enqueue jobs with that key at the same time; reports the answers.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from uuid_utils.compat import uuid7

from holdfast.core.job import NewJob, Unique
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import ClaimRequest, Settled, Settlement, Store, Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.lease import Claimed


def main(arguments: Sequence[str]) -> None:
    """Play one role."""
    opener, url, role, options = arguments
    module, _, function = opener.partition(":")
    store: Store = getattr(importlib.import_module(module), function)(url)
    asyncio.run(_play(store, role, json.loads(options)))


async def _play(store: Store, role: str, options: dict[str, Any]) -> None:
    await store.open()
    try:
        match role:
            case "work":
                await _work(store, **options)
            case "hold":
                await _hold(store, **options)
            case "finish":
                await _finish(store, **options)
            case "produce":
                await _produce(store, **options)
            case _:
                raise ValueError(f"no such role: {role}")
    finally:
        await store.close()


async def _work(store: Store, *, tasks: list[str], batch: int) -> None:
    request = await _request(store, tasks, batch)
    await _told_to_go()
    while claims := await store.claim(request):
        _report(claimed=_ids(claims))
        _report(settled=await _succeed(store, claims))


async def _hold(store: Store, *, tasks: list[str], batch: int) -> None:
    request = await _request(store, tasks, batch)
    await _told_to_go()
    _report(claimed=_ids(await store.claim(request)))
    await _told_to_go()  # never comes: the parent kills this process


async def _finish(store: Store, *, tasks: list[str], batch: int) -> None:
    request = await _request(store, tasks, batch)
    claims: list[Claimed] = []
    _report(ready=os.getpid())
    while how := await _line():
        match how:
            case "claim":
                claims = await store.claim(request)
                _report(claimed=_ids(claims))
            case "one by one":
                _report(settled=[job_id for claim in claims for job_id in await _succeed(store, [claim])])
            case _:
                _report(settled=await _succeed(store, claims))


async def _produce(store: Store, *, task: str, producers: int) -> None:
    _report(ready=os.getpid())
    while key := await _line():
        unique = Unique(key=key, scope=task)
        jobs = [NewJob(id=uuid7(), task=task, unique=unique) for _ in range(producers)]
        answers = await asyncio.gather(*(store.enqueue([job]) for job in jobs))
        _report(answers=[(answer.status, str(answer.job_id)) for batch in answers for answer in batch])


async def _succeed(store: Store, claims: Sequence[Claimed]) -> list[str]:
    """Settle attempts in one call, and return the jobs for which that was applied."""
    answers = await store.settle([Settlement(one.lease, Write(Event.SUCCEED, one.failures, result="1")) for one in claims])
    return _ids(one for one, answer in zip(claims, answers, strict=True) if answer in {Settled.APPLIED, Settled.FREED})


async def _request(store: Store, tasks: list[str], batch: int) -> ClaimRequest:
    worker = Worker(id=uuid4(), name=f"process {os.getpid()}")
    await store.register(worker)
    return ClaimRequest(worker=worker.id, tasks=frozenset(tasks), limit=batch, look=True)


async def _told_to_go() -> None:
    _report(ready=os.getpid())
    await _line()


async def _line() -> str:
    """Wait for a line without holding up the loop: a store may have tasks of its own."""
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


def _ids(claims: Any) -> list[str]:
    return [str(claim.job_id) for claim in claims]


def _report(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
