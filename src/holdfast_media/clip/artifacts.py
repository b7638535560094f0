"""Clips in the storage: found intact they are not made again, made they are published once, corrupted they go."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.clip import recipe
from holdfast_media.clip.cutting import CONTAINERS
from holdfast_media.clip.recipe import Manifest
from holdfast_media.errors import NOT_FOUND, MediaError
from holdfast_media.storage import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.clip.cutting import Cut
    from holdfast_media.storage import Storage, Stored

MANIFEST: Final = "clip.json"
SHA256: Final = re.compile(r"[0-9a-f]{64}")


def find(storage: Storage, folder: str) -> Manifest | None:
    """Return the clip in a folder when all of it is there and every byte is right; remove what is not."""
    manifest = _read(storage, folder)
    if manifest is None:
        return None
    stored = storage.head(manifest.key)
    if stored is not None and 0 < stored.size == manifest.size and storage.check(manifest.key, sha256=manifest.sha256):
        return manifest
    # what says that the clip is there goes first
    storage.delete(f"{folder}/{MANIFEST}")
    storage.delete(manifest.key)
    return None


def intact(storage: Storage, key: str) -> bool:
    """Tell whether a file is there with every byte right, by the SHA-256 the storage keeps; remove one that is not."""
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
    kept = stored.sha256 or digest  # not every storage keeps it; then only the same bytes are intact
    if stored.created or (stored.size and storage.check(key, sha256=kept)):
        return replace(stored, sha256=kept)
    stored = storage.put(key, path, sha256=digest, overwrite=True, on_progress=on_progress, before_publish=before_publish)
    return replace(stored, sha256=digest)


def describe(
    storage: Storage, folder: str, cut: Cut, stored: Stored, *, work: Path, before_publish: Callable[[], None]
) -> Manifest:
    """Put beside a clip what it holds. From now on it is found."""
    assert stored.sha256 is not None  # noqa: S101  `publish` says it
    manifest = Manifest(cut=cut, key=stored.key, size=stored.size, sha256=stored.sha256)
    work.write_bytes(msgspec.json.encode(manifest))
    storage.put(f"{folder}/{MANIFEST}", work, overwrite=True, before_publish=before_publish)
    return manifest


def _read(storage: Storage, folder: str) -> Manifest | None:
    try:
        with storage.open(f"{folder}/{MANIFEST}") as file:
            manifest = msgspec.json.decode(file.read(), type=Manifest)
        # it speaks of the clip beside it and of no other file: else whoever wrote it could have any file given out, or removed
        beside = {recipe.clip_key(folder, container) for container in CONTAINERS}
        return manifest if manifest.key in beside and SHA256.fullmatch(manifest.sha256) else None
    except msgspec.MsgspecError:
        return None
    except MediaError as error:
        if error.code == NOT_FOUND:
            return None
        raise
