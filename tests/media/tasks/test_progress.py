"""What a job that encodes tells of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from holdfast_media.ffmpeg import Progress
from holdfast_media.tasks import encoding

if TYPE_CHECKING:
    import pytest


def test_share_speed_and_time_left_are_told_and_not_more_often_than_somebody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("holdfast_media.tasks.encoding.time.monotonic", lambda: now)
    told: list[tuple[float, str]] = []
    context = SimpleNamespace(job=SimpleNamespace(progress=lambda percent, message: told.append((percent, message))))
    report = encoding._reporting(cast("Any", context), 98.0)
    for number in range(9):  # as ffmpeg tells it, every quarter of a second
        now = 100.0 + number / 4
        report(Progress(fraction=number / 8, seconds=number, frames=number, speed=4.0, remaining=2 - number / 4))
    assert [percent for percent, _ in told] == [0.0, 24.5, 49.0, 73.5, 98.0]
    assert told[2][1] == "50 %, 4.0x, 1 s left"
