"""`holdfast enqueue`: one job, checked by its task where the app is known."""

import asyncio
import inspect
import sys
from contextlib import nullcontext
from datetime import datetime
from typing import Annotated, Any, cast
from uuid import UUID

import msgspec
from cyclopts import Parameter

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, actor, run, tell
from holdfast.cli.embedded import embedding
from holdfast.cli.loading import another_store, load_app
from holdfast.config import load
from holdfast.core.job import NewJob, OnConflict, Unique
from holdfast.core.spans import span
from holdfast.core.states import TERMINAL, State
from holdfast.errors import JobNotFound
from holdfast.finding import Mistake, seconds
from holdfast.notify.port import Hint
from holdfast.store.port import Audit, Enqueue, Enqueued, JobView, Store
from holdfast.tasks.options import JobOptions, priority_of
from holdfast.tasks.task import Call, Task

LOOK_EVERY = (0.02, 1.0)
"""Seconds between looks while waiting: at first, and at most."""


def enqueue(
    task: str,
    args: Annotated[str, Parameter(allow_leading_hyphen=True)] = "{}",
    /,
    *more: Annotated[str, Parameter(show=False, allow_leading_hyphen=False)],
    app: str | None = None,
    queue: str | None = None,
    priority: str | None = None,
    delay: str | None = None,
    run_at: str | None = None,
    key: str | None = None,
    on_conflict: str | None = None,
    expires_in: str | None = None,
    tag: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    requires: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    wait: Yes = False,
    timeout: str | None = None,
    common: Common = COMMON,
) -> int:
    """Enqueue one job and print its id.

    Example: holdfast enqueue mail.welcome '{"user_id": 42}' --app shop.jobs:app --delay 5m --wait

    With --app the args are checked by the task, and its own options hold where none are given here; the store is the app's.
    Without it the args are stored as they are, unchecked, and must be an object.

    Parameters
    ----------
    task
        Its name, as workers know it.
    args
        The args as JSON: an object by parameter name, or with --app an array in their order; - reads them from standard input.
    more
        Nothing: refused with what was probably meant.
    app
        MODULE:APP that declares the task.
    queue
        The queue.
    priority
        0-9, higher first, or low, normal, high.
    delay
        Run it so much later: 30s, 5m, 1h.
    run_at
        Run it then: 2026-12-24T18:00:00+01:00. Without an offset: local time.
    key
        At most one live job of this task has it.
    on_conflict
        When the key is taken: skip, replace or debounce.
    expires_in
        End it as canceled if it still waits then.
    tag
        A tag; may be given several times.
    requires
        A capability that its worker must have; may be given several times.
    wait
        Wait for its end and print its result.
    timeout
        With --wait: give up after so long; the job goes on.
    """
    loaded = load()
    target = app or loaded.settings.app
    _check_order(task, args, more, target)
    text = _valid(sys.stdin.read() if args == "-" else args)
    options = _options(
        {"queue": queue, "key": key, "tags": tag or None, "requires": requires or None},
        priority=priority,
        delay=delay,
        run_at=run_at,
        on_conflict=on_conflict,
        expires_in=expires_in,
    )
    limit = None if timeout is None else seconds(timeout, "--timeout")
    if target is not None or embedding.get() is not None:
        if common.url is not None:
            raise Mistake("give --app or --url, not both: an app has its own store")
        found = load_app(target)
        if task not in found.tasks:
            names = "\n  ".join(sorted(found.tasks)) or "(none)"
            raise Mistake(f"{target or 'the app'} declares no task {task!r}. It declares:\n  {names}")
        if (warning := another_store(found, loaded)) is not None:
            output.note(f"warning: {warning}")
        call = found.tasks[task].call_text(_by_name(text, found.tasks[task]), cast("JobOptions", options))
        return asyncio.run(_through(found, call, common, wait=wait, limit=limit))
    if not _is_object(text):
        raise Mistake("ARGS must be a JSON object with the args by name, such as '{\"user_id\": 42}'; an array needs --app")
    job = _unchecked(task, text, options)

    async def work(store: Store) -> int:
        answer = (await store.enqueue([job], audit=Audit(by=actor())))[0]
        await tell(common, Hint(frozenset({job.queue}), later=bool(job.delay or job.run_at)))
        output.note(f"the args are unchecked: give --app MODULE:APP to have the task {task!r} check them")
        _told(answer, common, wait=wait)
        return output.OK if not wait else _ended(await _end(store, answer.job_id, limit), common)

    return run(common, work, create=True)


# --- with the app -------------------------------------------------------------------------------------------------------


async def _through(app: Holdfast, call: Call[Any], common: Common, *, wait: bool, limit: float | None) -> int:
    async with app:
        answer = await _audited(app, call)
        _told(answer, common, wait=wait)
        if not wait:
            return output.OK
        try:
            view = await app.client().wait(answer.job_id, limit)
        except TimeoutError:
            raise _still(answer.job_id, limit) from None
        return _ended(app.opened(view), common)


async def _audited(app: Holdfast, call: Call[Any]) -> Enqueued:
    """Do as `app.enqueue_many`, with a line in the audit log: it is a person who enqueues, and not the program."""
    queue = app.queue_options(call.job.queue)
    caps = {} if queue is None or queue.max_depth is None else {call.job.queue: queue.max_depth}
    with nullcontext() if app.tracing is None else app.tracing.enqueuing([call]):
        return (await app.client().enqueue([call.job], caps, Audit(by=actor())))[0]


# --- without it ---------------------------------------------------------------------------------------------------------


def _unchecked(task: str, text: str, options: dict[str, Any]) -> NewJob:
    from holdfast.system import SystemEnvironment  # noqa: PLC0415  not needed for --help

    options = dict(options)
    key, on_conflict = options.pop("key", None), options.pop("on_conflict", OnConflict.SKIP)
    unique = None if key is None else Unique(key=key, scope=task, on_conflict=on_conflict)
    if "priority" in options:
        options["priority"] = priority_of(options["priority"])
    return NewJob(id=SystemEnvironment().job_id(), task=task, args=text, unique=unique, **options)


async def _end(store: Store, job_id: UUID, limit: float | None) -> JobView:
    """Look until the job, or the chain it continued, is terminal. Another process runs it: nothing wakes anybody here."""
    loop = asyncio.get_running_loop()
    deadline = None if limit is None else loop.time() + limit
    rest, most = LOOK_EVERY
    while True:
        view = (await store.get([job_id]))[0]
        if view is not None and view.continued_by is not None:
            chain = (await store.chains([view.chain_id or view.id]))[0]
            view = None if chain is None else (await store.get([chain.step]))[0]
        if view is None:
            raise JobNotFound(job_id)
        if view.state in TERMINAL and view.continued_by is None:
            return view
        if deadline is not None and loop.time() >= deadline:
            raise _still(job_id, limit)
        await asyncio.sleep(rest if deadline is None else max(0.0, min(rest, deadline - loop.time())))
        rest = min(most, rest * 1.5)


def _still(job_id: UUID, limit: float | None) -> TimeoutError:
    return TimeoutError(f"job {job_id} has not ended within {span(limit)}; it goes on. See: holdfast jobs why {job_id}")


# --- what was asked for -------------------------------------------------------------------------------------------------


def _check_order(task: str, args: str, more: tuple[str, ...], target: str | None) -> None:
    """Refuse the app in the place of the task, as `holdfast worker` has it, and args that the shell took apart."""
    first = args.strip()[:1]
    if ":" in task and (target is None or more or first not in {"{", "[", "-"}):
        named = args if first not in {"{", "[", "-"} else "TASK"
        raise Mistake(
            f"{task!r} stands where the task is named; the app goes into --app: "
            f'holdfast enqueue {named} \'{{"name": "value"}}\' --app {task}'
        )
    if more:
        raise Mistake(
            f"there is too much: {' '.join(more)}. ARGS is one JSON text, in single quotes: "
            f"holdfast enqueue {task} '{{\"user_id\": 42}}'"
        )


def _valid(text: str) -> str:
    """Return the args as they are, or say where they are no JSON object or array."""
    import json  # noqa: PLC0415  tells line and column of a mistake; msgspec tells a byte

    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if text.splitlines() else ""
        shown = f"\n  {output.harmless(line)[:200]}\n  {' ' * min(error.colno - 1, 200)}^"
        raise Mistake(f"ARGS is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}{shown}") from None
    if not isinstance(value, (dict, list)):
        raise Mistake(
            f"ARGS must be a JSON object with the args by name, such as '{{\"user_id\": 42}}', not {type(value).__name__}"
        )
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as error:  # NaN and the like, which Python's own parser lets pass
        raise Mistake(f"ARGS is not valid JSON: {error}") from None
    return text


def _is_object(text: str) -> bool:
    return text.lstrip().startswith("{")


def _by_name(text: str, task: Task[..., Any]) -> str:
    """Return the args by name: those of an array go to the task's parameters in their order, as in a call."""
    if _is_object(text):
        return text
    values = msgspec.json.decode(text, type=list[msgspec.Raw])  # raw: numbers stay as they were written
    parameters = inspect.signature(task.function).parameters.values()
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY and parameter.name != task.job_parameter
    ]
    if len(values) > len(names):
        raise Mistake(
            f"ARGS holds {len(values)} values, and the task {task.name!r} takes {len(names)}: {', '.join(names) or '-'}"
        )
    return msgspec.json.encode(dict(zip(names, values, strict=False))).decode()


def _options(
    given: dict[str, Any],
    *,
    priority: str | None,
    delay: str | None,
    run_at: str | None,
    on_conflict: str | None,
    expires_in: str | None,
) -> dict[str, Any]:
    """Return the options of the job by name, as `task.options` takes them; what was not given is left out."""
    if priority is not None:
        given["priority"] = int(priority) if priority.isdecimal() else priority
    if delay is not None and run_at is not None:
        raise Mistake("give --delay or --run-at, not both")
    if delay is not None:
        given["delay"] = seconds(delay, "--delay")
    if run_at is not None:
        given["run_at"] = _moment(run_at)
    if expires_in is not None:
        given["expires_in"] = seconds(expires_in, "--expires-in")
    if on_conflict is not None:
        if on_conflict not in set(OnConflict):
            raise Mistake(f"--on-conflict: {on_conflict!r} is none of {', '.join(OnConflict)}")
        if given["key"] is None:
            raise Mistake("--on-conflict says what to do when --key is taken: give --key too")
        given["on_conflict"] = OnConflict(on_conflict)
    return {name: value for name, value in given.items() if value is not None}


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise Mistake(
            f"--run-at: {text!r} is no time: write 2026-12-24T18:00:00+01:00 (without an offset: local time)"
        ) from None


# --- what came of it ----------------------------------------------------------------------------------------------------


def _told(answer: Enqueued, common: Common, *, wait: bool) -> None:
    if answer.status is Enqueue.EXISTING:
        output.note("the key is taken: this is the job that holds it")
    if common.as_json and not wait:
        output.print_json(answer)
    elif not common.as_json and not wait:
        print(answer.job_id)
    elif not common.as_json:
        output.note(f"job {answer.job_id}")


def _ended(view: JobView, common: Common) -> int:
    from holdfast.cli.jobs import job_json  # noqa: PLC0415  only with --wait

    if common.as_json:
        output.print_json(job_json(view))
    elif view.state is State.SUCCEEDED:
        print(output.harmless(view.result or "null"))
    else:
        why = f" with {view.error.code}: {view.error.message}" if view.error is not None else ""
        output.note(output.harmless(f"error: job {view.id} has {view.state}{why}. See: holdfast jobs show {view.id}"))
    return output.OK if view.state is State.SUCCEEDED else output.ERROR
