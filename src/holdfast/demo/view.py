"""How the demonstration is shown: live on a terminal, as lines elsewhere, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.cli import output
from holdfast.core.states import State
from holdfast.demo.fleet import SLOTS, Fate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from rich.console import Console, RenderableType

    from holdfast.demo.account import Account
    from holdfast.demo.runner import Snapshot

BAR: Final = 50
EVERY: Final = 2.0
"""Seconds between two lines of counts where nobody draws."""
SHOWN: Final = (State.READY, State.SCHEDULED, State.RUNNING, State.SUCCEEDED, State.FAILED)
NOTABLE: Final = (("SIGKILL", "bold red"), ("SIGSTOP", "bold yellow"), ("SIGCONT", "bold yellow"), ("refused", "magenta"))
FATES: Final = {
    Fate.STARTING: "dim",
    Fate.WORKING: "green",
    Fate.KILLED: "bold red",
    Fate.FROZEN: "bold yellow",
    Fate.THAWED: "yellow",
    Fate.STOPPED: "dim",
}


class Nobody:
    """For programs: nothing is shown."""

    def tell(self, seconds: float, text: str) -> None:
        """Keep silent."""

    def show(self, snapshot: Snapshot) -> None:
        """Show nothing."""


class Lines:
    """For pipes and logs: a line for each event, and the counts every two seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next = 0.0

    def tell(self, seconds: float, text: str) -> None:
        """Print an event."""
        self._console.print(Text(f"{seconds:6.1f} s  {text}"), soft_wrap=True)

    def show(self, snapshot: Snapshot) -> None:
        """Print the counts now and then."""
        if snapshot.seconds >= self._next and snapshot.counts:
            self._next = snapshot.seconds + EVERY
            self.tell(snapshot.seconds, ", ".join(f"{snapshot.counts.get(state, 0)} {state}" for state in SHOWN))


class Screen:
    """For people: events scroll by, and below them stand the states as bars and the workers with what happened to them."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def tell(self, seconds: float, text: str) -> None:
        """Print an event above the bars."""
        style = next((style for word, style in NOTABLE if text.startswith(word)), "green" if "took over" in text else "")
        self._live.console.print(Text(f"{seconds:6.1f} s  ", style="dim").append(text, style=style))

    def show(self, snapshot: Snapshot) -> None:
        """Draw bars and workers."""
        self._live.update(Group(Text(), _bars(snapshot), Text(), _workers(snapshot), Text()), refresh=True)


def _bars(snapshot: Snapshot) -> RenderableType:
    total = max(1, sum(snapshot.counts.values()))
    drawn = Table.grid(padding=(0, 1))
    drawn.add_column(width=10)
    drawn.add_column(width=BAR)
    drawn.add_column(justify="right", width=5)
    for state in SHOWN:
        count = snapshot.counts.get(state, 0)
        full = -(-count * BAR // total)  # rounded up: what is there is to be seen
        drawn.add_row(output.styled(state), Text("█" * full, style=output.STYLES[state]), str(count))
    return drawn


def _workers(snapshot: Snapshot) -> RenderableType:
    drawn = Table.grid(padding=(0, 1))
    drawn.add_column(width=10)
    drawn.add_column(width=10)
    drawn.add_column(width=SLOTS)
    drawn.add_column()
    for name, fate, held in snapshot.workers:
        struck = fate in {Fate.KILLED, Fate.FROZEN}
        slots = Text("■" * held, style=FATES[fate] if struck else output.STYLES["running"])
        slots.append("·" * max(0, SLOTS - held), style="dim")
        remark = f"{held} leases that nobody extends" if struck and held else ""
        drawn.add_row(Text(name), Text(fate, style=FATES[fate]), slots, Text(remark, style="dim"))
    return drawn


def print_account(account: Account, console: Console) -> None:
    """Print the account for people."""
    ended = account.succeeded + account.failed_as_intended
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(account.stale_writes.items()))
    rows: Sequence[tuple[str, int, str]] = (
        ("enqueued", account.enqueued, ""),
        ("succeeded", account.succeeded, ""),
        ("failed as intended", account.failed_as_intended, ""),
        ("succeeded + failed as intended", ended, "= enqueued" if ended == account.enqueued else "is not what was enqueued"),
        ("lost", account.lost, ""),
        ("ended otherwise than intended", account.wrong, ""),
        ("recovered", account.recovered, _blows(account)),
        ("attempts", account.attempts, f"for {account.enqueued} jobs"),
        ("parts kept from earlier attempts", account.parts_kept, ""),
        ("parts done twice", account.parts_redone, ""),
        ("stale writes refused", account.stale_writes_refused, kinds),
    )

    def line(text: str, style: str = "") -> None:
        console.print(Text(text.rstrip(), style=style), soft_wrap=True)

    line(f"\nThe account after {account.seconds:g} s on {account.store}:", "bold")
    for name, number, remark in rows:
        line(f"  {name:<34}{number:>6}  {remark}")
    for problem in account.problems:
        line(f"  {problem.job or '-'}  {problem.what}", "red")
    line("It adds up." if account.adds_up else "It does not add up.", "bold green" if account.adds_up else "bold red")


def _blows(account: Account) -> str:
    blows = [
        f"{account.killed} was killed holding {account.killed_holding}" if account.killed else "",
        f"{account.frozen} was frozen holding {account.frozen_holding}" if account.frozen else "",
    ]
    return ", ".join(filter(None, blows))
