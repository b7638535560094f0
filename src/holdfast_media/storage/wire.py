"""What the client of a server and its transfer routes say to each other."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast_media.storage.port import Stored

ROOT: Final = "/media/v1"
"""Where the routes are, below the server's own URL."""
JOB: Final = "Holdfast-Job"
ATTEMPT: Final = "Holdfast-Attempt"
TOKEN: Final = "Holdfast-Token"  # noqa: S105  the name of a header
SHA256: Final = "Holdfast-Sha256"


class StoredInfo(msgspec.Struct, frozen=True):
    """What is under a key."""

    key: str
    size: int
    sha256: str | None
    modified: datetime
    etag: str
    content_type: str
    created: bool = False

    @classmethod
    def of(cls, stored: Stored) -> StoredInfo:
        """Return it as it is told."""
        return cls(stored.key, stored.size, stored.sha256, stored.modified, stored.etag, stored.content_type, stored.created)

    def stored(self) -> Stored:
        """Return what was told."""
        return Stored(
            key=self.key,
            size=self.size,
            sha256=self.sha256,
            modified=self.modified,
            etag=self.etag,
            content_type=self.content_type,
            created=self.created,
        )


class BeginRequest(msgspec.Struct, frozen=True):
    """What is to be uploaded. `kind="archive"`: files that are published below `key` as a folder."""

    key: str
    size: int
    sha256: str
    part_size: int
    kind: Literal["file", "archive"] = "file"
    content_type: str | None = None
    overwrite: bool = False


class UploadAnswer(msgspec.Struct, frozen=True):
    """How far an upload is. `stored`: it is there already, and there is nothing to send."""

    upload: str | None = None
    parts: int = 0
    part_size: int = 0
    have: list[int] = []
    stored: StoredInfo | None = None


class CompleteAnswer(msgspec.Struct, frozen=True):
    """What was published."""

    files: list[StoredInfo]


class ListAnswer(msgspec.Struct, frozen=True):
    """A page of keys; `after` is where the next one begins."""

    files: list[StoredInfo]
    after: str | None = None


class CheckRequest(msgspec.Struct, frozen=True):
    """What is to be read and compared."""

    key: str
    sha256: str | None = None


class CheckAnswer(msgspec.Struct, frozen=True):
    """Whether it is what it should be."""

    intact: bool


class RoomAnswer(msgspec.Struct, frozen=True):
    """How much fits, and how much is taken at once."""

    free_bytes: int | None
    part: int
    total: int


class Problem(msgspec.Struct, frozen=True):
    """Why a request was refused, in the shape of Holdfast's HTTP API."""

    error: str
    message: str
    fix: str = ""
