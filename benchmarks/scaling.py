"""Writes docs/scaling.md from benchmarks/scaling.md and benchmarks/results/: every figure on it is measured or computed here.

What was not measured yet is said to be so.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import dispatch_page
from benchmarks.limits import CROWDED, KINDS, work_of
from benchmarks.results import FOLDER, load, summary

if TYPE_CHECKING:
    from benchmarks.results import Report

PAGE: Final = Path(__file__).parents[1] / "docs" / "scaling.md"
TEMPLATE: Final = Path(__file__).with_suffix(".md")
USED: Final = ("peers", "cost", "leases", "memory", "limits", "dispatch", "serving")
STORES: Final = {"holdfast_postgres": "PostgreSQL", "holdfast_sqlite": "SQLite"}
LENGTHS: Final = (50.0, 20.0, 5.0)
PLANNED: Final = 3
"""One part in so many of what was measured is planned with."""
PROMISED: Final = 0.5
"""What is to be kept of the rate without limits."""
CONNECTIONS: Final = 9
PRODUCING: Final = 5
"""Connections of a worker process and of a program that enqueues, at most: docs/guides/workers-in-production.md."""
DAY: Final = 86_400
WEEK: Final = 7 * DAY
SECOND: Final = {3: 17, 5: 1_667, 7: 166_667}
"""Jobs a second, by the exponent of how many a minute."""


def page() -> str:
    """Return the page."""
    found = {name: load(name) for name in USED if (FOLDER / f"{name}.json").exists()}
    figures = _measured(found)
    table, held = _limits(found.get("limits"))
    texts = {
        "machines": _machines(found),
        "limits_table": table,
        "limits_held": held,
        "dispatch": _dispatch(found.get("dispatch")),
        "serving": _serving(found.get("serving")),
    }
    return TEMPLATE.read_text().format(**figures, **_planned(figures), **texts)


def _median(report: Report, contestant: str, work: str, x: float | None = None) -> float:
    return next(
        cell.median for cell in summary(report) if (cell.contestant, cell.work) == (contestant, work) and x in (None, cell.x)
    )


def _measured(found: dict[str, Report]) -> dict[str, float]:
    """Return what is read from the results, by its name on the page."""
    postgres, sqlite = STORES
    peers, cost, leases, memory = (found[name] for name in ("peers", "cost", "leases", "memory"))
    held = max(cell.x or 0.0 for cell in summary(leases) if cell.work == "leases server")
    jobs = max(cell.x or 0.0 for cell in summary(memory) if (cell.contestant, cell.work) == (postgres, "memory"))
    sizes = ("job", "job_pkey", "archive", "archive_pkey", "archive_lane")
    return {
        "bulk": _median(peers, postgres, "bulk"),
        "callers": _median(peers, postgres, "callers50"),
        "drain": _median(peers, postgres, "drain1"),
        "sqlite_callers": _median(peers, sqlite, "callers50"),
        "sqlite_drain": _median(peers, sqlite, "drain1"),
        "sqlite_drain2": _median(peers, sqlite, "drain2"),
        **{
            f"wal_{what}_{many}": _median(cost, postgres, f"{what} {many}: wal_bytes")
            for what in ("enqueue", "claim", "settle")
            for many in ("100", "one")
        },
        "statements": _median(cost, postgres, "statements", 20.0),
        "idle": _median(cost, postgres, "idle statements"),
        # megabytes of a million jobs are bytes of one
        **{f"size_{name}": _median(memory, postgres, f"size of {name}") for name in sizes},
        "memory": _median(memory, postgres, "memory", jobs),
        "leases": held,
        "lease_client": _median(leases, postgres, "leases client", held),
        "lease_server": _median(leases, postgres, "leases server", held),
    }


def _planned(m: dict[str, float]) -> dict[str, float]:
    """Return what follows from it. The page shows how."""
    us = {name: 1e6 / m[name] for name in ("bulk", "callers", "drain")}
    life, life_bulk = us["callers"] + us["drain"], us["bulk"] + us["drain"]
    wal = {many: sum(round(m[f"wal_{what}_{many}"]) for what in ("enqueue", "claim", "settle")) for many in ("100", "one")}
    size = sum(round(m[f"size_{name}"]) for name in ("job", "job_pkey", "archive", "archive_pkey", "archive_lane"))
    wal_7 = SECOND[7] * wal["100"] / 1e6
    wal_seen = m["drain"] * (m["wal_claim_100"] + m["wal_settle_100"]) / 1e6
    databases = ceil(round(wal_7) / round(wal_seen / PLANNED))
    each = SECOND[7] / databases
    processes = ceil(34 / databases)
    connections = processes * CONNECTIONS
    return {
        "bulk_us": us["bulk"],
        "callers_us": us["callers"],
        "drain_us": us["drain"],
        "wal_100": wal["100"],
        "wal_one": wal["one"],
        "size": size,
        "life_us": life,
        "life_bulk_us": life_bulk,
        "life_rate": _rounded(1e6 / life, 100),
        "life_bulk_rate": _rounded(1e6 / life_bulk, 100),
        "life_minute": 60 / life,
        "life_bulk_minute": 60 / life_bulk,
        "plan": _rounded(60e6 / life / PLANNED, 10_000),
        "plan_bulk": _rounded(60e6 / life_bulk / PLANNED, 10_000),
        "load_3": SECOND[3] * life / 1e4,
        "wal_3": SECOND[3] * wal["one"] / 1e3,
        "kept_3": 1_000 * WEEK / 60 * size / 1e9,
        "load_5": SECOND[5] * life / 1e4,
        "wal_5": SECOND[5] * wal["one"] / 1e6,
        "wal_5_day": SECOND[5] * wal["one"] * DAY / 1e9,
        "kept_5": SECOND[5] * WEEK * size / 1e9,
        "kept_5_day": SECOND[5] * DAY * size / 1e9,
        "memory_5": 7 * round(m["memory"]),
        "connections": CONNECTIONS,
        "connections_5": 7 * CONNECTIONS,
        "leases_5": m["lease_client"] * 3_334 / m["leases"],
        "leases_5_server": m["lease_server"] * 3_334 / m["leases"],
        "pairs_7": SECOND[7] * life_bulk / 1e6,
        "pairs_7_plan": PLANNED * SECOND[7] * life_bulk / 1e6,
        "wal_7": wal_7,
        "wal_7_day": wal_7 * DAY / 1e6,
        "kept_7": SECOND[7] * 3_600 * size / 1e9,
        "wal_seen": wal_seen,
        "wal_plan": wal_seen / PLANNED,
        "databases": databases,
        "each": each,
        "each_load": each * life_bulk / 1e6,
        "each_cores": ceil(2 * PLANNED * each * life_bulk / 1e6),
        "each_wal": each * wal["100"] / 1e6,
        "each_wal_bits": each * wal["100"] * 8 / 1e6,
        "each_wal_hour": each * wal["100"] * 3_600 / 1e9,
        "drain_plan": m["drain"] / PLANNED,
        "workers_7": ceil(SECOND[7] * PLANNED / m["drain"]),
        "workers_each": ceil(SECOND[7] * PLANNED / m["drain"] / databases),
        "workers_7_each": processes,
        "workers_7_all": processes * databases,
        "memory_7": processes * databases * m["memory"] / 1e3,
        "connections_each": connections,
        "producing": PRODUCING,
        "connections_total": connections + 20 * PRODUCING,
        "batch_ms": us["bulk"],
        "pool_busy": each * us["bulk"] / 1e6,
        "leases_each": 16_667 / databases,
        "leases_7": m["lease_server"] * 16_667 / databases / m["leases"],
        "batch_gain": us["callers"] - us["bulk"],
        "batch_cores": SECOND[7] * (us["callers"] - us["bulk"]) / 1e6,
        "kept_each": SECOND[7] * 3_600 * size / 1e9 / databases,
    }


def _rounded(number: float, to: int) -> int:
    """Return a number that is not promised to the last digit: never more than it is."""
    return int(number / to) * to


def _machines(found: dict[str, Report]) -> str:
    """Say what was measured on which machine: only what comes from one may be compared."""
    on: dict[str, list[str]] = {}
    for name, report in found.items():
        machine = report.machine
        memory = f"{machine.memory_bytes / 2**30:.0f} GiB of memory"
        facts = (f"{machine.cores} cores of {machine.processor}", memory, machine.file_system)
        on.setdefault(", ".join(fact for fact in facts if fact), []).append(f"`{name}` ({report.made})")
    lines = [f"- {', '.join(names)}: {machine}" for machine, names in on.items()]
    missing = [f"`./dev bench {name}`" for name in USED if name not in found]
    if missing:
        lines.append(f"- not measured yet: {', '.join(missing)}")
    return "\n".join(lines)


def _limits(report: Report | None) -> tuple[str, str]:
    """Return a table of rates, and sentences on which jobs keep half of the rate without limits, and which do not.

    A run whose jobs did not crowd where nothing held them back says nothing about limits, and counts as none.
    """
    cells = {} if report is None else {(cell.contestant, cell.work): cell for cell in summary(report)}
    rows = [
        "| jobs a second | without limits | keys take turns | at most two of a key | of the run without |",
        "|---|---|---|---|---|",
    ]
    within: dict[str, list[float]] = {store: [] for store in STORES.values()}
    below: list[str] = []
    measured = False
    for length in LENGTHS:
        for contestant, store in STORES.items():
            found = [cells.get((contestant, work_of(kind, length))) for kind in KINDS]
            runs = [cell for cell in found if cell is not None]
            if len(runs) < len(KINDS) or float(runs[0].extra["overlap"]) < CROWDED:
                rows.append(f"| {store}, jobs of {length:g} ms | not measured yet | | | |")
                continue
            measured = True
            share = runs[-1].median / runs[0].median
            if share >= PROMISED:
                within[store].append(length)
            else:
                below.append(f"{store} with jobs of {length:g} ms ({share:.2f})")
            rates = " | ".join(f"{cell.median:,.0f}" for cell in runs)
            rows.append(f"| {store}, jobs of {length:g} ms | {rates} | {share:.2f} |")
    if not measured:
        return "\n".join(rows), "How much of the rate without limits is kept was not measured yet."
    kept = " and ".join(f"{store} {_down_to(lengths)}" for store, lengths in within.items())
    missed = f" **Missed** by {' and '.join(below)}." if below else ""
    return "\n".join(rows), f"At least half of the rate without limits is wanted, and kept by {kept}.{missed}"


def _down_to(lengths: list[float]) -> str:
    return f"with jobs of {min(lengths):g} ms and longer" if lengths else "with none of these"


def _dispatch(report: Report | None) -> str:
    return f"{dispatch_page.briefly(report)}, [side by side](guides/redis.md#when-it-helps)"


def _serving(report: Report | None) -> str:
    rates = [] if report is None else [cell for cell in summary(report) if cell.work == "serving: claims, alone"]
    if not rates:
        return ": `./dev bench serving` measures how many jobs a second one carries"
    return f": {rates[0].median:,.0f} jobs a second"
