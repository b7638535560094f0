"""A load as people watch it, and its report as they read it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from holdfast.cli import output
from holdfast.cli.output import Column
from holdfast.connect import without_password
from holdfast.core.spans import span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.live import Live

    from holdfast.load.report import Report, Scaling, Spread
    from holdfast.load.runner import Look

BAR = 30


class Nobody:
    """Watches nothing."""

    def see(self, look: Look) -> None:
        """Do nothing."""


class Screen:
    """Shows how it stands on a terminal, in place."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def see(self, look: Look) -> None:
        """Draw it anew."""
        self._live.update(drawn(look), refresh=True)


def drawn(look: Look) -> RenderableType:
    """Return how it stands as a few lines."""
    from rich.console import Group  # noqa: PLC0415  only on a terminal
    from rich.text import Text  # noqa: PLC0415  as above

    full = BAR if not look.planned else min(BAR, round(BAR * look.enqueued / look.planned))
    rows = [
        ["enqueued", f"{look.enqueued:,} of {look.planned:,}", f"{look.rate:,.1f}/s"],
        ["waiting", f"{look.waiting:,}", "-" if look.oldest is None else f"oldest {span(look.oldest)}"],
        ["running", f"{look.running:,}", f"{look.workers} worker(s)"],
        ["ended", f"{look.ended:,}", f"{look.throughput:,.1f}/s"],
        ["succeeded", f"{look.succeeded:,}", ""],
        ["failed", f"{look.failed:,}", ""],
        ["canceled", f"{look.canceled:,}", ""],
    ]
    return Group(
        Text(f"load  {span(look.elapsed)}  {'█' * full}{'░' * (BAR - full)}  Ctrl-C ends it", style="bold"),
        output.table((Column("jobs"), Column("now", right=True), Column("", right=True)), rows),
    )


def print_report(report: Report, url: str | None = None) -> None:
    """Print what a load came to: tables on a terminal, lines elsewhere. `url`: of the store that has its jobs, if any has."""
    facts = [
        ("enqueued", f"{report.enqueued:,} of {report.planned:,} planned"),
        ("rate", f"{report.rate_reached:,.2f}/s reached, {report.rate_asked:,.2f}/s asked for ({report.pattern})"),
        ("most behind", f"{report.most_behind:,} job(s)"),
        ("ended", f"{report.ended:,}" + (f", {report.unfinished:,} not yet" if report.unfinished else "")),
        ("throughput", "-" if report.throughput is None else f"{report.throughput:,.2f}/s"),
        ("wait", _spread(report.wait)),
        ("run", _spread(report.run)),
        ("workers", f"{report.most_workers} at most"),
        ("scaling", _scaling(report.scaling)),
        ("jobs", _listing(report.tag, url)),
    ]
    if report.missing:
        facts.append(("missing", f"{report.missing:,} deleted or pruned before the report"))
    output.print_table((Column("load"), Column("", wraps=True)), facts, empty="")
    if output.interactive():
        print()
    counts = ("enqueued", "succeeded", "failed", "canceled", "unfinished", "attempts")
    columns = ("kind", *counts, "wait p50", "wait p99", "run p50", "run p99")
    rows = [
        (
            *(name, *(getattr(kind, count) for count in counts)),
            *(_short(value) for value in (kind.wait.p50, kind.wait.p99, kind.run.p50, kind.run.p99)),
        )
        for name, kind in report.kinds.items()
    ]
    output.print_table([Column(name, right=number > 0) for number, name in enumerate(columns)], rows, empty="no jobs")
    for line in report.scaling:
        print("\t".join(map(output.cell, ("scale" if line.change else "stay", line.at, line.actor, line.detail))))


def _scaling(lines: Sequence[Scaling]) -> str:
    up, down = sum(line.change > 0 for line in lines), sum(line.change < 0 for line in lines)
    return f"{up + down} decision(s): {up} for more workers, {down} for fewer"


def _listing(tag: str, url: str | None) -> str:
    """Return what lists the jobs of a load."""
    if url is None:
        return "gone with the store that was made for them; with --url they are kept there"
    return f"holdfast jobs ls --url {shlex.quote(without_password(url))} tag:{tag}"


def _spread(spread: Spread) -> str:
    if not spread.count:
        return "-"
    parts = (("p50", spread.p50), ("p90", spread.p90), ("p99", spread.p99), ("longest", spread.longest))
    return ", ".join(f"{name} {_short(value)}" for name, value in parts)


def _short(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{1000 * seconds:.1f}ms" if seconds < 1 else span(seconds)
