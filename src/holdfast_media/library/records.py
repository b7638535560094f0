"""Videos, versions and qualities as people and programs see them. All are read-only."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast_media.ladder import Rung
from holdfast_media.library.states import ACTIVE, QualityState, VersionState, VideoState

if TYPE_CHECKING:
    from collections.abc import Sequence


class SourceRef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the source of a video is: a file that every worker sees, or a key of the storage."""

    path: str | None = None
    key: str | None = None
    copy: bool = False
    """Whether the file at `path` is copied into the storage first, so that workers elsewhere can have it."""

    @property
    def shown(self) -> str:
        """What it is called in lists."""
        return self.path or self.key or "?"


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked for when a version was asked for; whatever is not said here is as the settings say."""

    ladder: str | None = None
    """What it is called: `default`, or a file; for people."""
    rungs: tuple[Rung, ...] | None = None
    """What it said when it was asked for: that counts, whatever becomes of the file, and wherever the workers are."""
    qualities: tuple[str, ...] | None = None
    """Only these; the others are taken over from the published version."""
    chunk_seconds: float | None = None
    cut: int | None = None
    """The seconds of its chunks, once it was planned: so a retry, whatever is usual by then, finds what is done."""
    transcribe: bool = False
    """Whether what is said is written down anew, too."""
    fresh: bool = False
    """Whether everything is encoded again, also what is there and intact."""


class JobIds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The jobs of a version, so that pages can show where each stands."""

    prepare: str
    encode: dict[str, tuple[str, ...]] = {}
    """By quality, one for each chunk, in their order."""
    audio: str | None = None
    package: dict[str, str] = {}
    """By quality."""
    transcribe: str | None = None
    finalize: str | None = None
    before: tuple[str, ...] = ()
    """Jobs of a try before this one that may not have ended yet."""
    together: bool = False
    """Whether the encodes of the first quality make all of them, and the others come after those."""

    @property
    def driving(self) -> str:
        """The job that will end the version; when it has ended otherwise, nobody will."""
        return self.finalize or self.prepare

    @property
    def waiting_first(self) -> list[str]:
        """All of them, those that wait for others first: canceled in this order none starts because another has ended."""
        encode = [one for ids in self.encode.values() for one in ids]
        maybe = [
            self.finalize,
            *self.package.values(),
            self.transcribe,
            self.audio,
            *reversed(encode),
            self.prepare,
            *self.before,
        ]
        return [one for one in maybe if one is not None]


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """One quality of a version."""

    name: str
    state: QualityState
    required: bool
    facts: dict[str, Any]
    """What it is to be: width, height, bit rates."""
    result: dict[str, Any] | None = None
    """What came of it: the key of its playlist, bytes, segments, what encoded it, how many chunks were reused."""
    code: str | None = None
    message: str | None = None


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One transcode of a video."""

    id: str
    video_id: str
    number: int
    state: VersionState
    asked: Asked
    jobs: JobIds
    plan: dict[str, Any] | None = None
    code: str | None = None
    """Why it failed or was canceled, for programs."""
    message: str | None = None
    """The same for people."""
    result: dict[str, Any] | None = None
    """What was published: the key of the master playlist, frames, chunks, how many of them were done twice."""
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    qualities: tuple[Quality, ...] = ()

    @property
    def active(self) -> bool:
        """Whether somebody works on it, or will."""
        return self.state in ACTIVE


class Video(msgspec.Struct, frozen=True, kw_only=True):
    """A video of the library."""

    id: str
    title: str
    state: VideoState
    source: SourceRef
    reference: str | None = None
    facts: dict[str, Any] | None = None
    """What the probe found: duration, size, codecs. `None` before that."""
    published: str | None = None
    """The id of the version that it plays."""
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    versions: tuple[Version, ...] = ()
    """Newest first; of a video in a list only the newest."""

    @property
    def newest(self) -> Version | None:
        """The version that was asked for last."""
        return self.versions[0] if self.versions else None

    @property
    def plays(self) -> Version | None:
        """The version that it plays."""
        return next((one for one in self.versions if one.id == self.published), None)

    @property
    def error(self) -> str | None:
        """Why its newest version did not come about, if that is so."""
        newest = self.newest
        if newest is None or newest.state is not VersionState.FAILED:
            return None
        return f"{newest.code}: {newest.message}"


VIDEO_COLUMNS = "v.id, v.title, v.state, v.source, v.reference, v.facts, v.published, v.created_at, v.updated_at, v.deleted_at"
VERSION_COLUMNS = (
    "n.id, n.video_id, n.number, n.state, n.asked, n.jobs, n.plan, n.code, n.message, n.result, "
    "n.created_at, n.updated_at, n.finished_at"
)
QUALITY_COLUMNS = "q.version_id, q.name, q.state, q.required, q.facts, q.result, q.code, q.message"


def video_of(row: Sequence[Any], versions: tuple[Version, ...] = ()) -> Video:
    """Return a video from `VIDEO_COLUMNS`."""
    return Video(
        id=row[0],
        title=row[1],
        state=VideoState(row[2]),
        source=msgspec.json.decode(row[3], type=SourceRef),
        reference=row[4],
        facts=_json(row[5]),
        published=row[6],
        created_at=moment(row[7]),
        updated_at=moment(row[8]),
        deleted_at=None if row[9] is None else moment(row[9]),
        versions=versions,
    )


def version_of(row: Sequence[Any], qualities: tuple[Quality, ...] = ()) -> Version:
    """Return a version from `VERSION_COLUMNS`."""
    return Version(
        id=row[0],
        video_id=row[1],
        number=row[2],
        state=VersionState(row[3]),
        asked=msgspec.json.decode(row[4], type=Asked),
        jobs=msgspec.json.decode(row[5], type=JobIds),
        plan=_json(row[6]),
        code=row[7],
        message=row[8],
        result=_json(row[9]),
        created_at=moment(row[10]),
        updated_at=moment(row[11]),
        finished_at=None if row[12] is None else moment(row[12]),
        qualities=qualities,
    )


def quality_of(row: Sequence[Any]) -> Quality:
    """Return a quality from `QUALITY_COLUMNS`."""
    return Quality(
        name=row[1],
        state=QualityState(row[2]),
        required=bool(row[3]),
        facts=_json(row[4]) or {},
        result=_json(row[5]),
        code=row[6],
        message=row[7],
    )


def _json(text: str | None) -> dict[str, Any] | None:
    value: dict[str, Any] | None = None if text is None else msgspec.json.decode(text)
    return value


def text_of(value: object) -> str:
    """Return a value as the JSON text that a column holds."""
    return msgspec.json.encode(value).decode()


def now_text() -> str:
    """Return this moment as a column holds it: ISO 8601, UTC, to the microsecond, so that texts sort by time."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str) -> datetime:
    """Return the moment that a column holds."""
    return datetime.fromisoformat(text)
