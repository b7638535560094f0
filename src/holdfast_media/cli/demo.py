"""`holdfast media demo`: see a killed worker cost one chunk, and no frame."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter
from rich.markup import escape

from holdfast_media.cli.common import (
    ERROR,
    INTERRUPTED,
    OK,
    USAGE,
    Flag,
    counted,
    interactive,
    made,
    named_store,
    note,
    print_json,
)
from holdfast_media.errors import MediaError
from holdfast_media.library.grid import CellState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    from holdfast_media.demo.account import Account
    from holdfast_media.demo.course import Audience
    from holdfast_media.demo.place import Place
    from holdfast_media.library.grid import Grid


def demo(
    *,
    keep: Path | None = None,
    stay: Flag = False,
    server: bool = True,
    seconds: int | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Make a film, encode it with two workers, kill one of them, and account for every chunk and frame.

    Example: holdfast media demo

    Needs no service and no file: it synthesises a film, and keeps it, its jobs in a SQLite file and what is made of it in a
    temporary folder, which is left for you to watch the result. Takes half a minute. Ends with 1 when the account does not add
    up.

    Parameters
    ----------
    keep
        The folder to leave everything in: the film, what was made of it, the jobs, the logs.
    stay
        Keep the server running at the end, to play the film in a browser, until Ctrl-C.
    server
        Start the server with the dashboard (--no-server: only the workers).
    seconds
        How long the film is, from 12. Else 40, or less where a trial finds the machine slow.
    as_json
        Print nothing but the account, as JSON; nothing is left unless --keep says where.
    """
    from holdfast_media.demo.course import Course  # noqa: PLC0415  not needed for --help
    from holdfast_media.demo.place import SHORTEST, made_place  # noqa: PLC0415  as above

    if seconds is not None and seconds < SHORTEST:
        note(
            f"error: --seconds must be {SHORTEST} or more, not {seconds}: with less, all is over before a worker can be killed"
        )
        return USAGE
    if keep is not None and (why := made(keep)):
        note(f"error: --keep {keep}: {why}. Fix: name another folder")
        return USAGE

    async def course(audience: Audience) -> tuple[Place, Account]:
        ended = asyncio.Event()
        with made_place(keep, seconds, leave=not as_json) as place:
            one = Course(place, audience)
            _on_signals(lambda: ended.set() if one.staying else None, unless=lambda: one.staying)
            return place, await one.run(serve=server, stay=ended if stay else None)

    try:
        with _audience(as_json=as_json) as audience:
            place, account = asyncio.run(course(audience))
    except asyncio.CancelledError:
        return INTERRUPTED
    except MediaError as error:
        note(f"error: {error}")
        return ERROR
    if as_json:
        print_json({**msgspec.structs.asdict(account), "lost": account.lost, "adds_up": account.adds_up})
    else:
        print(where_to_watch(place, account))
    return OK if account.adds_up else ERROR


def where_to_watch(place: Place, account: Account) -> str:
    """Return what to type to see the film: in a browser, and in any player."""
    serve = [*_holdfast(), "media", "serve", "--storage", str(place.output), "--workers", "0", "--open"]
    if named_store(None) is not None:  # here is a store that commands would take instead
        serve += ["--url", place.url]
    lines = [
        "watch it in a browser:",
        f"  {shlex.join(serve)}",
        f"  and open http://127.0.0.1:7878/media/{account.video}",
        f"or in a player: mpv {shlex.quote(str(place.master(account.video)))}",
        f"all of it is in {place.folder}",
    ]
    return "\n".join(lines)


def _holdfast() -> list[str]:
    """Return how this very program is called from here: a checkout has it in a folder that PATH does not name."""
    beside = Path(sys.executable).with_name("holdfast")
    if not beside.exists():
        return [sys.executable, "-m", "holdfast"]
    found = shutil.which("holdfast")
    if found is not None and Path(found).absolute() == beside:
        return ["holdfast"]
    return [str(beside.relative_to(Path.cwd())) if beside.is_relative_to(Path.cwd()) else str(beside)]


def _on_signals(end: Callable[[], None], *, unless: Callable[[], bool]) -> None:
    """Have a signal end the program: by `end`, or, as long as that means nothing, by breaking off what is under way."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()

    def asked() -> None:
        if unless() or task is None:
            end()
        else:
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)


@contextmanager
def _audience(*, as_json: bool) -> Iterator[Audience]:
    """Give who watches: nobody, somebody who reads lines, or somebody in front of a terminal."""
    if as_json:
        yield Nobody()
    elif not interactive():
        yield Lines()
    else:
        from rich.console import Console  # noqa: PLC0415  only on a terminal
        from rich.live import Live  # noqa: PLC0415  as above

        console = Console(highlight=False)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield Screen(console, live)


class Nobody:
    """Who waits for the account."""

    def tell(self, seconds: float, text: str) -> None:
        """Take no notice."""

    def show(self, grid: Grid, killed: str | None) -> None:
        """Take no notice."""

    def hear(self, account: Account) -> None:
        """Take no notice: it is printed as a whole."""


class Lines(Nobody):
    """Who reads what happened, line by line."""

    def tell(self, seconds: float, text: str) -> None:
        """Print a line."""
        print(f"{seconds:5.1f} s  {text}", flush=True)

    def hear(self, account: Account) -> None:
        """Print the account."""
        print(verdict(account), flush=True)


class Screen:
    """Who sits in front of a terminal, and sees the grid fill."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live
        self._last: RenderableType = ""

    def tell(self, seconds: float, text: str) -> None:
        """Print a line above the grid."""
        self._console.print(f"[dim]{seconds:5.1f} s[/]  {escape(text)}")

    def show(self, grid: Grid, killed: str | None) -> None:
        """Draw the grid, and who is at what."""
        from rich.console import Group  # noqa: PLC0415  only on a terminal

        from holdfast_media.cli import gridview  # noqa: PLC0415  as above

        self._last = gridview.drawn("The demonstration", grid, width=self._console.width)
        self._live.update(Group("", self._last, gridview.legend(), *_crew(grid, killed)), refresh=True)

    def hear(self, account: Account) -> None:
        """Leave the grid as it is at the end, and print the account below it."""
        self._live.update("", refresh=True)
        self._console.print()
        self._console.print(self._last)
        first, *rest = verdict(account).splitlines()
        style = "bold green" if account.adds_up else "bold red"
        self._console.print(f"\n[{style}]{escape(first)}[/]")
        for line in rest:
            self._console.print(escape(line), style="red" if not account.adds_up and line == rest[-1] else "")
        self._console.print()


def _crew(grid: Grid, killed: str | None) -> Iterator[Text]:
    """Yield a line for each worker: what it is at, or that it was killed."""
    from rich.text import Text  # noqa: PLC0415  only on a terminal

    from holdfast_media.demo.course import WORKERS  # noqa: PLC0415  as above

    yield Text("")
    for name in WORKERS:
        if name == killed:
            yield Text.assemble(f"  {name}  ", ("✗ killed", "bold red"))
            continue
        at = next(
            (
                f"{row.name}, chunk {number} of {len(row.cells)}"
                for row in grid.rows
                for number, cell in enumerate(row.cells, start=1)
                if cell.state is CellState.RUNNING and cell.worker == name
            ),
            "",
        )
        yield Text.assemble(f"  {name}  ", (at, "cyan"))


def verdict(account: Account) -> str:
    """Return the account in words, its sum first."""
    lines = [
        str(account),
        f"each chunk in {counted(len(account.frames), 'quality', 'qualities')}: {counted(account.encodes, 'encode')}",
    ]
    if account.killed is None:
        lines.append("all was over before a worker could be killed")
    elif account.taken_over_after is not None:
        lines.append(
            f"{account.killed} was killed in the midst of a chunk; {account.taken_over_by} took it over "
            f"{account.taken_over_after} s later"
        )
    told = ", ".join(f"{name} {count}" for name, count in account.frames.items())
    lines.append(f"decoded: {told} of {account.source_frames} frames")
    lines.append(f"it adds up, in {account.seconds} s" if account.adds_up else "IT DOES NOT ADD UP")
    return "\n".join(lines)
