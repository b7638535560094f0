"""The generated parts of `docs/reliability.md`: which tests prove which row, when the long forms ran, what the soaks gave.

`python -m lab.page` writes them; with `--check` it only tells whether they are stale. Either fails when no long run that
balanced is there to tell of.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from lab import long
from lab.faults.catalogue import ROWS
from lab.soak.books import Found, balance
from lab.soak.diary import Told

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "reliability.md"
SOAKS: Final = ROOT / "lab" / "results"
"""What `./dev soak --json` wrote, one file for each run that the page tells of."""
LONG: Final = 30 * 60
"""Seconds of the run on PostgreSQL that the page must be able to tell of."""
STALE_WRITES: Final = ": stale writes"
"""How the lines of the books end that count stale writes which were accepted."""
_MARK: Final = re.compile(r"\bmark\.row\(([^)]*)\)")
_KEY: Final = re.compile(r"\b\d+\w?\b")
_MACHINE: Final = re.compile(r"\bmark\.machine\b")


def proofs() -> dict[str, list[Path]]:
    """Return the test files that name each row, in the order of the catalogue."""
    found: dict[str, list[Path]] = {key: [] for key in ROWS}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for key in sorted({key for text in _MARK.findall(path.read_text()) for key in _KEY.findall(text)}):
            found.setdefault(key, []).append(path)
    return found


def needs_machine(path: Path) -> bool:
    """Tell whether tests of a file need root or a Debian package."""
    return _MACHINE.search(path.read_text()) is not None


def rows() -> str:
    """Return the table of the catalogue."""
    lines = ["| row | fault | what holds | tests |", "|---|---|---|---|"]
    for key, paths in proofs().items():
        row = ROWS[key]
        files = ", ".join(f"`{path.relative_to(ROOT / 'tests')}`{'*' if needs_machine(path) else ''}" for path in paths)
        lines.append(f"| {key} | {row.fault} | {row.holds} | {files} |")
    return "\n".join(lines)


def long_forms(file: Path = long.RESULTS) -> str:
    """Return when tests ran that are not part of every run, and what came of it."""
    lines = ["| date | commit | command | rows | what | passed | failed | took |", "|---|---|---|---|---|---|---|---|"]
    kept = long.results(file)
    for form in long.FORMS.values():
        what = f"`{form.command}` | {', '.join(form.rows)} | {form.what}"
        if (run := kept.get(form.command)) is None:
            lines.append(f"| not run yet | | {what} | | | |")
            continue
        took = f"{run['seconds'] // 60} min {run['seconds'] % 60} s"
        lines.append(
            f"| {run['made']} | {run['commit'] or 'none has it'} | {what} | {run['passed']} | {run['failed']} | {took} |"
        )
    return "\n".join(lines)


def soaks() -> str:
    """Return what the soaks gave."""
    return "\n\n".join(_soak(run) for run in runs())


def runs(folder: Path = SOAKS) -> list[dict[str, Any]]:
    """Return the figures of all soaks that are kept."""
    return [run for path in sorted(folder.glob("soak-*.json")) for run in json.loads(path.read_text())]


def lacking(kept: list[dict[str, Any]]) -> str | None:
    """Return what is missing among the soaks: a long one on PostgreSQL that balanced, and in each today's lines."""
    if not any(run["store"] == "postgres" and run["seconds"] >= LONG and run["ok"] is True for run in kept):
        return (
            f"lab/results holds no soak of at least {LONG // 60} minutes on PostgreSQL that balanced: "
            "./dev soak --minutes 30 --json lab/results/soak-postgres.json"
        )
    today = [line.what for line in balance(Told(), Found(jobs={}, counts={}))]
    for run in kept:
        if [line["what"] for line in run["books"]] != today:
            return (
                f"lab/results holds a soak on {run['store']} whose books are not those of today: "
                f"run it again with --json lab/results/soak-{run['store']}.json"
            )
    return None


def accepted(books: list[dict[str, Any]]) -> str:
    """Return how many stale writes the books found accepted, in words."""
    counts = [line["found"] for line in books if line["what"].endswith(STALE_WRITES)]
    if not counts:
        return "accepted ones were not looked for"
    return f"{sum(counts):,} ACCEPTED" if any(counts) else "none accepted"


def _soak(run: dict[str, Any]) -> str:
    machine, books = run["machine"], run["books"]
    injected, left_out = run["faults"]["all"]["injected"], run.get("faults_left_out", {})
    wrong = [line["what"] for line in books if not line["ok"]]
    verdict = f"{len(books)} lines of the books, all balanced" if not wrong else f"NOT balanced: {', '.join(wrong)}"
    lines = [
        f"### {run['version']}, {run['seconds'] / 60:.0f} minutes",
        "",
        f"`{run['command']}` on {machine['cpus']} cores, Python {machine['python']}:",
        "",
        f"- {run['jobs']:,} jobs by {run['producers']} producers and {run['workers']} workers, {injected} faults;",
        f"- {verdict};",
        f"- {sum(run['refused_stale_writes'].values()):,} stale writes refused, {accepted(books)};",
        f"- {run['notes']['attempts after the first']:,} attempts were repetitions;",
        f"- what the faults had left was finished in {run['drained_seconds']:.0f} s{'.' if not left_out else ';'}",
        *[f"- left out: {name}: {why}." for name, why in left_out.items()],
        "",
        "| rows | fault | injected | survived | measured | recovery p50 | p99 | max |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_fault(name, fault) for name, fault in sorted(run["faults"].items(), key=_by_rows)]
    return "\n".join(lines)


def _fault(name: str, fault: dict[str, Any]) -> str:
    times = " | ".join(
        "" if fault[key] is None else f"{fault[key]:.1f} s" for key in ("p50_seconds", "p99_seconds", "max_seconds")
    )
    counts = f"{fault['injected']} | {fault['survived']} | {fault['measured']}"
    return f"| {', '.join(fault['rows'])} | {name} | {counts} | {times} |"


def _by_rows(one: tuple[str, dict[str, Any]]) -> tuple[bool, list[tuple[int, str]]]:
    """Sort faults by their rows, and what is told of all of them last."""
    name, fault = one
    return name == "all", [(int(row.rstrip("b")), row) for row in fault["rows"]]


def written(page: str) -> str:
    """Return the page with the parts of today."""
    for name, part in (("rows", rows()), ("long", long_forms()), ("soaks", soaks())):
        begin, end = f"<!-- {name}: written by ./dev docs -->", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}\n\n{part}\n\n{end}{rest.partition(end)[2]}"
    return page


def main() -> int:
    """Write the parts, or tell whether they are stale; returns the exit code."""
    if (missing := lacking(runs())) is not None:
        print(missing, file=sys.stderr)
        return 1
    page = PAGE.read_text()
    fresh = written(page)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(fresh)
    elif page != fresh:
        print("docs/reliability.md is stale: run ./dev docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
