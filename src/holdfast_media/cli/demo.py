"""`holdfast media demo`: see a killed worker cost one chunk, and no frame."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003  read by the command line
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter
from rich.markup import escape

from holdfast_media.cli.common import ERROR, INTERRUPTED, OK, USAGE, Flag, interactive, note, print_json
from holdfast_media.errors import MediaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console
    from rich.live import Live

    from holdfast_media.demo.account import Account
    from holdfast_media.demo.course import Audience
    from holdfast_media.library.grid import Grid


def demo(
    *,
    keep: Path | None = None,
    stay: Flag = False,
    server: bool = True,
    seconds: int = 40,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Make a film, encode it with two workers, kill one of them, and account for every chunk and frame.

    Example: holdfast media demo

    Needs no service and no file: it synthesises a film, keeps its jobs in a SQLite file of its own, and removes all of it
    afterwards. Takes about a minute. Ends with 1 when the account does not add up.

    Parameters
    ----------
    keep
        A folder to leave everything in: the film, what was made of it, the jobs, the logs.
    stay
        Keep the server running at the end, to play the film in a browser, until Ctrl-C.
    server
        Start the server with the dashboard (--no-server: only the workers).
    seconds
        How long the film is, from 12.
    as_json
        Print nothing but the account, as JSON.
    """
    from holdfast_media.demo.course import Course  # noqa: PLC0415  not needed for --help
    from holdfast_media.demo.place import SHORTEST, made_place  # noqa: PLC0415  as above

    if seconds < SHORTEST:
        note(
            f"error: --seconds must be {SHORTEST} or more, not {seconds}: with less, all is over before a worker can be killed"
        )
        return USAGE

    async def course(audience: Audience) -> Account:
        ended = asyncio.Event()
        with made_place(keep, seconds) as place:
            one = Course(place, audience)
            _on_signals(lambda: ended.set() if one.staying else None, unless=lambda: one.staying)
            return await one.run(serve=server, stay=ended if stay else None)

    try:
        with _audience(as_json=as_json) as audience:
            account = asyncio.run(course(audience))
    except asyncio.CancelledError:
        return INTERRUPTED
    except MediaError as error:
        note(f"error: {error}")
        return ERROR
    if as_json:
        print_json({**msgspec.structs.asdict(account), "lost": account.lost, "adds_up": account.adds_up})
    elif keep is not None:
        print(f"kept in {keep.absolute()}")
    return OK if account.adds_up else ERROR


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

    def show(self, title: str, grid: Grid) -> None:
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
        print(_verdict(account), flush=True)


class Screen:
    """Who sits in front of a terminal, and sees the grid fill."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live

    def tell(self, seconds: float, text: str) -> None:
        """Print a line above the grid."""
        self._console.print(f"[dim]{seconds:5.1f} s[/]  {escape(text)}")

    def show(self, title: str, grid: Grid) -> None:
        """Draw the grid."""
        from rich.console import Group  # noqa: PLC0415  only on a terminal

        from holdfast_media.cli import gridview  # noqa: PLC0415  as above

        self._live.update(Group(gridview.drawn(title, grid, width=self._console.width), gridview.legend()), refresh=True)

    def hear(self, account: Account) -> None:
        """Print the account where the grid was."""
        self._live.update("", refresh=True)
        style = "bold green" if account.adds_up else "bold red"
        self._console.print(f"[{style}]{escape(_verdict(account))}[/]")


def _verdict(account: Account) -> str:
    lines = [str(account)]
    if account.killed is None:
        lines.append("all was over before a worker could be killed")
    elif account.taken_over_after is not None:
        lines.append(
            f"{account.killed} was killed in the midst of a chunk; it was taken over {account.taken_over_after} s later"
        )
    told = ", ".join(f"{name} {count}" for name, count in account.frames.items())
    lines.append(f"decoded: {told} of {account.source_frames} frames")
    lines.append(f"it adds up, in {account.seconds} s" if account.adds_up else "IT DOES NOT ADD UP")
    return "\n".join(lines)
