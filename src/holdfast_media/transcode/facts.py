"""What the steps of a transcode tell about what they made: the results of their jobs."""

from __future__ import annotations

import msgspec


class ChunkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One encoded chunk, or the sound in one piece: a file that `package_rendition` or `package_audio` takes."""

    frames: int
    """Counted in the file; of sound, its packets."""
    bytes: int
    sha256: str
    encoder: str
    """What really encoded it, such as libx264 or h264_nvenc."""
    seconds: float
    """Of wall time that encoding took."""


class PackageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A playlist with its segments; `files` are relative to its folder, the playlist itself last."""

    name: str
    """Of the rendition, or `audio`: also the name of its folder beside the master playlist."""
    playlist: str
    files: tuple[str, ...]
    bytes: int
    segments: int
    frames: int
    seconds: float
    peak_bandwidth: int
    """Bits per second of the heaviest segment."""
    average_bandwidth: int
    codecs: str
    """As in RFC 6381: avc1.64001F."""
    width: int = 0
    height: int = 0
    frame_rate: float = 0.0


class PictureFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Poster, sprite sheets and the WebVTT track that says which tile shows which time; `files` lists all of them."""

    files: tuple[str, ...]
    poster: str
    sprites: tuple[str, ...]
    track: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` counted in a finished output."""

    frames: int
    seconds: float
    segments: int
    bytes: int
    renditions: tuple[str, ...]
    decoded: bool
    """Whether frames were counted by decoding, not only by reading the containers."""
