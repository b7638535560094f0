"""`holdfast jobs ls`, `show` and `why`: which jobs there are, how one of them went, and why it is not running."""

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, run
from holdfast.cli.output import Column
from holdfast.core.limits import LimitKey
from holdfast.core.states import TERMINAL, State
from holdfast.explaining import SHOWN_BLOCKERS, counted, look, reasons
from holdfast.finding import Mistake, job_filter, job_id, jobs_where, listed, one_job
from holdfast.store.port import BlockerView, ChainView, EventView, JobView, Store
from holdfast.tasks.report import Report, make_report
from holdfast.throttling import marked

COLUMNS = (
    Column("id", is_id=True),
    Column("state"),
    Column("task"),
    Column("queue", goes=True),
    Column("attempt", right=True, goes=True),
    Column("created", goes=True),
    Column("detail", shrinks=True),
)


def ls(
    *filters: str,
    limit: Annotated[int, Parameter(alias="-n")] = 50,
    after: str | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    common: Common = COMMON,
) -> None:
    """List jobs, newest first.

    Example: holdfast jobs ls state:failed task:mail.send since:1h

    Tokens: state:ready,running (or live, waiting, ended), task:, queue:, tag:, key:, chain:ID (its steps), since:1h, before:7d.
    A job is listed when all of them hold. Without tokens: every job.

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
        start = None if after is None else await job_id(store, after)
        jobs, cursor, whole = await listed(jobs_where(store, where), limit=limit, after=start, everything=everything)
        jobs = await marked(store, jobs)
        if common.as_json:
            output.print_json({"jobs": [job_json(job) for job in jobs], "after": cursor, "searched_all": whole})
            return
        output.print_table(COLUMNS, [row(job, now) for job in jobs], empty="no jobs" + (" match" if filters else ""))
        if cursor is not None:
            said = "there are more" if whole else "only the newest jobs were searched"
            output.note(f"… {said}: --all, or go on with --after {cursor}")

    run(common, work)


def show(job: str, /, *, events: Yes = False, common: Common = COMMON) -> None:
    """Show one job: where it stands, its chain and its blockers, attempts, stages, parts, args, result, error with traceback.

    Example: holdfast jobs show 01890a5d-ac96-774b-bcce-b302099a8057 --events

    Parameters
    ----------
    job
        Its id, the short form of it that `jobs ls` shows, or a beginning that no other job has.
    events
        Also everything that happened to it, line by line.
    """

    async def work(store: Store) -> None:
        (view,) = await marked(store, [await one_job(store, job)])
        log = await store.events(view.id)
        report = make_report(view, await store.attempts(view.id), log, await store.parts(view.id), await store.now())
        blockers = await store.blockers(view.id) if view.after else []
        chain = (await store.chains([view.chain_id]))[0] if view.chain_id is not None else None
        if common.as_json:
            record = job_json(view) | {"report": output.fields(report) | {"result": output.raw(report.result)}}
            record["blockers"] = [output.fields(one) | {"result": output.raw(one.result)} for one in blockers]
            record["chain"] = None if chain is None else output.fields(chain) | {"result": output.raw(chain.result)}
            output.print_json(record | ({"events": log} if events else {}))
            return
        for line in described(view, report, chain, blockers):
            print(line)
        if events:
            print("\nevents")
            for event in log:
                print("  " + event_line(event))

    run(common, work)


def why(job: str, /, *, common: Common = COMMON) -> None:
    """Say why a job is not running, and what would change it.

    Example: holdfast jobs why 01890a5d..9a8057

    Paused queue, a limit that is used up, not due yet, blocked, asleep or waiting for a signal, to be completed from outside,
    no worker that knows the task, all slots busy, a lease whose holder is gone, or how it ended: each reason comes with the
    command that changes it.

    Parameters
    ----------
    job
        Its id, the short form of it that `jobs ls` shows, or a beginning that no other job has.
    """

    async def work(store: Store) -> None:
        (view,) = await marked(store, [await one_job(store, job)])
        found = reasons(await look(store, view, output.moment))
        if common.as_json:
            output.print_json({"id": view.id, "state": view.state, "shown": view.shown, "reasons": found})
            return
        print(output.harmless(f"{view.task} {view.id} is {view.shown}"))
        for reason in found:
            print(output.harmless(f"  {reason.text}"))
            if reason.fix:
                print(output.harmless(f"    -> {reason.fix}"))

    run(common, work)


def job_json(view: JobView) -> dict[str, Any]:
    """Return a job as its JSON shows it: args and result as they are, the policy by name."""
    return output.fields(view) | {
        "args": output.raw(view.args),
        "result": output.raw(view.result),
        "shown": view.shown,
    }


def described(view: JobView, report: Report, chain: ChainView | None = None, blockers: Sequence[BlockerView] = ()) -> list[str]:
    """Return the page about a job, in lines; whatever came from outside is made harmless."""
    facts: list[tuple[str, object]] = [
        ("queue", f"{view.queue}, priority {view.priority}"),
        ("created", view.created_at),
    ]
    facts += [("due", view.run_at)] * (view.run_at is not None)
    facts += [("start by", view.start_by)] * (view.start_by is not None)
    facts += [("finished", view.finished_at)] * (view.finished_at is not None)
    facts += [("key", f"{view.key} (scope {view.scope})")] * (view.key is not None)
    facts += [("tags", ", ".join(view.tags))] * bool(view.tags)
    facts += [("requires", ", ".join(view.requires))] * bool(view.requires)
    facts += [("limit", _limit(view.limit))] if view.limit is not None else []
    facts += [("chain", _chain(chain))] if chain is not None else []
    facts += [("continued by", view.continued_by)] * (view.continued_by is not None)
    facts += [("after", line) for line in _blockers(blockers)]
    facts += [("asked to stop", "yes")] * (view.cancel_requested and view.state is State.RUNNING)
    facts += [("progress", _progress(view))] * (view.progress is not None)
    facts += [("lease", _lease(view))] * (view.expires_at is not None)
    lines = [output.harmless(str(report), keep="\n").replace(f"  {view.state}", f"  {view.shown}", 1)]
    lines += [f"  {name}: {output.cell(value)}" for name, value in facts]
    lines += ["", "args", "  " + output.harmless(view.args)]
    if view.result is not None:
        lines += ["", "result", "  " + output.harmless(view.result)]
    if view.error is not None and view.error.traceback:
        lines += ["", "traceback", _indented(view.error.traceback)]
    hint = view.state in TERMINAL and view.state is not State.SUCCEEDED
    lines += ["", f"to run it again: holdfast jobs retry {view.id}"] * hint
    lines += ["", f"to see its chain: holdfast chains show {view.chain_id}"] * (chain is not None)
    return lines


def row(job: JobView, now: Any) -> tuple[object, ...]:
    """Return the cells of a job, for `COLUMNS`."""
    return job.id, job.shown, job.task, job.queue, job.attempt, output.when(job.created_at, now), _detail(job)


def event_line(event: EventView) -> str:
    """Return one line of an event log."""
    parts = [output.moment(event.at), str(event.event)]
    parts += [f"-> {event.state}"] * (event.state is not None)
    parts += [f"attempt {event.attempt}"] * bool(event.attempt)
    parts += [f"by {event.actor}"] * bool(event.actor)
    parts += [f"({event.detail})"] * bool(event.detail)
    return output.harmless("  ".join(parts))


def _detail(job: JobView) -> str:
    """Return what tells this job from its neighbours: how it failed, how far it is, or what it was given."""
    if job.error is not None:
        # how the last attempt failed tells more than that there is no attempt left, and room is short
        _, _, last = job.error.message.partition("; the last one with ")
        text = last if output.interactive() and last else f"{job.error.code}: {job.error.message}"
    elif job.state is State.RUNNING and job.progress is not None:
        text = _progress(job)
    else:
        text = job.args
    return text


def _limit(limit: LimitKey) -> str:
    weight = "" if limit.weight == 1.0 else f", weight {limit.weight:g}"
    return f"key {limit.key!r} in {limit.scope!r}{weight}"


def _chain(chain: ChainView) -> str:
    return f"{chain.id}, {chain.steps} step(s), {chain.state}"


def _blockers(blockers: Sequence[BlockerView]) -> list[str]:
    """Return what it waits or waited for; of many, how they stand and the first that have not ended."""
    if len(blockers) <= SHOWN_BLOCKERS:
        return [_blocker(one) for one in blockers]
    first = [one for one in blockers if one.state is not None and one.state not in TERMINAL] or blockers
    lines = [_blocker(one) for one in first[:SHOWN_BLOCKERS]]
    how = f"{len(blockers)} chains: {counted([one.state for one in blockers])}"
    return [how, *lines, f"… {len(blockers) - len(lines)} more: --json"]


def _blocker(blocker: BlockerView) -> str:
    how = "gone: deleted or pruned" if blocker.state is None else f"{blocker.state}, {blocker.task}"
    return f"{blocker.chain_id} ({how})"


def _progress(view: JobView) -> str:
    return " ".join(part for part in (f"{view.progress or 0.0:.0f} %", view.step, view.message) if part)


def _lease(view: JobView) -> str:
    if view.expires_at is None:
        return "-"
    return f"held by {view.worker_name or view.worker_id}, until {output.moment(view.expires_at)}"


def _indented(text: str) -> str:
    return "\n".join("  " + output.harmless(line) for line in text.splitlines())
