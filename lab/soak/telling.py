"""What people are shown, and what is written down for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.soak.faults.table import IN_ORDER
from lab.soak.recovery import Recovery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.soak.books import Line


def faults_table(found: dict[str, Recovery]) -> list[str]:
    """Return a line for each kind of fault that was injected, and one for all."""
    head = f"{'injected':>8} {'survived':>8} {'measured':>8} {'p50':>7} {'p99':>7} {'max':>7}"
    lines = [f"  {'rows':<6} {'fault':<42} {head}"]
    lines += [_fault(fault.name, fault.rows, found[fault.name]) for fault in IN_ORDER if fault.name in found]
    return [*lines, _fault("all", "", overall(found))]


def overall(found: dict[str, Recovery]) -> Recovery:
    """Return all kinds of fault as one."""
    seconds = sorted(one for recovery in found.values() for one in recovery.seconds)
    injected, survived, measured = (
        sum(getattr(one, name) for one in found.values()) for name in ("injected", "survived", "measured")
    )
    return Recovery(injected, survived, measured, tuple(seconds))


def _fault(name: str, rows: str, recovery: Recovery) -> str:
    times = " ".join(f"{_seconds(recovery.quantile(share)):>7}" for share in (0.5, 0.99, 1.0))
    counts = f"{recovery.injected:>8} {recovery.survived:>8} {recovery.measured:>8}"
    return f"  {rows:<6} {name:<42} {counts} {times}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}s"


def books_table(lines: Sequence[Line]) -> list[str]:
    """Return the books, with some offenders below each line that does not add up."""
    shown = [f"  {'what':<60} {'expected':>9} {'found':>9}"]
    for line in lines:
        shown.append(f"  {line.what:<60} {line.expected:>9} {line.found:>9}  {'ok' if line.ok else 'WRONG'}")
        shown += [f"      {offender}" for offender in line.shown]
    return shown


def figures(found: dict[str, Recovery]) -> dict[str, Any]:
    """Return the table of faults for machines, in the order of their rows."""
    named = {fault.name: (fault.rows.split(), found[fault.name]) for fault in IN_ORDER if fault.name in found}
    named["all"] = ([], overall(found))
    return {
        name: {
            "rows": keys,
            "injected": recovery.injected,
            "survived": recovery.survived,
            "measured": recovery.measured,
            "p50_seconds": recovery.quantile(0.5),
            "p99_seconds": recovery.quantile(0.99),
            "max_seconds": recovery.quantile(1.0),
        }
        for name, (keys, recovery) in named.items()
    }
