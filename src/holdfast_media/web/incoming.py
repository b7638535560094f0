"""Uploads of people, in parts that are checked as they come, and that outlive reloads, lost connections and restarts.

What makes an upload the same one is who sends it and the name, the size and the time of change of the file: whoever chooses
that file again goes on where it broke off. Beside the parts (`holdfast_media.transfer.uploads`) lie

    ID/asked.json     what it is called, who sends it
    ID/published      the key that its content has in the storage, written before it is put there
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec
from uuid_utils import uuid7

from holdfast_media.errors import MediaError
from holdfast_media.storage import sha256_of
from holdfast_media.tasks import layout
from holdfast_media.transfer.uploads import SWEEP_EVERY, About, Uploads, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from holdfast_media.storage import Storage
    from holdfast_media.transfer import Limits
    from holdfast_media.transfer.uploads import Part

PART: Final = 8 * 1024 * 1024
LONGEST_NAME: Final = 200
PUBLISHED: Final = "published"


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """What a browser says before it sends a file."""

    name: str
    size: int
    modified: int
    """The file's time of change, in milliseconds."""
    title: str = ""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """An upload that was begun."""

    id: str
    key: str
    """What it will have in the storage."""
    name: str
    title: str
    size: int
    by: str
    about: About

    @property
    def reference(self) -> str:
        """The name by which the library knows what became of it."""
        return reference_of(self.id)


def reference_of(upload: str) -> str:
    """Return the name of an upload in the library, made of its id alone: so it is known when nothing else of it is left."""
    return f"upload:{upload}"


class Incoming:
    """The uploads of a server. Blocks: to be called in threads."""

    def __init__(self, folder: Path, limits: Limits, storage: Storage) -> None:
        self.limits = limits
        self._folder = folder
        self._storage = storage
        self._uploads = Uploads(folder, limits, keep=PUBLISHED)
        self._looked = -SWEEP_EVERY

    def most(self) -> int:
        """Return how many bytes a file may have now: by the limit, and by the room there is."""
        folder = self._folder
        while not folder.exists():
            folder = folder.parent
        status = os.statvfs(folder)
        rooms = [status.f_bavail * status.f_frsize, self._storage.free_bytes()]
        return min([self.limits.total, *(room for room in rooms if room is not None)])

    def begin(self, sending: Sending, by: str) -> tuple[Asked, list[int]]:
        """Begin an upload, or go on with it; returns it with the numbers of the parts that are there."""
        if not sending.name or sending.size <= 0:
            raise MediaError("TOO_LARGE", "an upload needs a name, and more than no bytes")
        about = self._about(sending, by)
        have = self._uploads.begin(about, by)
        path = self._folder / about.id / "asked.json"
        if not path.exists():
            name = sending.name[:LONGEST_NAME]
            asked = Asked(
                id=about.id,
                key=f"{layout.UPLOADS}{uuid7()}{_ending(name)}",
                name=name,
                title=(sending.title.strip() or PurePosixPath(name).stem or name)[:LONGEST_NAME],
                size=sending.size,
                by=by,
                about=about,
            )
            write(path, msgspec.json.encode(asked))
        return self.get(about.id, by), have

    def reference(self, sending: Sending, by: str) -> str:
        """Return the name in the library of what would become of a file."""
        return reference_of(self._about(sending, by).id)

    def _about(self, sending: Sending, by: str) -> About:
        same = msgspec.json.encode([by, sending.name, sending.size, sending.modified])
        digest = hashlib.sha256(same).hexdigest()
        part = PART
        while -(-sending.size // part) > self.limits.parts:
            part *= 2
        return About(key=f"{layout.UPLOADS}{digest}", size=sending.size, sha256=digest, part_size=part)

    def get(self, upload: str, by: str) -> Asked:
        """Return an upload of this person; `NOT_FOUND`: there is none."""
        about = self._uploads.about(upload)
        try:
            asked = msgspec.json.decode((self._folder / about.id / "asked.json").read_bytes(), type=Asked)
        except (OSError, msgspec.MsgspecError):
            asked = None
        if asked is None or asked.by != by:
            raise MediaError(
                "NOT_FOUND", "this upload is not known: it is complete, or was left alone for too long. Begin it again"
            )
        return asked

    def part(self, asked: Asked, number: int, sha256: str) -> Part:
        """Return what a part is written with."""
        return self._uploads.part(asked.about, number, sha256)

    def have(self, asked: Asked) -> list[int]:
        """Return the numbers of the parts that are there."""
        return self._uploads.have(asked.about)

    @contextmanager
    def publishing(self, asked: Asked) -> Iterator[str]:
        """Put a complete upload into the storage, and be alone with it until the block ends; gives its key.

        Repeatable until it is discarded.
        """
        with self._uploads.whole(asked.about) as path:
            if path.exists():
                digest = sha256_of(path)
                write(path.with_name(PUBLISHED), asked.key.encode())
                self._storage.put(asked.key, path, sha256=digest, consume=True)
            yield asked.key

    def alone(self, asked: Asked) -> AbstractContextManager[None]:
        """Keep everybody else away from an upload; raises `Busy` where somebody writes to it."""
        return self._uploads.alone(asked.about)

    def discard(self, asked: Asked) -> None:
        """Forget an upload, but for what is in the storage."""
        self._uploads.discard(asked.about)

    def drop(self, asked: Asked) -> None:
        """Forget an upload, and what of it is in the storage."""
        self._storage.delete(asked.key)
        self.discard(asked)

    def open(self, by: str) -> list[tuple[Asked, int]]:
        """Return the uploads of a person that are not complete, each with the bytes that are there."""
        found = []
        for folder in self._folders():
            with suppress(MediaError):
                asked = self.get(folder.name, by)
                have = sum(asked.about.size_of(number) for number in self.have(asked))
                found.append((asked, have))
        return found

    def abandoned(self) -> list[Asked]:
        """Return uploads that reached the storage and that nobody goes on with; looks once a minute at most.

        Whether they are titles is for the library to say. The others are swept when another one is begun.
        """
        if time.monotonic() - self._looked < SWEEP_EVERY:
            return []
        self._looked = time.monotonic()
        oldest = time.time() - self.limits.idle
        found = []
        for folder in self._folders():
            with suppress(OSError, msgspec.MsgspecError):
                if folder.stat().st_mtime < oldest and (folder / PUBLISHED).exists():
                    found.append(msgspec.json.decode((folder / "asked.json").read_bytes(), type=Asked))
        return found

    def _folders(self) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            yield from sorted(path for path in self._folder.iterdir() if path.is_dir())


def _ending(name: str) -> str:
    ending = PurePosixPath(name).suffix.lower()
    return ending if re.fullmatch(r"[.][a-z0-9]{1,8}", ending) else ""
