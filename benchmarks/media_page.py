"""Writes docs/media/performance.md from benchmarks/results/media.json; and the tables that `./dev bench media` prints."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.results import load

if TYPE_CHECKING:
    from benchmarks.results import Report

PAGE: Final = Path(__file__).parents[1] / "docs" / "media" / "performance.md"
TOGETHER: Final = "ffmpeg, one command"
IN_TURN: Final = "ffmpeg, a command each, in turn"
AT_ONCE: Final = "ffmpeg, a command each, at once"
ONE_WORKER: Final = "holdfast, 1 worker"
TWO_WORKERS: Final = "holdfast, 2 workers"
ONE_BY_ONE: Final = "holdfast, 2 workers, quality by quality"
PLAIN: Final = (TOGETHER, IN_TURN, AT_ONCE)
CONTESTANTS: Final = (*PLAIN, ONE_WORKER, TWO_WORKERS, ONE_BY_ONE)
BESIDE: Final = ("verify", "probe", "identify")
"""Stages of jobs that plain ffmpeg does not have."""
TARGETS: Final = ((ONE_WORKER, 1.3), (TWO_WORKERS, 1.0))
"""What a contestant may take, as a multiple of plain ffmpeg's best."""
QUIET: Final = 1.2
"""How much the slowest round of a contestant may differ from its fastest on a machine that does nothing else."""


def times_table(report: Report) -> list[str]:
    """Return how long each took."""
    lines = [
        "| | time, median [range] | of ffmpeg's best | processor | of which plain ffmpeg does not do |",
        "|---|---|---|---|---|",
    ]
    for name in CONTESTANTS:
        times = sorted(values(report, name, "time"))
        middle = statistics.median(times)
        extra = [one.extra for one in report.readings if (one.contestant, one.work) == (name, "time")]
        cpu = statistics.median(float(one["cpu"]) for one in extra)
        beside = statistics.median(sum(float(one.get(stage, 0.0)) for stage in BESIDE) for one in extra)
        more = f"{beside:.1f} s" if beside else ""
        lines.append(
            f"| {name} | {middle:.1f} s [{times[0]:.1f}-{times[-1]:.1f}] | {ratio(report, name):.2f} | {cpu:.1f} s | {more} |"
        )
    return lines


def price_table(report: Report) -> list[str]:
    """Return what chunks cost in bytes and quality."""
    measures = [what for what in ("bytes", "SSIM", "VMAF") if any(one.work.startswith(what) for one in report.readings)]
    lines = ["| quality | " + " | ".join(f"{what}, plain | in chunks" for what in measures) + " |"]
    lines.append("|---" * (2 * len(measures) + 1) + "|")
    for quality in qualities(report):
        cells = []
        for what in measures:
            for name in (TOGETHER, ONE_WORKER):
                found = values(report, name, f"{what} {quality}")[0]
                cells.append(f"{found:,.0f}" if what == "bytes" else f"{found:.4f}" if what == "SSIM" else f"{found:.1f}")
        lines.append(f"| {quality} | {' | '.join(cells)} |")
    return lines


def verdicts(report: Report) -> list[tuple[bool, str]]:
    """Return how the targets stand, each with whether it is held."""
    ratios = [(name, ratio(report, name), most) for name, most in TARGETS]
    return [
        (round(found, 2) <= most, f"{name}: {found:.2f} of plain ffmpeg's best, at most {most} is wanted")
        for name, found, most in ratios
    ]


def page() -> str:
    """Return docs/media/performance.md, as it was measured last."""
    return written(load("media"))


def written(report: Report) -> str:
    """Return the page for what was measured."""
    machine = report.machine
    where = f"{machine.cores} cores ({machine.processor}), ffmpeg {machine.versions.get('ffmpeg', '')}, {report.made[:10]}"
    held = [f"- {'Held' if good else '**Missed**'}: {text}." for good, text in verdicts(report)]
    introduction = INTRODUCTION.format(where=where, command=report.command)
    parts = (introduction, times_table(report), *disturbance(report), held, WHY, price_table(report))
    return "\n\n".join(part.strip() if isinstance(part, str) else "\n".join(part) for part in parts) + "\n"


def disturbance(report: Report) -> list[str]:
    """Return a warning where the rounds of a contestant differ so much that something else must have run on the machine."""
    spreads = [max(found) / min(found) for name in CONTESTANTS if (found := values(report, name, "time"))]
    if max(spreads) <= QUIET:
        return []
    return [DISTURBED.format(spread=max(spreads))]


DISTURBED: Final = """
**The rounds of one contestant differ by a factor of up to {spread:.1f}: other work ran on the machine meanwhile.** So these
times, and how they stand to each other, are not to be relied on, and whether a target is held has to be measured again on a
quiet machine. The time of the processor is hardly disturbed.
"""
INTRODUCTION: Final = """
# How fast it is

<!-- Made by `./dev bench page` from benchmarks/results/media.json: edit benchmarks/media_page.py. -->

A film made into a ladder of qualities by plain ffmpeg, and by Holdfast with one and with two workers, in turn on one machine:
{where}.
`{command}` repeats it.

All encode the same frames with the same settings: HLS in fragmented MP4, key frames every 6 s, libx264 `veryfast`. Plain ffmpeg
does it in each way that could be its best, and in each round its fastest counts. The time of Holdfast is from adding the film
to `ready`, with the probe and the check of every segment, and without poster and sprite sheets, which plain ffmpeg does not
make here. The film has 60 s and its chunks 6 s, as is usual for one so short. Those of long films have a minute: what a chunk
costs by itself is counted ten times as often here.
"""
WHY: Final = """
One command of plain ffmpeg decodes the source once for all qualities and keeps both cores busy to the end, so on one machine
nothing that does the same work can be much faster. Holdfast encodes a chunk in all qualities at once, and so decodes once, too;
encodes that run side by side on a machine share its processors, each with its part of the threads. *Quality by quality* is
[`together = false`](transcode.md#all-qualities-at-once-or-the-smallest-first): the source is decoded for each quality, and the
smallest one plays early.

## What chunks cost

Each quality is compared with the source, frame by frame, scaled in the same way.
"""


def values(report: Report, contestant: str, work: str) -> list[float]:
    """Return the readings of a contestant at a work."""
    return [one.value for one in report.readings if (one.contestant, one.work) == (contestant, work)]


def qualities(report: Report) -> list[str]:
    """Return the qualities that were made, the highest first."""
    return [
        one.work.removeprefix("bytes ")
        for one in report.readings
        if one.work.startswith("bytes ") and one.contestant == ONE_WORKER
    ]


def ratio(report: Report, contestant: str) -> float:
    """Return a contestant's time by that of plain ffmpeg's best way in the same round; the median of all rounds."""
    plain = [values(report, name, "time") for name in PLAIN]
    bests: list[float] = [min(times) for times in zip(*plain, strict=True)]
    return statistics.median(own / best for own, best in zip(values(report, contestant, "time"), bests, strict=True))
