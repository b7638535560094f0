"""Writes docs/performance.md from benchmarks/results/: what was not measured is not spoken of, what was missed is said.

And docs/scaling.md (scaling.py), docs/media/performance.md (media_page.py), and parts of docs/guides/redis.md
(dispatch_page.py) and docs/guides/remote-workers.md (serving_page.py).

./dev bench page                write it
./dev bench page --check        only tell whether it is as the results have it
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import captions, dispatch_page, media_page, scaling, serving_page
from benchmarks.charts import GROWING, file_of, reports
from benchmarks.limits import CROWDED
from benchmarks.results import STORES, best_peer, runs_of, store_of, summary
from benchmarks.tables import figure
from benchmarks.targets import judge, targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.results import Cell, Machine, Report, Run
    from benchmarks.targets import Verdict

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"

_INTRO = """\
<!-- Made by `./dev bench page` from benchmarks/results/: do not edit. -->

# Performance

What Holdfast does in a second, beside other queues for Python and beside what the database itself could do; what it costs as
things grow; and which of the targets are held and which are missed. Every figure on this page comes from
[benchmarks/results](../benchmarks/results), and the page is made from it.
"""

_FAIRNESS = """\
## How it is measured

- Contestants run in turn on the same server, in an order drawn anew for each round and work, each in an empty database. A
  figure is the median of the rounds; the range is the lowest and the highest. What differs by less than the ranges overlap
  means nothing.
- A job counts when the store shows it as finished, not when its handler ran. PostgreSQL has `fsync`, `full_page_writes` and
  `synchronous_commit` on, SQLite `synchronous=FULL`. Where workers run jobs, the first ones do not count: they are the start of
  the worker. How many stands with each figure: 5,000, or a quarter where there are fewer than 20,000 jobs.
- When jobs had finished is read from the store afterwards (`finished_at`). For stores that do not keep it, finished jobs are
  counted meanwhile, as often as is said. Nobody's watcher is at work for more than a thirtieth of the time.
- Each peer is pinned, has an environment of its own, and runs at the best setting found; what that is stands in
  [benchmarks/peers.toml](../benchmarks/peers.toml). A better one is welcome as a change of that file or of its program in
  [benchmarks/contestants](../benchmarks/contestants).
- Jobs of 10 ms processor time run in two processes, for everybody; how many more a contestant takes ahead is its own choice.
- Latency is that of all jobs: one that had not started a second after the last was enqueued counts as slower than any that had.
- The reference is no queue: [a frozen script](../benchmarks/reference), claim and settle on narrow tables, run by PostgreSQL's
  own pgbench. It has no client in Python, no retries, no events and no leases to keep, and shows about what the server can do.
- huey takes a job out of its file before it runs it, and writes nothing when it has ended: there a job counts when it is taken.
- Peers on Redis keep nothing on disk unless it says so: what they have accepted is gone with the server. They are compared with
  nobody on another store, except where a job itself takes long, sleeping or computing: there no peer at all may be ahead.
"""

_LEFT_NOTHING = """\
The servers are started on free ports of 127.0.0.1, the peers are installed into `.bench/`, and nothing is left running.
`./dev bench` alone takes three minutes and gives a first look. Absolute figures are the machine's; ratios travel better.
"""

_GROWN = """\
What a claim costs on PostgreSQL with much waiting, much ended, much scheduled, many queues, and for a worker of three tasks
behind the jobs of fifty others. Pages are counted by the server and do not depend on the machine.
"""

_FORGOTTEN = """\
Somebody's session holds a snapshot open, so vacuum may remove nothing, while jobs pass by the hundred thousand. A queue that
starts each claim at the front then walks over ever more dead rows.
"""


def page(found: Sequence[Report]) -> str:
    """Return the page for what was measured."""
    if not found:
        return f"{_INTRO}\nNothing has been measured yet: `./dev bench full` does.\n"
    parts = [_INTRO, *_judged(judge(targets(), found)), _FAIRNESS, *_repeat(found)]
    for report in found:
        parts += _SECTIONS[report.name](report)
    parts += _took_part(found)
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


# --- targets ---------------------------------------------------------------------------------------------------------------


def _judged(verdicts: Sequence[Verdict]) -> Iterator[str]:
    if not verdicts:
        return
    states = Counter[str](verdict.state for verdict in verdicts)
    others = "".join(f", {states[state]} {words}" for state, words in _STATES.items() if states[state])
    yield "## Targets"
    yield f"{states['held']} of {len(verdicts)} are held{others}. A number is the median of its rounds, or a ratio of medians."
    missed = (verdict for verdict in verdicts if verdict.state == "missed")
    for because, members in groupby(missed, key=lambda verdict: verdict.target.missed_because):
        asked = (f"{_with_place(one)}: {_number(one.number)} where {one.target.bound} is wanted" for one in members)
        yield f"**Missed:** {'; '.join(asked)}. {' '.join(because.split())}"
    yield _table(
        ("target", "wanted", "measured", "rounds", ""),
        (
            (
                _with_place(verdict),
                verdict.target.bound,
                _number(verdict.number),
                str(verdict.rounds or ""),
                "**missed**"
                if verdict.state == "missed"
                else f"{verdict.state}{f': {verdict.lacks}' if verdict.lacks else ''}",
            )
            for verdict in verdicts
        ),
    )


_STATES = {"missed": "missed", "no figure": "without enough to judge by", "not measured": "not measured"}


def _with_place(verdict: Verdict) -> str:
    return f"{verdict.target.text} ({verdict.where})" if verdict.where else verdict.target.text


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"  # noqa: PLR2004  three digits tell enough


# --- how to repeat it ------------------------------------------------------------------------------------------------------


def _repeat(found: Sequence[Report]) -> Iterator[str]:
    yield "## Repeat it"
    commands = [f"{run.command:<40} # {_when(run)}" for report in found for run in runs_of(report)]
    yield "\n".join(["```sh", *commands, "./dev bench charts && ./dev bench page", "```"])
    yield _LEFT_NOTHING
    for machine, names in _by_machine(found):
        whose = "" if len(names) == len(found) else f" ({', '.join(names)})"
        yield f"Measured on {_machine(machine)}{whose}."


def _when(run: Run) -> str:
    commit = f", commit {run.commit}" if run.commit else ""
    parts = f": {', '.join(run.parts)}" if run.parts else ""
    return f"{run.made}{commit}{parts}"


def _by_machine(found: Sequence[Report]) -> list[tuple[Machine, list[str]]]:
    machines: list[tuple[Machine, list[str]]] = []
    for report in found:
        same = next((names for machine, names in machines if _machine(machine) == _machine(report.machine)), None)
        if same is None:
            machines.append((report.machine, [report.name]))
        else:
            same.append(report.name)
    return machines


def _machine(machine: Machine) -> str:
    servers = [f"{title} {machine.versions[name]}" for name, title in _SERVERS.items() if name in machine.versions]
    facts = [
        f"{machine.cores} cores ({machine.processor})" if machine.processor else f"{machine.cores} cores",
        f"{machine.memory_bytes / 2**30:.0f} GiB of memory",
        machine.kernel,
        f"Python {machine.python}",
        f"Holdfast {machine.versions['holdfast']}" if "holdfast" in machine.versions else "",
        *servers,
    ]
    settings = ", ".join(f"`{name}={value}`" for name, value in machine.settings.items())
    return ", ".join(fact for fact in facts if fact) + (f"; PostgreSQL with {settings}" if settings else "")


_SERVERS = {"postgres": "PostgreSQL", "sqlite": "SQLite", "redis": "server for Redis:"}


# --- side by side ----------------------------------------------------------------------------------------------------------


def _compared(report: Report) -> Iterator[str]:
    cells = [cell for cell in summary(report) if cell.x is None]
    yield "## Beside other queues"
    for work, members in groupby((cell for cell in cells if cell.work not in _COUNTED), key=lambda cell: cell.work):
        yield from _work(work, list(members))
    yield from _counts(cells)
    yield from _failures(report, cells)


_COUNTED = ("wal", "transactions", "statements")
"""Works that are counts for a job of a drain: one table for all of them."""


def _work(work: str, cells: Sequence[Cell]) -> Iterator[str]:
    yield f"### {captions.about(work)}"
    yield _image(work, captions.about(work))
    if work in _BUSY:
        yield _BUSY[work]
    unit = captions.unit(cells[0].unit)
    referred = any(cell.to_reference is not None for cell in cells)
    more = [name for name in _EXTRAS if any(name in cell.extra for cell in cells)]
    heads = ["", "store", f"{unit}, median [range]", "rounds", "to the best peer on its store"]
    heads += (["to the reference"] if referred else []) + [_EXTRAS[name][0] for name in more]
    yield _table(heads, (_row(cell, referred=referred, more=more) for cell in cells))


_BUSY = {
    "sleep50": "Slots are busy for as long as their jobs sleep: jobs a second times 50 ms, for each of the 500 slots.",
    "cpu10": (
        "Slots are busy while they have a job, by the clock and as the jobs noted it, whether or not it has a core just then. "
        "Beside it the share of two cores that the jobs had: jobs a second times 10 ms, halved. The rest of the cores is the "
        "worker's and the store's."
    ),
}
"""What is meant by busy."""

_EXTRAS = {
    "p90": ("p90", "{:.1f}"),
    "p99": ("p99", "{:.1f}"),
    "max": ("longest", "{:.1f}"),
    "missing": ("not started in time", "{:.0f}"),
    "busy": ("slots busy", "{:.0%}"),
    "cores": ("of two cores", "{:.0%}"),
    "jobs": ("jobs", "{:,.0f}"),
    "skip": ("not counted", "{:,.0f}"),
    "how": ("end known by", "{}"),
}


def _row(cell: Cell, *, referred: bool, more: Sequence[str]) -> Iterator[str]:
    own = cell.contestant.startswith("holdfast")
    bold = "**" if own else ""
    yield f"{bold}{captions.name(cell.contestant)}{bold}"
    yield store_of(cell.contestant)
    yield f"{bold}{_ranged(cell)}{bold}"
    yield str(cell.rounds)
    yield _ratio(cell.to_best_peer)
    if referred:
        yield _ratio(cell.to_reference)
    for name in more:
        yield _EXTRAS[name][1].format(cell.extra[name]) if name in cell.extra else ""


def _ranged(cell: Cell) -> str:
    written = [figure(value, "").strip() for value in (cell.median, cell.low, cell.high)]
    return written[0] if cell.low == cell.high else f"{written[0]} [{written[1]} to {written[2]}]"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _counts(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what a job of a drain costs PostgreSQL, of everybody and beside the best peer."""
    counted = {work: [cell for cell in cells if cell.work == work] for work in _COUNTED}
    shown = [work for work in _COUNTED if counted[work]]
    if not shown:
        return
    yield "### What a job costs the database"
    yield "While no-ops are drained by one worker process: a job is claimed and settled; its enqueue is not in it."
    for work in shown:
        yield _image(work, captions.about(work))
    contestants = list(dict.fromkeys(cell.contestant for work in shown for cell in counted[work]))
    found = {(cell.contestant, cell.work): cell for cell in cells}
    heads = ["", *(_COUNTED_HEADS[work] for work in shown)]
    yield _table(
        heads,
        (
            (
                captions.name(contestant),
                *(_ranged(found[contestant, work]) if (contestant, work) in found else "" for work in shown),
            )
            for contestant in contestants
        ),
    )
    for work in shown:
        best, own = best_peer(cells, work, "postgres"), found.get(("holdfast_postgres", work))
        if best is not None and own is not None:
            yield (
                f"{_COUNTED_HEADS[work]}: Holdfast {figure(own.median, '').strip()}, the best peer ({best.contestant}) "
                f"{figure(best.median, '').strip()}."
            )


_COUNTED_HEADS = {"wal": "Bytes of WAL", "transactions": "Transactions", "statements": "Statements"}


def _failures(report: Report, cells: Sequence[Cell]) -> Iterator[str]:
    if not report.failures:
        return
    rounds = {(cell.contestant, cell.work): cell.rounds for cell in cells}

    def left(contestant: str, work: str) -> str:
        return f"of {found} rounds" if (found := rounds.get((contestant, work))) else "none"

    yield "### What failed, and why"
    yield _table(
        ("", "work", "figure", "reason"),
        (
            (captions.name(one.contestant), one.work, left(one.contestant, one.work), " ".join(one.reason.split()))
            for one in report.failures
        ),
    )


# --- curves ----------------------------------------------------------------------------------------------------------------


def _growth(report: Report) -> Iterator[str]:
    cells = summary(report)
    yield "## As things grow"
    yield _GROWN
    for of, words in (("p50", "median time"), ("p99", "99th percentile"), ("blocks", "pages touched")):
        yield _image(f"growth {of}", f"A claim of 100 jobs as things grow: {words}")
    rows = []
    for name, label in GROWING.items():
        for batch in (100, 1):
            curve = [cell for cell in cells if cell.work == f"{name}: claim {batch}"]
            if len(curve) > 1:
                rows.append(_grown(label, batch, curve[0], curve[-1]))
    yield _table(("what grows", "from, to", "jobs a claim", "p50 ms", "p99 ms", "pages", "rounds"), rows)


def _grown(label: str, batch: int, first: Cell, last: Cell) -> tuple[str, ...]:
    def both(name: str) -> str:
        before, after = ((cell.median if name == "p50" else float(cell.extra[name])) for cell in (first, last))
        return f"{_number(before)}, {_number(after)} ({after / before:.2f}x)" if before else ""

    rounds = str(min(first.rounds, last.rounds))
    return (label, f"{first.x:,.0f} to {last.x:,.0f}", str(batch), both("p50"), both("p99"), both("blocks"), rounds)


def _bloat(report: Report) -> Iterator[str]:
    yield "## Beside a forgotten transaction"
    yield _FORGOTTEN
    cells = summary(report)
    for what, words in (("drain", "jobs a second"), ("blocks of a claim", "pages a claim touches")):
        if any(cell.work.endswith(f": {what}") for cell in cells):
            yield _image(f"bloat {what}", f"Beside a forgotten transaction: {words}")
    yield from _bystander(cells)
    sizes = [cell for cell in cells if "size of " in cell.work and "needed" in cell.extra]
    if sizes:
        yield "When the snapshot is given up and the tables are vacuumed; indexes are not judged by their size, see below:"
        yield _table(
            ("", "drained by", "MB", "MB if written anew", "rounds"),
            (
                (
                    cell.work.partition("size of ")[2],
                    _FORMS[cell.work.partition(" ")[0]],
                    f"{cell.median / 2**20:.1f}",
                    f"{float(cell.extra['needed']) / 2**20:.1f}",
                    str(cell.rounds),
                )
                for cell in sizes
            ),
        )


_FORMS = {"bare": "bare loops", "worker": "a worker"}
"""How the bare loops of claim and settle, and the worker process, are told apart."""


def _bystander(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what somebody else's statements took in the last third of the jobs."""
    last = {cell.work: cell for cell in cells if ": bystander " in cell.work}  # cells come by x
    rows = [
        (f"{kind}, beside {words}", *_both(last[with_it], last[without]), str(min(last[with_it].rounds, last[without].rounds)))
        for form, words in _FORMS.items()
        for kind in ("reads", "updates")
        if (with_it := f"{form} with a snapshot: bystander {kind}") in last
        and (without := f"{form} without: bystander {kind}") in last
    ]
    if rows:
        yield (
            "Meanwhile a bystander reads and updates single rows of a table of its own, by their primary key. In the last "
            "third of the jobs, in milliseconds:"
        )
        yield _table(("", "p50 with the transaction, without", "p99 with the transaction, without", "rounds"), rows)


def _both(with_it: Cell, without: Cell) -> Iterator[str]:
    pairs = [(with_it.median, without.median), (float(with_it.extra["p99"]), float(without.extra["p99"]))]
    return (f"{_number(one)}, {_number(other)} ({one / other:.2f}x)" for one, other in pairs)


def _leases(report: Report) -> Iterator[str]:
    yield "## Keeping leases"
    yield "Workers whose handlers sleep, with the default lease and heartbeat; what an idle worker uses is taken off."
    yield _image("leases", "Processor time of heartbeats as leases grow")
    cells = [cell for cell in summary(report) if cell.x is not None]
    most = max(cell.x or 0.0 for cell in cells)
    yield _table(
        ("", f"percent of a core at {most:,.0f} leases", "rounds"),
        (
            (
                f"{captions.name_and_store(cell.contestant)}, {cell.work.removeprefix('leases ')}",
                _ranged(cell),
                str(cell.rounds),
            )
            for cell in cells
            if cell.x == most
        ),
    )


def _limits(report: Report) -> Iterator[str]:
    cells = {(cell.contestant, cell.work): cell for cell in summary(report)}
    any_cell = next(iter(cells.values()))
    yield "## Under limits"
    yield (
        f"{any_cell.extra['jobs']:,.0f} jobs with {any_cell.extra['keys']:g} keys, four processes of 25 slots: without limits "
        "(free), with keys that take turns, and with at most two of a key at once (limited). Every job says when it ran."
    )
    yield _table(
        ("", "jobs a second", "of the free run", "most of a key at once", "last key's first job", "rounds"),
        (
            (
                f"{captions.name_and_store(contestant)}, {work.removeprefix('limits ')}",
                _ranged(cell),
                _of_free(cell, cells.get((contestant, _beside_free(work)))),
                f"{cell.extra['overlap']:g}",
                f"at {float(cell.extra['late']):.1%} of the time",
                str(cell.rounds),
            )
            for (contestant, work), cell in cells.items()
        ),
    )


def _of_free(cell: Cell, free: Cell | None) -> str:
    """Return the ratio to the run without limits, where that had enough of a key at once to hold back."""
    if free is None or float(free.extra["overlap"]) < CROWDED:
        return "not measured"
    return f"{cell.median / free.median:.2f}"


def _beside_free(work: str) -> str:
    """Return the work that differs in nothing but that there are no limits."""
    return work.replace("turns", "free").replace("limited", "free")


def _memory(report: Report) -> Iterator[str]:
    cells = summary(report)
    yield "## A million jobs through one worker"
    yield _image("memory", "Memory of one worker process as jobs pass")
    yield "\n".join(
        f"- {captions.name_and_store(cell.contestant)}: over {float(cell.extra.get('jobs', 0.0)):,.0f} jobs the memory of the "
        f"worker moved by {cell.median:.1f} MB."
        for cell in cells
        if cell.work == "memory drift"
    )
    sizes = [cell for cell in cells if cell.work.startswith("size of ") and cell.median >= 1]
    if sizes:
        yield f"Afterwards, vacuumed; what is smaller than a megabyte is left out. {_INDEXES}"
        yield _table(
            ("name", "kind", "rows", "MB", "MB of a fresh copy", "MB after 100,000 jobs more"),
            (
                (
                    f"{cell.work.removeprefix('size of ')} ({captions.STORES_SHORT[store_of(cell.contestant)]})",
                    "index" if "index" in cell.extra else "table" if store_of(cell.contestant) == "postgres" else "file",
                    f"{float(cell.extra.get('rows', 0.0)):,.0f}",
                    f"{cell.median:.1f}",
                    f"{float(cell.extra.get('fresh', 0.0)):.1f}",
                    f"{float(cell.extra['later']):.1f}" if "later" in cell.extra else "",
                )
                for cell in sizes
            ),
        )


_INDEXES = (
    "Tables are judged by their size. Indexes are not: a vacuum frees their pages and leaves them in the file, so that where "
    "every job passes through, the file stays as large as the jobs between two vacuums made it. They are judged by whether "
    "these pages are used again: whether the index of an empty table grows when 100,000 jobs more have passed."
)


def _cost(report: Report) -> Iterator[str]:
    yield "## What a job costs, counted"
    yield (
        "Counts do not depend on the machine; the tests hold them. A plain job: no key, no chain, nothing it waits for. "
        "First what a worker does for it, from claim to settlement, by its number of slots; then what the store does for it, "
        "and what it takes of the process's memory, in blocks, while it is held and after it has ended."
    )
    cells = summary(report)
    stores = [store for store in _COST_STORES if any(cell.contestant == f"holdfast_{store}" for cell in cells)]
    found = {(cell.work, cell.x, cell.contestant.removeprefix("holdfast_")): cell for cell in cells}
    phases = list(dict.fromkeys(cell.work.rpartition(": ")[0] for cell in cells))
    rows = sorted(
        dict.fromkeys((cell.work, cell.x) for cell in cells),
        key=lambda row: (row[1] is None, phases.index(row[0].rpartition(": ")[0])),
    )
    rounds = sorted({cell.rounds for cell in cells})
    yield _table(
        ("counted for a job", "slots", *(_COST_STORES[store] for store in stores)),
        (
            (
                captions.counted(work),
                "" if x is None else f"{x:g}",
                *(f"{found[work, x, store].median:,.4g}" if (work, x, store) in found else "" for store in stores),
            )
            for work, x in rows
        ),
    )
    yield f"Medians of {' or '.join(map(str, rounds))} rounds." if rounds != [1] else "Counted once."


_COST_STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite", "memory": "in memory"}


_SECTIONS = {
    "peers": _compared,
    "growth": _growth,
    "bloat": _bloat,
    "leases": _leases,
    "memory": _memory,
    "limits": _limits,
    "cost": _cost,
}


# --- who -------------------------------------------------------------------------------------------------------------------


def _took_part(found: Sequence[Report]) -> Iterator[str]:
    report = next((report for report in found if report.name == "peers"), None)
    if report is None:
        return
    taking_part = {reading.contestant for reading in report.readings}
    yield "## Who took part"
    yield "Settings are those of the drains unless they say more; what a peer has for other works stands in its program."
    yield _table(
        ("", "version", "setting"),
        (
            (
                captions.name_and_store(contestant),
                report.machine.versions.get(contestant, ""),
                captions.setting(contestant),
            )
            for contestant in STORES
            if contestant in taking_part
        ),
    )


# --- markdown --------------------------------------------------------------------------------------------------------------


def _image(what: str, alternative: str) -> str:
    return f"![{alternative}](images/{file_of(what)})"


def _table(heads: Sequence[str], rows: Iterator[Sequence[str] | Iterator[str]] | Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Write the page; or check, and return 1 when it is not what the results give."""
    parser = argparse.ArgumentParser(
        prog="./dev bench page", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when the page is stale")
    options = parser.parse_args(arguments)
    stale = [
        (path, written)
        for path, written in (
            (PAGE, page(reports())),
            (scaling.PAGE, scaling.page()),
            (dispatch_page.PAGE, dispatch_page.page()),
            (serving_page.PAGE, serving_page.page()),
            (media_page.PAGE, media_page.page()),
        )
        if not path.exists() or path.read_text() != written
    ]
    for path, written in stale:
        name = path.relative_to(PAGE.parents[1])
        if options.check:
            print(f"{name} is not what benchmarks/results/ give. Write it: ./dev bench page", file=sys.stderr)
        else:
            path.write_text(written)
            print(f"written: {path}", file=sys.stderr)
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
