"""A load as a picture: what came and went, what waited and ran, and how many workers there were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.charts import Line, Marks, Panel, panels, short

if TYPE_CHECKING:
    from holdfast.load.report import Report, Seen


def draw(report: Report, seen: Seen) -> str:
    """Return the chart of a load as SVG."""
    moments = report.timeline

    def curve(label: str, field: str) -> Line:
        return Line(label, ((0.0, 0.0), *((moment.at, float(getattr(moment, field))) for moment in moments)))

    drawn = [
        Panel("jobs per second", (curve("enqueued", "enqueued"), curve("ended", "ended"))),
        Panel("jobs that wait", (curve("waiting", "waiting"),), whole=True),
        Panel("jobs that run", (curve("running", "running"),), whole=True),
    ]
    if seen.workers:
        workers = Line("workers that are up", tuple((at, float(count)) for at, count in seen.workers), stepped=True)
        drawn.append(Panel("workers", (workers,), _decisions(report, seen), whole=True))
    wait = "" if report.wait.p99 is None else f", 99 % waited less than {report.wait.p99:.3g} s"
    subtitle = (
        f"{report.enqueued:,} jobs, {report.pattern}, {report.rate_reached:.3g} of {report.rate_asked:.3g} a second; "
        f"{report.ended:,} ended{wait}"
    )
    return panels("Load", subtitle, drawn, x_label="seconds from the first job", write=short)


def _decisions(report: Report, seen: Seen) -> tuple[Marks, ...]:
    """Return when a manager decided that there should be more workers, or fewer."""

    def moments(*, up: bool) -> tuple[float, ...]:
        return tuple(
            (line.at - seen.begun).total_seconds() for line in report.scaling if line.change and (line.change > 0) is up
        )

    both = Marks("a manager wants more", moments(up=True), up=True), Marks("a manager wants fewer", moments(up=False), up=False)
    return tuple(marks for marks in both if marks.moments)
