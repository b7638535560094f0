"""The life of two jobs on a store, by hand: enqueue, claim, settle."""

import asyncio
import sys

import holdfast
from holdfast.core.job import NewJob
from holdfast.core.outcome import Error, Failed, Outcome, Succeeded
from holdfast.core.settle import settle
from holdfast.store.port import ClaimRequest, Settlement, Worker
from holdfast.system import SystemEnvironment
from holdfast.tasks.codec import ArgsCodec


def welcome(user_id: int) -> str:
    return f"sent to {user_id}"


async def main(url: str) -> None:
    world, args = SystemEnvironment(), ArgsCodec.of(welcome, task="welcome")
    store = holdfast.connect(url)
    await store.open()  # the schema is created on first use

    # Enqueue. The ids are ours, so a call whose answer was lost can simply be repeated.
    jobs = [NewJob(id=world.job_id(), task="welcome", args=args.encode(user)) for user in (42, 43)]
    await store.enqueue(jobs)

    # Claim: every job comes with a lease, whose token each later write must show.
    me = Worker(id=world.token(), name="laptop")
    await store.register(me)
    first, second = await store.claim(ClaimRequest(worker=me.id, tasks=frozenset({"welcome"}), limit=10))

    # Run, and settle what came of it: one went well, one is tried again after its backoff.
    positional, named = args.decode(first.args)
    outcomes: list[Outcome] = [Succeeded(f'"{welcome(*positional, **named)}"'), Failed(Error("SMTP_DOWN"))]
    for job, outcome in zip((first, second), outcomes, strict=True):
        write = settle(outcome, job.policy.retry, job.failures, job.claimed_at, world.random)
        print(await store.settle([Settlement(job.lease, write)]))

    for view in await store.get([job.id for job in jobs]):
        print(view and (view.shown, view.result, view.error))
    for event in await store.events(jobs[1].id):
        print(" ", event.event, "->", event.state, event.detail)
    await store.close()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:///jobs.db"))
