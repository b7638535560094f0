"""Artifacts by recipe: found intact they are not made again; made, they are published once; corrupted, they go."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast_media.errors import CHECKSUM_MISMATCH, NOT_FOUND, OUTPUT_MISMATCH, MediaError
from holdfast_media.storage import Stored, sha256_of
from holdfast_media.storage.local import compare
from holdfast_media.storage.passing import Passing
from holdfast_media.tasks.context import MARKER
from holdfast_media.tasks.work import Marker, Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from holdfast_media.storage import Storage
    from holdfast_media.tasks.context import Context
    from holdfast_media.transcode import PackageFacts


_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""The name of a file, and nothing that leads elsewhere."""


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


@contextmanager
def lent(context: Context, key: str, sha256: str | None) -> Iterator[Path]:
    """Lend a file that a job has made, once it is known to be what that job said; raises NOT_FOUND, CHECKSUM_MISMATCH.

    Read for that once more than needed: what takes minutes to encode takes milliseconds to read, and a folder lends its own
    file, whatever became of it.
    """
    with context.storage.lend(key) as path:
        compare(key, sha256, sha256_of(path, Passing(0, None, context.stop)))
        yield path


def intact_package(context: Context, folder: str) -> Marker | None:
    """Return what is known of a package when all of its files are there, each with its SHA-256.

    One that is not is left as it is until it is made again: somebody may be watching what is whole of it.
    """
    marker = read_marker(context.storage, folder)
    if marker is None:
        return None
    sizes = {one.key: one.size for one in context.storage.list(folder)}
    # sizes first: they cost one question for all of them
    if all(sizes.get(f"{folder}{name}") == size for name, size in marker.sizes.items()) and all(
        context.storage.check(f"{folder}{name}", sha256=marker.sums.get(name)) for name in marker.sizes
    ):
        return marker
    context.job.log.warning("%s is not what was published there: it is made again", folder)
    return None


def write_note(context: Context, key: str, note: Note, folder: Path) -> None:
    """Say beside a chunk what encoded it, before it is there: so a chunk that is there has its note, whoever dies."""
    path = folder / "note.json"
    path.write_bytes(msgspec.json.encode(note))
    context.storage.put(key, path, overwrite=True)


def read_note(context: Context, key: str, stored: Stored) -> str:
    """Return what encoded a chunk; empty: nobody knows, or the note is about another one."""
    try:
        with context.storage.open(key) as file:
            note = msgspec.json.decode(file.read(), type=Note)
    except msgspec.MsgspecError:
        return ""
    except MediaError as error:
        if error.code == NOT_FOUND:
            return ""
        raise
    return note.encoder if note.sha256 == stored.sha256 else ""


def read_marker(storage: Storage, folder: str) -> Marker | None:
    """Return what is known of a package; `None`: it is not complete, or unreadable.

    That of the sound may come from a machine elsewhere: no name in it leads out of the folder.
    """
    try:
        with storage.open(f"{folder}{MARKER}") as file:
            marker = msgspec.json.decode(file.read(), type=Marker)
        facts = marker.facts
        plain = all(_PLAIN.fullmatch(name) for name in (facts.name, facts.playlist, *facts.files, *marker.sizes))
        return marker if plain and set(facts.files) == set(marker.sizes) else None
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
    sums: dict[str, str] = {}
    for number, name in enumerate(facts.files):
        path = work / name
        sizes[name] = path.stat().st_size
        sums[name] = _put_same(context, f"{folder}{name}", path)
        context.job.progress(50 + 50 * (number + 1) / len(facts.files))
        context.job.abort.check()
    marker = work / MARKER
    marker.write_bytes(msgspec.json.encode(Marker(facts=facts, sizes=sizes, sums=sums, encoder=encoder)))
    context.storage.put(f"{folder}{MARKER}", marker, overwrite=True)


def _put_same(context: Context, key: str, path: Path) -> str:
    digest = sha256_of(path)
    stored = context.storage.put(key, path, sha256=digest)
    if stored.created or (stored.sha256 == digest and context.storage.check(key)):
        return digest
    context.storage.put(key, path, sha256=digest, overwrite=True)
    return digest


def drop_package(storage: Storage, folder: str, names: Iterable[str] = ()) -> None:
    """Take a package out of use: first what says that it is complete, then its files."""
    storage.delete(f"{folder}{MARKER}")
    for name in names:
        storage.delete(f"{folder}{name}")


def borrow(stack: ExitStack, context: Context, target: Path, folders: Mapping[str, tuple[str, Iterable[str]]]) -> None:
    """Lay out packages below a local folder as the engine expects them, without copying what is local anyway.

    Raises OUTPUT_MISMATCH where a file is not there any more, or is not what was published.
    """
    for name, (prefix, files) in folders.items():
        (target / name).mkdir(parents=True, exist_ok=True)
        marker = read_marker(context.storage, prefix)
        for file in files:
            try:
                path = stack.enter_context(lent(context, f"{prefix}{file}", None if marker is None else marker.sums.get(file)))
            except MediaError as error:
                if error.code not in {CHECKSUM_MISMATCH, NOT_FOUND}:
                    raise
                raise MediaError(OUTPUT_MISMATCH, f"{name} is not what was packaged: {error.message}") from error
            (target / name / file).symlink_to(path.absolute())
