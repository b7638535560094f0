"""What is known of a source: read once by `probe`, small enough to travel as the args of a job."""

from __future__ import annotations

from fractions import Fraction

import msgspec


class VideoFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The picture of a source. Times are whole ticks of `time_base`, the source's own clock, so nothing is rounded."""

    index: int
    """Which stream of the file."""
    codec: str
    profile: str = ""
    pixel_format: str = ""
    bit_depth: int = 8
    coded_width: int
    coded_height: int
    width: int
    """As shown: after rotation, with square pixels."""
    height: int
    rotation: int = 0
    """Degrees clockwise that a player turns the picture: 0, 90, 180 or 270."""
    sample_aspect: tuple[int, int] = (1, 1)
    interlaced: bool = False
    time_base: tuple[int, int]
    start: int
    """Of the first frame, in ticks."""
    end: int
    """Where the last frame ends, in ticks."""
    frames: int
    """Counted by reading every packet; what the header says is not believed."""
    frame_rate: tuple[int, int]
    """Frames per second: the nearest usual rate, or the average of a variable one."""
    variable: bool = False
    """Whether frames last differently long."""
    counts: tuple[tuple[int, int], ...] = ()
    """Frames in each second from the start, run-length coded: ((30, 12), (29, 1)) is twelve seconds with 30 and one with 29."""
    key_frame_gap: float = 0.0
    """The longest time between two key frames, in seconds."""
    open_gop: bool = False
    """Whether frames lean on what stands before the key frame that precedes them."""
    seeks_cleanly: bool = True
    """Whether reading can begin at a key frame without an error; not with open groups, nor in a container without an index."""
    ragged_start: bool = False
    """Whether the file begins in the middle of a group of pictures, as recordings do; what cannot be decoded is left out."""
    ragged_end: bool = False
    """Whether a stream without a promised length, such as a recording, ends in the middle of a frame: that one is left out."""
    steady: bool = True
    """Whether every frame has its own time and time only moves forward; a source without that is encoded in one piece."""

    @property
    def frame_bytes(self) -> float:
        """How much memory a decoded frame takes: at least what 8 bits of 4:2:0 do."""
        whole = 3.0 if any(kind in self.pixel_format for kind in ("444", "rgb", "gbr", "bgr")) else 2.0
        samples = whole if self.pixel_format and "420" not in self.pixel_format else 1.5
        return self.coded_width * self.coded_height * samples * (2 if self.bit_depth > 8 else 1)  # noqa: PLR2004  two bytes

    @property
    def seconds(self) -> float:
        """How long the picture lasts."""
        return float((self.end - self.start) * Fraction(*self.time_base))


class AudioFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The sound of a source; times in seconds on the file's own clock."""

    index: int
    codec: str
    sample_rate: int
    channels: int
    start: float
    seconds: float
    sounding: float = 0.0
    """How long its packets are together: less than `seconds` where there are gaps, or times that cannot be believed."""
    packets: int = 0
    """How many there are; 0: not counted."""
    language: str = ""
    default: bool = False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A source: `container` is the name of the reader, which every later step is forced to use."""

    container: str
    size: int
    seconds: float
    """Of the picture, or of the sound where there is no picture."""
    video: VideoFacts | None = None
    audio: tuple[AudioFacts, ...] = ()
    """The best one first: the default, else the first of the file."""
