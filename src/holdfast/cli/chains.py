"""`holdfast chains`: which chains there are, how far one of them is, and removing them."""

from typing import Annotated, Any

from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, actor, run, tell
from holdfast.cli.jobs import COLUMNS as STEP_COLUMNS
from holdfast.cli.jobs import job_json
from holdfast.cli.jobs import row as step_row
from holdfast.cli.output import Column
from holdfast.core.states import TERMINAL
from holdfast.errors import JobNotFound
from holdfast.finding import Mistake, chains_where, job_filter, job_id, job_ids, jobs_where, listed, one_job
from holdfast.notify.port import Hint
from holdfast.store.port import Answer, ChainsDeleted, ChainView, JobFilter, Store

COLUMNS = (
    Column("id", is_id=True),
    Column("state"),
    Column("task"),
    Column("steps", right=True),
    Column("at", goes=True),
    Column("queue", goes=True),
    Column("created", goes=True),
    Column("detail", shrinks=True),
)
SHOWN_STEPS = 20
MOST_TOLD = 100
"""Jobs that a hint names; of more, workers find out when they look."""


def ls(
    *filters: str,
    limit: Annotated[int, Parameter(alias="-n")] = 50,
    after: str | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    common: Common = COMMON,
) -> None:
    """List chains, newest first: those started as one, and those that jobs have become by continuing.

    Example: holdfast chains ls state:live task:orders.start since:1d

    Tokens as for `jobs ls`: state: is about the chain, which stands where its last step stands; task:, queue:, tag:, key:,
    since: and before: are about its first step.

    Parameters
    ----------
    filters
        Filter tokens.
    limit
        How many to list.
    after
        Go on below this id: the last one of the page before.
    everything
        List all that match, however many.
    """
    if limit < 1:
        raise Mistake(f"--limit must be 1 or more, not {limit}")

    async def work(store: Store) -> None:
        now = await store.now()
        where = job_filter(filters, now)
        if where.chain_id is not None:
            raise Mistake("chain: is for jobs: holdfast jobs ls chain:ID, or holdfast chains show ID")
        start = None if after is None else await job_id(store, after)
        chains, cursor, whole = await listed(chains_where(store, where), limit=limit, after=start, everything=everything)
        if common.as_json:
            output.print_json({"chains": [chain_json(one) for one in chains], "after": cursor, "searched_all": whole})
            return
        output.print_table(COLUMNS, [_row(one, now) for one in chains], empty="no chains" + (" match" if filters else ""))
        if cursor is not None:
            said = "there are more" if whole else "only the newest chains were searched"
            output.note(f"… {said}: --all, or go on with --after {cursor}")

    run(common, work)


def show(chain: str, /, *, steps: int = SHOWN_STEPS, common: Common = COMMON) -> None:
    """Show one chain: where it stands, its result or error, and its last steps.

    Example: holdfast chains show 01890a5d..9a8057

    Parameters
    ----------
    chain
        The id of its first job, or of any step: whole, short as lists show it, or a beginning that no other job has.
    steps
        How many of its steps to show, the last ones.
    """
    if steps < 1:
        raise Mistake(f"--steps must be 1 or more, not {steps}")

    async def work(store: Store) -> None:
        job = await one_job(store, chain)
        view = (await store.chains([job.chain_id or job.id]))[0]
        if view is None:
            raise JobNotFound(job.id)
        search = jobs_where(store, JobFilter(chain_id=view.id))
        last, more, _ = await listed(search, limit=steps, after=None, everything=False)
        if common.as_json:
            output.print_json(chain_json(view) | {"last_steps": [job_json(step) for step in last]})
            return
        for line in _described(view):
            print(line)
        print("\nsteps, the last one first")
        now = await store.now()
        output.print_table(STEP_COLUMNS, [step_row(step, now) for step in last], empty="none")
        if more is not None:
            output.note(f"… {view.steps - len(last)} earlier one(s): --steps, or holdfast jobs ls chain:{view.id} --all")

    run(common, work)


def delete(*chains: str, cascade: Yes = False, common: Common = COMMON) -> int:
    """Remove chains with all their steps and records, in whatever state; a running step loses its lease. All or nothing.

    Example: holdfast chains delete 01890a5d..9a8057 --cascade

    Refused while a live job that stays waits for one of them, or will be handed its result: the answer names it.

    Parameters
    ----------
    chains
        The ids of their first jobs.
    cascade
        Also the chains they waited for, and those that those waited for.
    """
    if not chains:
        raise Mistake("which chains? Give the ids of their first jobs. See: holdfast chains ls")

    async def work(store: Store) -> int:
        ids = await job_ids(store, chains)
        deleted = await store.delete_chains(ids, cascade=cascade, by=actor())
        if deleted.answer is Answer.DONE:
            await tell(common, Hint(jobs=frozenset(deleted.jobs[:MOST_TOLD]), anything=True))
        return await _told(store, deleted, common)

    return run(common, work)


async def _told(store: Store, deleted: ChainsDeleted, common: Common) -> int:
    if common.as_json:
        output.print_json(deleted)
    elif deleted.answer is Answer.DONE:
        for chain_id in deleted.chains:
            print(f"{chain_id}: deleted")
    if deleted.answer is Answer.DONE:
        return output.OK
    if deleted.answer is Answer.NEEDED:
        output.note(
            f"error: nothing was deleted: job {deleted.needed_by} waits for chain {deleted.chain}, or will read its result. "
            f"Cancel that one first (holdfast jobs cancel {deleted.needed_by}), or delete its chain too"
        )
        return output.ERROR
    step = None if deleted.chain is None else (await store.get([deleted.chain]))[0]
    if step is not None and step.chain_id is not None:
        output.note(
            f"error: nothing was deleted: job {step.id} is a later step. Its chain: holdfast chains delete {step.chain_id}"
        )
        return output.ERROR
    output.note(f"error: nothing was deleted: chain {deleted.chain} is not there: it never was, or it was deleted or pruned")
    return output.NOT_FOUND


def chain_json(view: ChainView) -> dict[str, Any]:
    """Return a chain as its JSON shows it: the result as it is."""
    return output.fields(view) | {"result": output.raw(view.result)}


def _row(view: ChainView, now: Any) -> tuple[object, ...]:
    detail = "-"
    if view.error is not None:
        detail = f"{view.error.code}: {view.error.message}"
    elif view.result is not None:
        detail = view.result
    return view.id, view.state, view.task, view.steps, view.step_task, view.queue, output.when(view.created_at, now), detail


def _described(view: ChainView) -> list[str]:
    facts: list[tuple[str, object]] = [
        ("state", f"{view.state}, {view.steps} step(s)"),
        ("last step", f"{view.step} ({view.step_task})"),
        ("queue", view.queue),
        ("created", view.created_at),
    ]
    facts += [("finished", view.finished_at)] * (view.finished_at is not None)
    facts += [("key", view.key)] * (view.key is not None)
    facts += [("tags", ", ".join(view.tags))] * bool(view.tags)
    lines = [output.harmless(f"chain {view.id} of {view.task}")]
    lines += [f"  {name}: {output.cell(value)}" for name, value in facts]
    if view.error is not None:
        lines.append("  error: " + output.harmless(f"{view.error.code}: {view.error.message}"))
    if view.result is not None:
        lines += ["", "result", "  " + output.harmless(view.result)]
    if view.state not in TERMINAL:
        lines += ["", f"why it is where it is: holdfast jobs why {view.step}"]
    return lines
