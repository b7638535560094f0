"""What ffmpeg tells on its progress pipe, and what follows for the share done and the time left."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_LINE: Final = 4096
_MINUTE: Final = 60


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an encode is."""

    fraction: float
    """0 to 1; never falls."""
    seconds: float
    """Of media written."""
    frames: int
    speed: float | None
    """Media seconds for each second of wall time."""
    remaining: float | None
    """Seconds of wall time until the end, at the speed so far."""

    @property
    def percent(self) -> float:
        """The share done, out of 100."""
        return self.fraction * 100

    def __str__(self) -> str:
        """Say it for people: 48 %, 2.1x, 14 s left."""
        parts = [f"{self.percent:.0f} %"]
        if self.speed is not None:
            parts.append(f"{self.speed:.1f}x")
        if self.remaining is not None and self.fraction < 1:
            left = round(self.remaining)
            parts.append(f"{left} s left" if left < _MINUTE else f"{left // _MINUTE}:{left % _MINUTE:02} min left")
        return ", ".join(parts)


class ProgressReader:
    """Takes the bytes of `-progress` as they come and gives one `Progress` for each report.

    `duration` is the length of what is written, `offset` the time its clock starts at. The values are ffmpeg's, which says
    N/A before the first frame, and now and then a time below the one before: the share never falls.
    """

    def __init__(self, duration: float | None, *, offset: float = 0.0, begun: float) -> None:
        self._duration = duration
        self._offset = offset
        self._begun = begun
        self._rest = b""
        self._values: dict[str, str] = {}
        self._fraction = 0.0
        self.frames = 0
        self.mark: tuple[int, int, int] = (0, 0, 0)
        """Frames, time and bytes so far: an encode whose mark does not change stands still."""

    def feed(self, data: bytes, now: float) -> Iterator[Progress]:
        """Take more bytes; `now` is the monotonic time."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-_LONGEST_LINE:]
        for line in lines:
            key, _, value = line.decode(errors="replace").partition("=")
            self._values[key.strip()] = value.strip()
            if key.strip() == "progress":
                yield self._report(now, ended=value.strip() == "end")

    def _report(self, now: float, *, ended: bool) -> Progress:
        self.frames = max(self.frames, self._number("frame"))
        # 5.1 calls microseconds out_time_ms as well as out_time_us; only the second name means what it says in all versions
        micros = self._number("out_time_us")
        self.mark = (self.frames, micros, self._number("total_size"))
        seconds = max(micros / 1e6 - self._offset, 0.0) if micros else 0.0
        if self._duration:
            self._fraction = max(self._fraction, min(seconds / self._duration, 1.0))
        if ended:
            self._fraction = 1.0
        elapsed = now - self._begun
        speed = seconds / elapsed if seconds > 0 and elapsed > 0 else None
        remaining = elapsed * (1 - self._fraction) / self._fraction if self._fraction > 0 else None
        return Progress(fraction=self._fraction, seconds=seconds, frames=self.frames, speed=speed, remaining=remaining)

    def _number(self, key: str) -> int:
        with contextlib.suppress(ValueError):
            return int(self._values.get(key, "0"))
        return 0
