"""Artifacts by recipe: found intact they are not made again; made, they are published once; corrupted, they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast_media.errors import NOT_FOUND, MediaError
from holdfast_media.storage import Stored, sha256_of
from holdfast_media.tasks.context import MARKER
from holdfast_media.tasks.work import Marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from holdfast_media.storage import Storage
    from holdfast_media.tasks.context import Context
    from holdfast_media.transcode import PackageFacts


def intact(context: Context, key: str) -> Stored | None:
    """Return what is under a key when it is whole; what is not is deleted, so that it can be made again."""
    found = context.storage.head(key)
    if found is None:
        return None
    if found.size and context.storage.check(key):
        return found
    context.job.log.warning("%s is not what was published there: it is made again", key)
    context.storage.delete(key)
    return None


def intact_package(context: Context, folder: str) -> Marker | None:
    """Return what is known of a package when all of its files are there, each as large as it was."""
    marker = read_marker(context.storage, folder)
    if marker is None:
        return None
    sizes = {one.key: one.size for one in context.storage.list(folder)}
    if all(sizes.get(f"{folder}{name}") == size for name, size in marker.sizes.items()):
        return marker
    context.job.log.warning("%s is not complete: it is made again", folder)
    drop_package(context.storage, folder, marker.sizes)
    return None


def read_marker(storage: Storage, folder: str) -> Marker | None:
    """Return what is known of a package; `None`: it is not complete, or unreadable."""
    try:
        with storage.open(f"{folder}{MARKER}") as file:
            return msgspec.json.decode(file.read(), type=Marker)
    except msgspec.MsgspecError:
        return None
    except MediaError as error:
        if error.code == NOT_FOUND:
            return None
        raise


def publish_package(context: Context, folder: str, work: Path, facts: PackageFacts, *, encoder: str = "") -> None:
    """Put the files of a package into the storage, and last what says that they are all there.

    Packaging is copying: the same chunks give the same bytes. So what somebody else has put there is what we would have put,
    and whatever differs is left from something that broke.
    """
    sizes: dict[str, int] = {}
    for number, name in enumerate(facts.files):
        path = work / name
        sizes[name] = path.stat().st_size
        _put_same(context, f"{folder}{name}", path)
        context.job.progress(50 + 50 * (number + 1) / len(facts.files))
        context.job.abort.check()
    marker = work / MARKER
    marker.write_bytes(msgspec.json.encode(Marker(facts=facts, sizes=sizes, encoder=encoder)))
    context.storage.put(f"{folder}{MARKER}", marker, overwrite=True)


def _put_same(context: Context, key: str, path: Path) -> None:
    digest = sha256_of(path)
    stored = context.storage.put(key, path, sha256=digest)
    if stored.created or (stored.sha256 == digest and context.storage.check(key)):
        return
    context.storage.put(key, path, sha256=digest, overwrite=True)


def drop_package(storage: Storage, folder: str, names: Iterable[str] = ()) -> None:
    """Take a package out of use: first what says that it is complete, then its files."""
    storage.delete(f"{folder}{MARKER}")
    for name in names:
        storage.delete(f"{folder}{name}")


def borrow(stack: ExitStack, context: Context, target: Path, folders: Mapping[str, tuple[str, Iterable[str]]]) -> None:
    """Lay out packages below a local folder as the engine expects them, without copying what is local anyway."""
    for name, (prefix, files) in folders.items():
        (target / name).mkdir(parents=True, exist_ok=True)
        for file in files:
            path = stack.enter_context(context.storage.lend(f"{prefix}{file}"))
            (target / name / file).symlink_to(path.absolute())
