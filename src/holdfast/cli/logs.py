"""`holdfast jobs logs`: what a job wrote to its log, and what it writes right now."""

import asyncio
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, run
from holdfast.core.states import TERMINAL
from holdfast.finding import one_job
from holdfast.store.port import JobView, LogView, Store

PAGE = 1000
EVERY = 0.5


def logs(job: str, /, *, follow: Annotated[Yes, Parameter(alias="-f")] = False, common: Common = COMMON) -> None:
    """Print the log of a job.

    Example: holdfast jobs logs 01890a5d..9a8057 --follow

    Parameters
    ----------
    job
        Its id, the short form of it that `jobs ls` shows, or a beginning that no other job has.
    follow
        Go on printing until the job has ended.
    """

    async def work(store: Store) -> None:
        view: JobView | None = await one_job(store, job)
        last = 0
        while view is not None:
            # the state was read first: what is written between the two looks is then still seen
            while lines := await store.logs(view.id, limit=PAGE, after=last):
                for line in lines:
                    print(msgspec.json.encode(_record(line)).decode() if common.as_json else text(line), flush=follow)
                last = lines[-1].no
            if view.state in TERMINAL or not follow:
                break
            await asyncio.sleep(EVERY)
            view = (await store.get([view.id]))[0]
        if not last and not common.as_json:
            output.note("the job has written nothing to its log")

    run(common, work)


def text(line: LogView) -> str:
    """Return a line of a log for people."""
    fields = "" if line.fields == "{}" else f"  {line.fields}"
    logger = f" {line.logger}:" if line.logger else ""
    return output.harmless(f"{output.moment(line.at)} [{line.attempt}] {line.level:<7}{logger} {line.message}{fields}")


def _record(line: LogView) -> dict[str, Any]:
    return output.fields(line) | {"fields": output.raw(line.fields)}
