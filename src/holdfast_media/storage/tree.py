"""Whole folders: many files below one prefix, what names others last."""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from holdfast_media.errors import MediaError
from holdfast_media.storage.keys import checked_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast_media.storage.port import BeforePublish, OnProgress, Storage, Stored

PLAYLISTS: Final = frozenset({".m3u8", ".mpd"})


def publishing_order(keys: Iterable[str]) -> list[str]:
    """Return keys in the order in which they are published: playlists last, those of the top after those that they name."""
    return sorted(keys, key=lambda key: (PurePosixPath(key).suffix.lower() in PLAYLISTS, -key.count("/"), key))


def put_tree(
    storage: Storage,
    prefix: str,
    folder: Path,
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    before_publish: BeforePublish | None = None,
) -> Sequence[Stored]:
    """Publish every file of a folder below a prefix, each as `Storage.put` does, playlists last.

    Through a server they travel as one archive. Links and devices in the folder are refused with `BAD_ARCHIVE`. Repeatable:
    what is there already stays.
    """
    files = dict(_files(folder, checked_key(prefix.removesuffix("/"))))
    in_one = getattr(storage, "put_archive", None)
    if in_one is not None:
        with tempfile.TemporaryDirectory(prefix="holdfast-media-") as scratch:
            archive = Path(scratch) / "files.tar"
            _pack(archive, files, prefix.removesuffix("/"))
            published: Sequence[Stored] = in_one(
                prefix, archive, overwrite=overwrite, on_progress=on_progress, before_publish=before_publish
            )
            return published
    total = sum(path.stat().st_size for path in files.values()) or 1
    found: list[Stored] = []
    passed = 0
    for key in publishing_order(files):
        found.append(storage.put(key, files[key], overwrite=overwrite, before_publish=before_publish))
        passed += found[-1].size
        if on_progress is not None:
            on_progress(min(1.0, passed / total))
    return found


def _files(folder: Path, prefix: str) -> Iterable[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise MediaError("BAD_ARCHIVE", f"{path.name!r} is a link or a device: only files and folders are published")
        if path.is_file():
            yield checked_key(f"{prefix}/{path.relative_to(folder).as_posix()}"), path


def _pack(archive: Path, files: dict[str, Path], prefix: str) -> None:
    """Write a tar that depends on nothing but names and contents: a later attempt goes on with the parts that are there."""
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for key in publishing_order(files):
            entry = tarfile.TarInfo(key.removeprefix(f"{prefix}/"))
            entry.size = os.stat(files[key]).st_size  # noqa: PTH116  one word for one fact
            with files[key].open("rb") as content:
                tar.addfile(entry, content)
