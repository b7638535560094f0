"""Why media work failed: one exception, one table of codes.

`MediaError.retryable` says whether another attempt can help. What is wrong with the input stays wrong, so every `INPUT_…` is
fatal. Messages and details never show a path outside the scratch folder (see `holdfast_media.ffmpeg.redact`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# -- the input -------------------------------------------------------------------------------------------------------------
INPUT_MISSING: Final = "INPUT_MISSING"
INPUT_EMPTY: Final = "INPUT_EMPTY"
INPUT_UNREADABLE: Final = "INPUT_UNREADABLE"
INPUT_UNSUPPORTED: Final = "INPUT_UNSUPPORTED"
INPUT_NO_MEDIA: Final = "INPUT_NO_MEDIA"
INPUT_TRUNCATED: Final = "INPUT_TRUNCATED"
INPUT_DAMAGED: Final = "INPUT_DAMAGED"
INPUT_TOO_LARGE: Final = "INPUT_TOO_LARGE"
INPUT_CHANGED: Final = "INPUT_CHANGED"
# -- the settings ----------------------------------------------------------------------------------------------------------
LADDER_INVALID: Final = "LADDER_INVALID"
PLAN_INVALID: Final = "PLAN_INVALID"
# -- the machine -----------------------------------------------------------------------------------------------------------
FFMPEG_MISSING: Final = "FFMPEG_MISSING"
FFMPEG_UNSUITABLE: Final = "FFMPEG_UNSUITABLE"
DISK_FULL: Final = "DISK_FULL"
PROBE_FAILED: Final = "PROBE_FAILED"
# -- the work --------------------------------------------------------------------------------------------------------------
ENCODE_FAILED: Final = "ENCODE_FAILED"
ENCODE_KILLED: Final = "ENCODE_KILLED"
ENCODE_STALLED: Final = "ENCODE_STALLED"
ENCODE_TIMEOUT: Final = "ENCODE_TIMEOUT"
OUTPUT_EMPTY: Final = "OUTPUT_EMPTY"
OUTPUT_MISMATCH: Final = "OUTPUT_MISMATCH"
CHUNK_LOST: Final = "CHUNK_LOST"
# -- clips, storage and what lies upstream ---------------------------------------------------------------------------------
STORAGE_UPLOAD_FAILED: Final = "STORAGE_UPLOAD_FAILED"
STORAGE_READ_FAILED: Final = "STORAGE_READ_FAILED"
CHECKSUM_MISMATCH: Final = "CHECKSUM_MISMATCH"
NOT_FOUND: Final = "NOT_FOUND"
BAD_KEY: Final = "BAD_KEY"
BAD_CHECKSUM: Final = "BAD_CHECKSUM"
BAD_STORAGE: Final = "BAD_STORAGE"
BAD_ARCHIVE: Final = "BAD_ARCHIVE"
ACCESS_DENIED: Final = "ACCESS_DENIED"
NO_SUCH_BUCKET: Final = "NO_SUCH_BUCKET"
STALE_LEASE: Final = "STALE_LEASE"
TOO_LARGE: Final = "TOO_LARGE"
YTDLP_TIMEOUT: Final = "YTDLP_TIMEOUT"
CLIP_TIMEOUT: Final = "CLIP_TIMEOUT"
UPSTREAM_FAILURE: Final = "UPSTREAM_FAILURE"
INTERNAL_TRANSIENT: Final = "INTERNAL_TRANSIENT"
BAD_SOURCE: Final = "BAD_SOURCE"
BAD_RANGE: Final = "BAD_RANGE"
FAST_IMPOSSIBLE: Final = "FAST_IMPOSSIBLE"
ADDRESS_REFUSED: Final = "ADDRESS_REFUSED"
SOURCE_NOT_FOUND: Final = "SOURCE_NOT_FOUND"
SOURCE_REFUSED: Final = "SOURCE_REFUSED"
SOURCE_TOO_LARGE: Final = "SOURCE_TOO_LARGE"
YTDLP_MISSING: Final = "YTDLP_MISSING"
YTDLP_FAILED: Final = "YTDLP_FAILED"
SPEECH_MISSING: Final = "SPEECH_MISSING"
SPEECH_FAILED: Final = "SPEECH_FAILED"


class Code(NamedTuple):
    """What a code says about the failure, and whether another attempt can help."""

    retryable: bool
    meaning: str


CODES: Final[Mapping[str, Code]] = MappingProxyType(
    {
        INPUT_MISSING: Code(retryable=False, meaning="there is no such file, or it may not be read"),
        INPUT_EMPTY: Code(retryable=False, meaning="the file has no bytes"),
        INPUT_UNREADABLE: Code(retryable=False, meaning="no media file, or one so broken that reading it fails or crashes"),
        INPUT_UNSUPPORTED: Code(retryable=False, meaning="a kind of file or stream that is refused, such as a playlist"),
        INPUT_NO_MEDIA: Code(retryable=False, meaning="a container without a usable picture or sound"),
        INPUT_TRUNCATED: Code(retryable=False, meaning="the file ends before what its header promises"),
        INPUT_DAMAGED: Code(retryable=False, meaning="parts of the file do not decode"),
        INPUT_TOO_LARGE: Code(retryable=False, meaning="the picture is larger, or takes more memory, than what is accepted"),
        INPUT_CHANGED: Code(retryable=False, meaning="the file is not the one that was probed"),
        LADDER_INVALID: Code(retryable=False, meaning="a ladder file that cannot be used"),
        PLAN_INVALID: Code(retryable=False, meaning="chunk or segment lengths that cannot be used"),
        FFMPEG_MISSING: Code(retryable=False, meaning="no ffmpeg on this machine"),
        FFMPEG_UNSUITABLE: Code(retryable=False, meaning="this ffmpeg lacks an encoder that is needed"),
        DISK_FULL: Code(retryable=True, meaning="no space left where the output goes"),
        PROBE_FAILED: Code(
            retryable=True, meaning="the reading process could not start, was killed from outside, or not done in time"
        ),
        ENCODE_FAILED: Code(retryable=False, meaning="ffmpeg ended with an error that is not the input's"),
        ENCODE_KILLED: Code(retryable=True, meaning="ffmpeg was ended by a signal, as by the kernel short of memory"),
        ENCODE_STALLED: Code(retryable=True, meaning="ffmpeg stood still and was killed"),
        ENCODE_TIMEOUT: Code(retryable=True, meaning="ffmpeg took longer than it may and was killed"),
        OUTPUT_EMPTY: Code(retryable=True, meaning="ffmpeg ended well and left nothing"),
        OUTPUT_MISMATCH: Code(retryable=True, meaning="the output has other frames, or another length, than the source"),
        CHUNK_LOST: Code(retryable=False, meaning="an encoded chunk was missing or damaged, and the one made in its place too"),
        STORAGE_UPLOAD_FAILED: Code(retryable=True, meaning="the storage did not take the file"),
        STORAGE_READ_FAILED: Code(retryable=True, meaning="the storage did not give the file"),
        CHECKSUM_MISMATCH: Code(retryable=True, meaning="the bytes are not those of the SHA-256"),
        NOT_FOUND: Code(retryable=False, meaning="nothing is stored under the key"),
        BAD_KEY: Code(retryable=False, meaning="a key that could leave the storage, or is none"),
        BAD_CHECKSUM: Code(retryable=False, meaning="what should be a SHA-256 is none"),
        BAD_STORAGE: Code(retryable=False, meaning="a storage that cannot be used as it is set up"),
        BAD_ARCHIVE: Code(retryable=False, meaning="an archive that is broken, or tries what is refused"),
        ACCESS_DENIED: Code(retryable=False, meaning="the storage does not let this process in, or not do this"),
        NO_SUCH_BUCKET: Code(retryable=False, meaning="the bucket is not there"),
        STALE_LEASE: Code(retryable=False, meaning="the attempt does not hold the job any more; nothing was published"),
        TOO_LARGE: Code(retryable=False, meaning="more bytes, parts or files than are taken"),
        YTDLP_TIMEOUT: Code(retryable=True, meaning="yt-dlp took longer than it may and was killed"),
        CLIP_TIMEOUT: Code(retryable=True, meaning="cutting the clip took longer than it may"),
        UPSTREAM_FAILURE: Code(retryable=True, meaning="the place the source comes from failed"),
        INTERNAL_TRANSIENT: Code(retryable=True, meaning="a failure on our side that may pass"),
        BAD_SOURCE: Code(retryable=False, meaning="what should be cut is neither a file that may be read nor an address"),
        BAD_RANGE: Code(retryable=False, meaning="there is nothing between the two times"),
        FAST_IMPOSSIBLE: Code(retryable=False, meaning="this source cannot be cut without encoding it"),
        ADDRESS_REFUSED: Code(retryable=False, meaning="a private or local address that is not allowed"),
        SOURCE_NOT_FOUND: Code(retryable=False, meaning="there is nothing at the address"),
        SOURCE_REFUSED: Code(retryable=False, meaning="the server does not give the source out, or not safely"),
        SOURCE_TOO_LARGE: Code(retryable=False, meaning="the source has more bytes than are fetched"),
        YTDLP_MISSING: Code(retryable=False, meaning="the address is a web page, and yt-dlp is not installed"),
        YTDLP_FAILED: Code(retryable=False, meaning="yt-dlp found no video, or gave up"),
        SPEECH_MISSING: Code(retryable=False, meaning="no speech recognition here, or not its model"),
        SPEECH_FAILED: Code(retryable=False, meaning="speech recognition gave up on this file"),
    }
)
"""Every code there is."""


class MediaError(Exception):
    """Media work failed: `code` is one of `CODES`, `message` says what happened, why, and what to do.

    `detail` holds the end of what a program wrote, and `said_by` is who that was; it is in no message, for it is for the one
    who looks closer.
    """

    def __init__(self, code: str, message: str, *, detail: str = "", said_by: str = "ffmpeg") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.detail = detail
        self.said_by = said_by

    @property
    def retryable(self) -> bool:
        """Whether another attempt can help."""
        return CODES[self.code].retryable

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (type(self), self.code, self.message, self.detail, self.said_by))


class Stopped(Exception):
    """The caller's `stop()` gave a reason, and the work has ended: its processes are gone, its output is partial."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _rebuilt(kind: type[MediaError], code: str, message: str, detail: str, said_by: str) -> MediaError:
    """Make the error again on the far side of a process: plain pickling would lose the options."""
    return kind(code, message, detail=detail, said_by=said_by)
