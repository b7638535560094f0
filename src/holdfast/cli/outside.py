"""`holdfast jobs complete`, `jobs fail` and `holdfast signal`: what people and other services do for jobs."""

import asyncio
from typing import Annotated
from uuid import UUID

import msgspec
from cyclopts import Parameter

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, actor, run, tell
from holdfast.cli.loading import another_store, load_app
from holdfast.config import load
from holdfast.core.outcome import Error
from holdfast.core.text import checked_name
from holdfast.errors import BadResult, JobNotFound
from holdfast.finding import Mistake, one_job
from holdfast.notify.port import Hint
from holdfast.store.port import Answer, Store
from holdfast.tasks.report import Completion, completion


def complete(
    job: str,
    result: Annotated[str, Parameter(allow_leading_hyphen=True)] = "null",
    /,
    *,
    app: str | None = None,
    by: str | None = None,
    common: Common = COMMON,
) -> int:
    """End a live job as succeeded: what it waited for was done by a person or another service.

    Example: holdfast jobs complete 01890a5d..9a8057 '{"approved": true}' --app shop.jobs:app

    With --app the result is checked by the job's task; without it, it is stored as it is. A worker that runs the job is told at
    once. The first completion stands: a second one says who was first, and ends with 1.

    Parameters
    ----------
    job
        Its id, the short form of it that `jobs ls` shows, or a beginning that no other job has.
    result
        The result as JSON.
    app
        MODULE:APP that declares the task.
    by
        Who says so; else the user and host.
    """
    text = _json(result, "RESULT")
    who = by or actor()
    loaded = load()
    if (target := app or loaded.settings.app) is not None:
        if common.url is not None:
            raise Mistake("give --app or --url, not both: an app has its own store")
        found = load_app(target)
        if (warning := another_store(found, loaded)) is not None:
            output.note(f"warning: {warning}")
        return asyncio.run(_checked(found, job, text, who, common))

    async def work(store: Store) -> int:
        view = await one_job(store, job)
        answer = (await store.complete({view.id: text}, by=who))[0]
        return _told(view.id, await _after(store, common, view.id, answer), common)

    return run(common, work)


def fail(job: str, message: str = "", /, *, code: str = "FAILED", by: str | None = None, common: Common = COMMON) -> int:
    """End a live job as failed, for good: no retry follows.

    Example: holdfast jobs fail 01890a5d..9a8057 "the customer withdrew" --code WITHDRAWN

    A worker that runs the job is told at once. The first completion stands: a second one says who was first, and ends with 1.

    Parameters
    ----------
    job
        Its id, the short form of it that `jobs ls` shows, or a beginning that no other job has.
    message
        What went wrong, for those who look later.
    code
        The short name of it.
    by
        Who says so; else the user and host.
    """
    error, who = Error(code, message), by or actor()

    async def work(store: Store) -> int:
        view = await one_job(store, job)
        answer = (await store.fail({view.id: error}, by=who))[0]
        return _told(view.id, await _after(store, common, view.id, answer), common)

    return run(common, work)


def signal(
    name: str,
    data: Annotated[str, Parameter(allow_leading_hyphen=True)] = "null",
    /,
    *,
    common: Common = COMMON,
) -> None:
    """Emit a signal, once: jobs that wait for it go on, and those that will wait for it later need not.

    Example: holdfast signal paid:42 '{"amount": 100}'

    What was emitted first stands: emitting it again changes nothing, and is no error.

    Parameters
    ----------
    name
        Its name, as `job.wait_for(name)` has it.
    data
        What it carries, as JSON.
    """
    checked_name(name, "signal")
    text = _json(data, "DATA")

    async def work(store: Store) -> None:
        emitted = await store.emit(name, text, by=actor())
        if emitted.queues:
            await tell(common, Hint(emitted.queues))
        if common.as_json:
            output.print_json(emitted)
        elif emitted.first:
            print(output.harmless(f"emitted: {name}") + f", {len(emitted.jobs)} job(s) waited for it")
        else:
            print(output.harmless(f"{name} was emitted before, and stands as it was"))

    run(common, work)


# --- with the app -------------------------------------------------------------------------------------------------------


async def _checked(app: Holdfast, word: str, text: str, by: str, common: Common) -> int:
    async with app:
        view = await one_job(app.client().store, word)
        if view.task not in app.tasks:
            raise Mistake(f"the app does not declare the task {view.task!r} of this job, so it cannot check its result")
        try:
            result = app.tasks[view.task].results.decode(text)
        except BadResult as error:
            raise Mistake(str(error)) from error
        return _told(view.id, await app.complete(view.id, result, by=by), common)


# --- without it ---------------------------------------------------------------------------------------------------------


async def _after(store: Store, common: Common, job_id: UUID, answer: Answer) -> Completion:
    if answer is Answer.DONE:
        await tell(common, Hint(jobs=frozenset({job_id}), anything=True))
    told = completion(await store.events(job_id), applied=answer is Answer.DONE)
    if answer is Answer.NOT_FOUND or told is None:
        raise JobNotFound(job_id)
    return told


def _told(job_id: UUID, told: Completion, common: Common) -> int:
    if common.as_json:
        output.print_json(told)
    elif told.applied:
        print(f"{job_id}: {told.state}")
    else:
        by = f" by {told.by}" if told.by else ""
        output.note(
            output.harmless(f"error: {job_id} has {told.state} already{by}, at {output.moment(told.at)}; nothing changed")
        )
    return output.OK if told.applied else output.ERROR


def _json(text: str, what: str) -> str:
    try:
        msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise Mistake(f"{what} is not valid JSON: {error}. A text needs quotes of its own: '\"approved\"'") from None
    return text
