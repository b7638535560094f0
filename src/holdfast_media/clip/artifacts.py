"""Clips in the storage: found intact they are not made again, made they are published once, corrupted they go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.clip.recipe import Manifest
from holdfast_media.errors import NOT_FOUND, MediaError
from holdfast_media.storage import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.clip.cutting import Cut
    from holdfast_media.storage import Storage, Stored

MANIFEST: Final = "clip.json"


def find(storage: Storage, folder: str) -> Manifest | None:
    """Return the clip in a folder when all of it is there and every byte is right; remove what is not."""
    manifest = _read(storage, folder)
    if manifest is None:
        return None
    stored = storage.head(manifest.key)
    if (
        stored is not None
        and (stored.size, stored.sha256) == (manifest.size, manifest.sha256)
        and stored.size
        and storage.check(manifest.key)
    ):
        return manifest
    # what says that the clip is there goes first
    storage.delete(f"{folder}/{MANIFEST}")
    storage.delete(manifest.key)
    return None


def intact(storage: Storage, key: str) -> bool:
    """Tell whether a file is there with every byte right; remove one that is not."""
    stored = storage.head(key)
    if stored is None:
        return False
    if stored.size and storage.check(key):
        return True
    storage.delete(key)
    return False


def publish(
    storage: Storage,
    key: str,
    path: Path,
    *,
    on_progress: Callable[[float], None] = lambda _: None,
    before_publish: Callable[[], None],
) -> Stored:
    """Put a file into the storage where there is none yet; returns what is there then.

    One that was there before stays when it is intact: it was made by the same recipe. One that is not is replaced.
    """
    digest = sha256_of(path)
    stored = storage.put(key, path, sha256=digest, on_progress=on_progress, before_publish=before_publish)
    if stored.created or (stored.sha256 is not None and stored.size and storage.check(key)):
        return stored
    return storage.put(key, path, sha256=digest, overwrite=True, on_progress=on_progress, before_publish=before_publish)


def describe(
    storage: Storage, folder: str, cut: Cut, stored: Stored, *, work: Path, before_publish: Callable[[], None]
) -> Manifest:
    """Put beside a clip what it holds. From now on it is found."""
    manifest = Manifest(cut=cut, key=stored.key, size=stored.size, sha256=stored.sha256 or "")
    work.write_bytes(msgspec.json.encode(manifest))
    storage.put(f"{folder}/{MANIFEST}", work, overwrite=True, before_publish=before_publish)
    return manifest


def _read(storage: Storage, folder: str) -> Manifest | None:
    try:
        with storage.open(f"{folder}/{MANIFEST}") as file:
            return msgspec.json.decode(file.read(), type=Manifest)
    except msgspec.MsgspecError:
        return None
    except MediaError as error:
        if error.code == NOT_FOUND:
            return None
        raise
