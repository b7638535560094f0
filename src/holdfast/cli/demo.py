"""`holdfast demo`: see it hold."""

import asyncio
import signal
from typing import Annotated

from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import Yes
from holdfast.demo.account import Account
from holdfast.finding import Mistake


def demo(
    *,
    url: str | None = None,
    jobs: int = 300,
    seed: int = 1,
    keep: Yes = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Run jobs in real worker processes, kill one and freeze another, and give an account of every job.

    Example: holdfast demo

    Needs no service: it makes a SQLite file of its own and removes it afterwards. Takes about twenty seconds. Ends with 1 when
    the account does not add up.

    Parameters
    ----------
    url
        A PostgreSQL database to run on instead: postgresql://user@host/database. A schema of its own is made there and dropped
        afterwards.
    jobs
        How many jobs, from 40.
    seed
        Another number makes another mix of jobs.
    keep
        Leave the file (or schema) and the workers' logs behind, to look at.
    as_json
        Print nothing but the account, as JSON.
    """
    from holdfast.demo.plan import FEWEST  # noqa: PLC0415  not needed for --help

    if jobs < FEWEST:
        raise Mistake(f"--jobs must be {FEWEST} or more, not {jobs}: with fewer, all is over before a worker can be killed")
    account = _run(url=url, jobs=jobs, seed=seed, keep=keep, as_json=as_json)
    if as_json:
        output.print_json(account)
    else:
        from holdfast.demo.view import print_account  # noqa: PLC0415  as above

        print_account(account, output.console())
    return output.OK if account.adds_up else output.ERROR


def _run(*, url: str | None, jobs: int, seed: int, keep: bool, as_json: bool) -> Account:
    from holdfast.demo.runner import Audience, run_demo  # noqa: PLC0415  as above
    from holdfast.demo.view import Lines, Nobody, Screen  # noqa: PLC0415  as above

    async def watched_by(audience: Audience) -> Account:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  a coroutine that runs has one
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await run_demo(audience, url=url, jobs=jobs, seed=seed, keep=keep)

    try:
        if as_json or not output.interactive():
            return asyncio.run(watched_by(Nobody() if as_json else Lines(output.console())))
        with Screen(output.console()) as screen:
            return asyncio.run(watched_by(screen))
    except asyncio.CancelledError:  # by SIGTERM; everything has been cleaned up
        raise KeyboardInterrupt from None
