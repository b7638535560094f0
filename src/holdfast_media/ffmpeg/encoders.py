"""Which encoders really work here: found by encoding one frame, because a build lists hardware that is not in the machine."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.errors import FFMPEG_UNSUITABLE, MediaError
from holdfast_media.ffmpeg.find import find_ffmpeg
from holdfast_media.ffmpeg.run import run

if TYPE_CHECKING:
    from pathlib import Path

AUTO: Final = "auto"
SOFTWARE: Final = "x264"
HARDWARE: Final = "hardware"
"""What workers publish, beside the family, when they have any encoder in hardware."""
AGAIN_AFTER: Final = 600.0
"""Seconds until an encoder that did not work is tried again."""
_TRIAL_SECONDS: Final = 15.0


class Encoder(msgspec.Struct, frozen=True, kw_only=True):
    """An H.264 encoder: `family` is what workers publish as a capability, `name` what ffmpeg calls it."""

    family: str
    name: str
    before_input: tuple[str, ...] = ()
    """Options that open the device."""
    filters: tuple[str, ...] = ("format=yuv420p",)
    """What brings frames to it."""
    options: tuple[str, ...] = ()


# The best first. Each is told to make a forced key frame one that can be started from, and to keep to two B-frames.
_ENCODERS: Final = (
    Encoder(
        family="nvenc",
        name="h264_nvenc",
        options=("-preset", "p4", "-rc", "vbr", "-forced-idr", "1", "-no-scenecut", "1", "-bf", "2"),
    ),
    Encoder(
        family="qsv",
        name="h264_qsv",
        filters=("format=nv12",),
        options=("-preset", "medium", "-forced_idr", "1", "-bf", "2"),
    ),
    Encoder(
        family="vaapi",
        name="h264_vaapi",
        before_input=("-vaapi_device", "/dev/dri/renderD128"),
        filters=("format=nv12", "hwupload"),
        options=("-bf", "2"),
    ),
    Encoder(family="videotoolbox", name="h264_videotoolbox", options=("-bf", "2")),
    Encoder(family="amf", name="h264_amf", filters=("format=nv12",), options=("-quality", "balanced", "-forced_idr", "1")),
    Encoder(family=SOFTWARE, name="libx264"),
)
FAMILIES: Final = tuple(encoder.family for encoder in _ENCODERS)


def available(ffmpeg: Path | None = None) -> frozenset[str]:
    """Return the families that encode here, such as {"x264", "nvenc"}: what a worker publishes as its capabilities.

    Found by a trial of one frame each. What works is tried once for each program and process, what does not every ten minutes.
    """
    return frozenset(encoder.family for encoder in _trials.working(ffmpeg or find_ffmpeg()))


def capabilities(ffmpeg: Path | None = None) -> frozenset[str]:
    """Return what a worker publishes: the families in hardware that encode here, and `hardware` when there is one at all."""
    found = available(ffmpeg) - {SOFTWARE}
    return found | {HARDWARE} if found else found


def doubt(encoder: Encoder, ffmpeg: Path | None = None) -> None:
    """Have an encoder that failed at real work passed over for a while: one frame of black proves little."""
    if encoder.family != SOFTWARE:
        _trials.doubt(encoder.family, ffmpeg or find_ffmpeg())


def choose_encoder(wanted: str = AUTO, ffmpeg: Path | None = None) -> Encoder:
    """Return the encoder to use: the family that is wanted, for "auto" the best one; libx264 where that is not to be had.

    Raises FFMPEG_UNSUITABLE when not even libx264 works.
    """
    working = _trials.working(ffmpeg or find_ffmpeg())
    by_family = {encoder.family: encoder for encoder in working}
    if chosen := by_family.get(wanted) or (working[0] if wanted == AUTO and working else by_family.get(SOFTWARE)):
        return chosen
    raise MediaError(FFMPEG_UNSUITABLE, "this ffmpeg has no H.264 encoder that works. Use a build with libx264.")


class _Trials:
    """What trials have found: what works is believed as long as the process lives, what does not is tried again some day.

    A driver comes back, and a machine that was too busy for a trial is not busy for ever. Without libx264 nothing works, so
    that is tried again each time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[Path, str], tuple[bool, float]] = {}

    def working(self, ffmpeg: Path) -> tuple[Encoder, ...]:
        with self._lock:
            return tuple(encoder for encoder in _ENCODERS if self._works(encoder, ffmpeg))

    def _works(self, encoder: Encoder, ffmpeg: Path) -> bool:
        works, at = self._known.get((ffmpeg, encoder.family), (False, -math.inf))
        rest = 0.0 if encoder.family == SOFTWARE else AGAIN_AFTER
        if not works and time.monotonic() - at >= rest:
            works = _encodes_a_frame(encoder, ffmpeg)
            self._known[ffmpeg, encoder.family] = works, time.monotonic()
        return works

    def doubt(self, family: str, ffmpeg: Path) -> None:
        with self._lock:
            self._known[ffmpeg, family] = False, time.monotonic()


_trials: Final = _Trials()


def _encodes_a_frame(encoder: Encoder, ffmpeg: Path) -> bool:
    """Encode one frame of 256 x 256: the smallest that every piece of hardware takes."""
    picture = ("-f", "lavfi", "-i", "color=black:s=256x256:r=25", "-frames:v", "1", "-vf", ",".join(encoder.filters))
    encoding = ("-fps_mode", "passthrough", "-c:v", encoder.name, *encoder.options, "-f", "null", "-")
    arguments = (*encoder.before_input, *picture, *encoding)
    try:
        run(arguments, ffmpeg=ffmpeg, timeout=_TRIAL_SECONDS, stall_after=None)
    except MediaError:
        return False
    return True
