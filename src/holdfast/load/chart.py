"""A load as a picture: what came and went, what waited and ran, and how many workers there were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.charts import Line, Panel, panels, short

if TYPE_CHECKING:
    from holdfast.load.report import Report, Seen


def draw(report: Report, seen: Seen) -> str:
    """Return the chart of a load as SVG."""
    moments = report.timeline

    def curve(label: str, field: str) -> Line:
        return Line(label, ((0.0, 0.0), *((moment.at, float(getattr(moment, field))) for moment in moments)))

    drawn = [
        Panel("jobs per second", (curve("enqueued", "enqueued"), curve("ended", "ended"))),
        Panel("jobs", (curve("waiting", "waiting"), curve("running", "running"))),
    ]
    if seen.workers:
        drawn.append(Panel("workers", (Line("workers", tuple((at, float(count)) for at, count in seen.workers)),)))
    wait = "" if report.wait.p99 is None else f", 99 % waited less than {report.wait.p99:.3g} s"
    subtitle = (
        f"{report.enqueued:,} jobs, {report.pattern}, {report.rate_reached:.3g} of {report.rate_asked:.3g} a second; "
        f"{report.ended:,} ended{wait}"
    )
    return panels("Load", subtitle, drawn, x_label="seconds from the first job", write=short)
