"""What people are shown, and what is written down for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.soak.faults import FAULTS
from lab.soak.recovery import Recovery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.soak.books import Line


def faults_table(found: dict[str, Recovery]) -> list[str]:
    """Return a line for each kind of fault that was injected, and one for all."""
    lines = [f"  {'fault':<38} {'rows':<6} {'injected':>8} {'survived':>8} {'p50':>7} {'p99':>7} {'max':>7}"]
    lines += [_fault(fault.name, fault.rows, found[fault.name]) for fault in FAULTS if fault.name in found]
    return [*lines, _fault("all", "", overall(found))]


def overall(found: dict[str, Recovery]) -> Recovery:
    """Return all kinds of fault as one."""
    seconds = sorted(one for recovery in found.values() for one in recovery.seconds)
    return Recovery(sum(one.injected for one in found.values()), sum(one.survived for one in found.values()), tuple(seconds))


def _fault(name: str, rows: str, recovery: Recovery) -> str:
    times = " ".join(f"{_seconds(recovery.quantile(share)):>7}" for share in (0.5, 0.99, 1.0))
    return f"  {name:<38} {rows:<6} {recovery.injected:>8} {recovery.survived:>8} {times}"


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
    """Return the table of faults for machines."""
    rows = {fault.name: fault.rows.split() for fault in FAULTS}
    named = {name: (rows.get(name, []), recovery) for name, recovery in found.items()} | {"all": ([], overall(found))}
    return {
        name: {
            "rows": keys,
            "injected": recovery.injected,
            "survived": recovery.survived,
            "recoveries": len(recovery.seconds),
            "p50_seconds": recovery.quantile(0.5),
            "p99_seconds": recovery.quantile(0.99),
            "max_seconds": recovery.quantile(1.0),
        }
        for name, (keys, recovery) in named.items()
    }
