"""What travels between the jobs of a transcode: their args, their results, and the plan that a version keeps."""

from __future__ import annotations

import msgspec

from holdfast_media.ladder import Rendition, Rung
from holdfast_media.library import SourceRef
from holdfast_media.transcode import Chunk, PackageFacts, PictureFacts, Plan


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The source as jobs find it, and how they know that it is still the same."""

    ref: SourceRef
    identity: str
    size: int
    modified: int | None = None
    """Of a file: its time of change in nanoseconds. Where that differs, the content is read and compared."""


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """One quality that is made: where its chunks and its playlist go."""

    rendition: Rendition
    chunks: tuple[str, ...]
    """Keys, in the order of the plan."""
    folder: str
    """Of the playlist and its segments: a prefix of keys."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """One quality that is taken over: from the version before, or because it is there, intact and of the same recipe."""

    rendition: Rendition
    folder: str
    facts: PackageFacts
    encoder: str = ""


class VersionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that is done for a version. Kept with it, so that no job has to work it out again."""

    origin: Origin
    plan: Plan
    """With all renditions, those that are taken over too."""
    rungs: tuple[Rung, ...] = ()
    """The ladder that they were chosen from, for who has some of them made anew."""
    making: tuple[Making, ...]
    taken: tuple[Taken, ...] = ()
    sound: str | None = None
    """The key of the encoded sound; `None`: there is none."""
    audio_folder: str | None = None
    pictures_folder: str | None = None
    pictures: PictureFacts | None = None
    captions: str | None = None
    """The key of what is to be written down of what is said, as WebVTT."""
    captions_before: str | None = None
    """The key of what was written down for the version before, of the same source."""

    @property
    def folders(self) -> set[str]:
        """The prefixes of all packages and of the pictures."""
        found = {one.folder for one in self.making} | {one.folder for one in self.taken}
        return found | {one for one in (self.audio_folder, self.pictures_folder) if one is not None}

    def making_of(self, name: str) -> Making:
        """Return the quality of this name."""
        return next(one for one in self.making if one.rendition.name == name)


class Twin(msgspec.Struct, frozen=True, kw_only=True):
    """The same chunk in another quality."""

    rendition: Rendition
    key: str
    note: str


class EncodeWork(msgspec.Struct, frozen=True, kw_only=True):
    """The args of `media.encode`: all it needs, because it may run where there is no database."""

    video_id: str
    version_id: str
    origin: Origin
    plan: Plan
    """With this chunk alone, in this rendition and in those of its twins."""
    rendition: Rendition
    chunk: Chunk
    key: str
    note: str
    """The key of what is said about it: what encoded it."""
    twins: tuple[Twin, ...] = ()
    """What is encoded along with it, for the source is decoded once then. Each has a job of its own, which comes after this."""
    begun: int = 0
    """How often jobs before this one have begun to encode it: what those have made was lost."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Lies beside a chunk: what really encoded it, for those who use it again."""

    sha256: str
    """Of the chunk that it is about."""
    encoder: str


class EncodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """One chunk that is in the storage."""

    key: str
    frames: int
    bytes: int
    sha256: str
    encoder: str
    """What really encoded it; empty where nobody knows."""
    seconds: float = 0.0
    """Of wall time that encoding took."""
    reused: bool = False
    begun: int = 1
    """How often ffmpeg was begun for it: all but the last time in vain. Attempts that came to nothing before do not count."""
    along: tuple[str, ...] = ()
    """The keys of twins that were encoded along with it."""


class AudioWork(msgspec.Struct, frozen=True, kw_only=True):
    """The args of `media.audio`."""

    video_id: str
    version_id: str
    origin: Origin
    plan: Plan
    """Without chunks and renditions."""
    key: str
    folder: str


class AudioResult(msgspec.Struct, frozen=True, kw_only=True):
    """The sound as a playlist."""

    facts: PackageFacts
    reused: bool = False
    begun: int = 1
    """How often ffmpeg was begun for it."""


class PackageResult(msgspec.Struct, frozen=True, kw_only=True):
    """One quality as a playlist, and what became of its chunks."""

    name: str
    facts: PackageFacts
    folder: str
    encoder: str
    """What encoded it; several are joined by `+`."""
    chunks: int
    reused: int
    redone: tuple[int, ...]
    """The numbers of the chunks whose encode was begun more than once."""


class FinalResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a version ended."""

    state: str
    code: str | None = None
    message: str | None = None
    """Why it failed; of one that is ready: why it has no subtitles, though they were asked for."""
    master: str | None = None
    """The key of the version's own master playlist."""
    frames: int = 0
    seconds: float = 0.0
    bytes: int = 0
    segments: int = 0
    chunks: int = 0
    """Of the film."""
    redone: int = 0
    """Chunks that were begun more than once, in whichever quality."""
    encodes: int = 0
    """Each chunk in each quality that was made."""
    reused: int = 0
    """Encodes that were there already."""
    qualities: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Optional qualities that did not come about."""
    captions: str | None = None
    poster: str | None = None
    track: str | None = None
    """The key of the WebVTT track of the sprite sheets."""


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """Lies beside a package, put there last: so a folder that has one is complete."""

    facts: PackageFacts
    sizes: dict[str, int]
    sums: dict[str, str] = {}
    """The SHA-256 of each file."""
    encoder: str = ""
