"""`holdfast watch`: files of a folder become jobs."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec
from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, store_url, with_store
from holdfast.cli.loading import load_app
from holdfast.config import load
from holdfast.core.text import checked_name
from holdfast.errors import BadJob
from holdfast.finding import Mistake, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from holdfast.core.job import NewJob
    from holdfast.notify.port import Notifier
    from holdfast.store.port import Store
    from holdfast.tasks.options import JobOptions
    from holdfast.watch.watcher import Once

SHORTEST = 0.1


def watch(
    folder: str,
    /,
    *,
    task: str,
    app: str | None = None,
    pattern: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    queue: str | None = None,
    settle: str = "2s",
    every: str = "10s",
    recursive: Yes = False,
    follow_links: Yes = False,
    once: Yes = False,
    arg_name: str = "path",
    common: Common = COMMON,
) -> int:
    """Enqueue a job for each file in a folder, once it is complete.

    Example: holdfast watch /srv/incoming --task media.transcode --pattern '*.mov' --recursive

    Each file becomes one job, also across restarts and with several watchers; so do files that were there before. A file that
    is replaced or changed later is a new piece of work. Names of unfinished files (.part, .tmp and the like, and all that begin
    with a dot) are left alone. A line is printed for each job: its id and the path. Ctrl-C or SIGTERM ends it.

    Parameters
    ----------
    folder
        The folder.
    task
        The task that gets each file's path. It need not be known to any worker yet: jobs wait.
    app
        MODULE:APP that declares the task: then its own options hold (retries, queue, time-out), and the store is the app's.
    pattern
        Only names like this, as a shell has them: '*.mov'. May be given several times.
    queue
        The queue of the jobs.
    settle
        How long a file must stay the same (size and times) to be complete.
    every
        How often to look when the system tells of nothing, as on network file systems.
    recursive
        Also the folders below it.
    follow_links
        Also symbolic links that lead out of the folder.
    once
        Take what is complete within the settle time, and end.
    arg_name
        The parameter of the task that gets the path.
    """
    place = Path(folder).expanduser().resolve()
    if not place.is_dir():
        what = "is no folder" if place.exists() else "does not exist"
        raise Mistake(f"{place} {what}. Make it first: mkdir -p {place}")
    spans = {name: seconds(text, name) for name, text in (("--settle", settle), ("--every", every))}
    for name, span in spans.items():
        if span < SHORTEST:
            raise Mistake(f"{name} must be {SHORTEST:g} s or more, not {span:g} s")
    if not arg_name.isidentifier():
        raise Mistake(f"--arg-name: {arg_name!r} is no name of a parameter")
    _check_name(task, "--task")
    url, tell, make, caps, unchecked = _maker(task, arg_name, queue, app, common)

    from holdfast.watch.files import Rules  # noqa: PLC0415  not needed for --help
    from holdfast.watch.ledger import Ledger, dialect_of  # noqa: PLC0415  as above
    from holdfast.watch.watcher import Watcher, Watching  # noqa: PLC0415  as above

    dialect = dialect_of(url)
    rules = Rules(patterns=pattern, recursive=recursive, follow_links=follow_links)

    async def work(store: Store) -> int:
        notifier = tell()
        watching = Watching(
            folder=place,
            rules=rules,
            settle=spans["--settle"],
            every=spans["--every"],
            make=make,
            hint=lambda jobs: _hint(notifier, jobs),
            taken=_printer(as_json=common.as_json),
            note=lambda text: output.note(output.harmless(text)),
        )
        watcher = Watcher(watching, Ledger(store, dialect, task, caps))
        try:
            stop = asyncio.Event()
            if not once:
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
                output.note(f"watching {place} for {task}; Ctrl-C ends it")
            if unchecked:
                output.note(unchecked)
            if once:
                return _told(await watcher.once())
            await watcher.run(stop)
        finally:
            watcher.close()
            await notifier.close()
        return output.OK

    return asyncio.run(with_store(url, work, create=True))


def _told(once: Once) -> int:
    from holdfast.watch.watcher import no_room  # noqa: PLC0415  not needed for --help

    if once.full is not None:
        left = f"{once.taken:,} file(s) were taken; {once.left:,} wait where they are, for the next time"
        output.note(output.harmless(f"{no_room(once.full)}. {left}"))
        return output.ERROR
    if once.left:
        output.note(f"{once.left} file(s) still change, and were left alone")
    return output.OK


def _maker(
    task: str, arg_name: str, queue: str | None, app: str | None, common: Common
) -> tuple[str, Callable[[], Notifier], Callable[[str], NewJob], dict[str, int], str]:
    """Return the store, who tells workers, what makes a path's job, how many may wait, and what nobody has checked.

    As the app says, or plainly.
    """
    from holdfast.connect import Adapters  # noqa: PLC0415  not needed for --help
    from holdfast.core.job import NewJob  # noqa: PLC0415  not needed for --help
    from holdfast.system import SystemEnvironment  # noqa: PLC0415  as above

    def args(path: str) -> str:
        return msgspec.json.encode({arg_name: path}).decode()

    options: dict[str, Any] = {} if queue is None else {"queue": queue}
    if queue is not None:
        _check_name(queue, "--queue")
    target = app or (load().settings.app if common.url is None else None)
    if target is None:
        environment = SystemEnvironment()
        url = store_url(common.url)
        notifier = Adapters(url).notifier
        unchecked = (
            f"whether there is a task {task!r} and it takes {arg_name!r} is unchecked, and each file is taken once: "
            "give --app MODULE:APP to be told before any is"
        )
        return url, notifier, lambda path: NewJob(id=environment.job_id(), task=task, args=args(path), **options), {}, unchecked
    if common.url is not None:
        raise Mistake("give --app or --url, not both: an app has its own store")
    found = load_app(target)
    if task not in found.tasks:
        names = "\n  ".join(sorted(found.tasks)) or "(none)"
        raise Mistake(f"{target} declares no task {task!r}. It declares:\n  {names}")
    declared = found.tasks[task]
    model = declared.call_text(args("/a/path"), cast("JobOptions", options))  # refused now rather than with the first file
    into = found.queue_options(model.job.queue)
    caps = {} if into is None or into.max_depth is None else {into.name: into.max_depth}
    notifier = found.world().make_notifier
    return found.url, notifier, lambda path: declared.call_text(args(path), cast("JobOptions", options)).job, caps, ""


def _check_name(text: str, option: str) -> None:
    try:
        checked_name(text, option)
    except BadJob as error:
        raise Mistake(str(error)) from None


def _printer(*, as_json: bool) -> Callable[[str, UUID], None]:
    def printed(path: str, job_id: UUID) -> None:
        line = (
            msgspec.json.encode({"job_id": job_id, "path": path}).decode() if as_json else f"{job_id}\t{output.harmless(path)}"
        )
        print(line, flush=True)

    return printed


def _hint(notifier: Notifier, jobs: Sequence[NewJob]) -> None:
    from holdfast.notify.port import Hint  # noqa: PLC0415  not needed for --help

    notifier.hint(Hint(frozenset(job.queue for job in jobs)))
