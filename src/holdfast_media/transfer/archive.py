"""Unpacking archives of strangers: tar, tar.gz and zip.

Every file is written under a number into a folder of ours; its name in the archive is text that is checked and handed on. So no
name, link or device in an archive can lead anywhere. Everything is bounded: files, bytes, the ratio of unpacked to packed, the
size of a header, time. What is refused is refused as a whole.
"""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import time
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, cast

from holdfast_media.errors import MediaError
from holdfast_media.storage.keys import checked_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast_media.transfer.limits import ArchiveLimits

CHUNK: Final = 64 * 1024
"""Bytes that are read at once. No header of a tar may be longer: it would be held in memory, and parsed slowly."""
BLOCK: Final = 512
ENTRY: Final = 1024
"""Bytes that the directory of a zip may have for each file."""
FREE: Final = 1024 * 1024
"""Bytes that count for no ratio."""
BROKEN: Final = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    NotImplementedError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A file that was in an archive."""

    name: str
    """Checked: a key, relative to wherever it is published."""
    path: Path
    size: int


def unpack(archive: Path, into: Path, limits: ArchiveLimits) -> list[Unpacked]:
    """Write the files of an archive into a folder of their own, and return them in the order of the archive.

    Raises `BAD_ARCHIVE` for what is broken or holds anything but files with plain names, `TOO_LARGE` for what is beyond the
    limits; the folder may then hold some files, and nothing outside of it was touched.
    """
    into.mkdir(parents=True, exist_ok=True)
    bounds = _Bounds(archive.stat().st_size, limits)
    names = _Names(limits)
    found: list[Unpacked] = []
    try:
        with archive.open("rb") as file:
            begin = file.read(4)
            file.seek(0)
            entries = _zip(file, bounds) if begin[:2] == b"PK" else _tar(file, begin, bounds)
            for name, content in entries:
                path = into / f"{len(found) + 1:06}"
                checked = names.take(name, is_folder=content is None)
                if content is None:
                    continue
                found.append(Unpacked(checked, path, _write(content, path, bounds)))
    except BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of our own disk
        raise MediaError("BAD_ARCHIVE", f"the archive cannot be read: {type(error).__name__}: {error}"[:300]) from error
    if not found:
        raise MediaError("BAD_ARCHIVE", "the archive holds no files")
    return found


class _Bounds:
    """Counts what comes out of an archive, and says when it is enough."""

    def __init__(self, packed: int, limits: ArchiveLimits) -> None:
        self.limits = limits
        self._total = min(limits.total, int(FREE + limits.ratio * packed))
        self._by_ratio = self._total < limits.total
        self._out = 0
        self._deadline = time.monotonic() + limits.seconds

    def out(self, count: int) -> None:
        """Note bytes of a file."""
        self._out += count
        self.check(self._out)

    def check(self, total: int) -> None:
        """Refuse an archive that unpacks to so many bytes, or that has taken too long."""
        if total > self._total:
            why = (
                f"it unpacks to more than {self.limits.ratio:g} times its size"
                if self._by_ratio
                else f"it unpacks to more than {self.limits.total:,} bytes"
            )
            raise MediaError("TOO_LARGE", f"the archive is refused: {why}")
        if time.monotonic() > self._deadline:
            raise MediaError("TOO_LARGE", f"the archive took longer than {self.limits.seconds:g} s to unpack")

    @property
    def stream(self) -> int:
        """How many bytes a decompressed tar may have: its files, and headers for each."""
        return self._total + self.limits.files * 4 * 1024 + FREE


class _Names:
    """The names in an archive: each once, also where upper and lower case are the same, and none both a file and a folder."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._count = 0

    def take(self, name: str, *, is_folder: bool) -> str:
        """Return a name that is one, or refuse it."""
        self._count += 1
        if self._count > self._limits.files:
            raise MediaError("TOO_LARGE", f"the archive has more than {self._limits.files:,} entries")
        plain = name.removeprefix("./")
        if is_folder and plain.rstrip("/") in ("", "."):
            return ""
        try:
            checked = checked_key(plain.removesuffix("/") if is_folder else plain)
        except MediaError as error:
            raise MediaError("BAD_ARCHIVE", f"an entry of the archive has a name that is refused: {error.message}") from None
        folded = checked.casefold()
        above = ["/".join(folded.split("/")[:depth]) for depth in range(1, folded.count("/") + 1)]
        if any(one in self._files for one in (folded, *above)) or (not is_folder and folded in self._folders):
            raise MediaError("BAD_ARCHIVE", f"the archive has {checked[:120]!r} twice, or as a file and a folder")
        self._folders.update(above)
        (self._folders if is_folder else self._files).add(folded)
        return checked


class _Bounded(io.RawIOBase):
    """A file of which no single read, and no position, may be too large: parsers ask for what a header says."""

    def __init__(self, file: IO[bytes], bounds: _Bounds, *, end: int, largest: int) -> None:
        super().__init__()
        self._file = file
        self._bounds = bounds
        self._end = end
        self._largest = largest

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._file.tell()}.get(whence)
        if base is not None and not 0 <= base + offset <= self._end:
            raise MediaError("BAD_ARCHIVE", "a header of the archive points out of it")
        self._bounds.check(0)
        return self._file.seek(offset, whence)

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._largest if size is None or size < 0 else size
        if wanted > self._largest:
            raise MediaError("BAD_ARCHIVE", f"a header of the archive asks for {wanted:,} bytes")
        self._bounds.check(0)
        data = self._file.read(wanted)
        if self._file.tell() > self._end:
            raise MediaError("TOO_LARGE", "the archive unpacks to more than is taken")
        if (size is None or size < 0) and self._file.read(1):
            raise MediaError("BAD_ARCHIVE", "a header of the archive asks for all of it")
        return data


def _tar(file: IO[bytes], begin: bytes, bounds: _Bounds) -> Iterator[tuple[str, IO[bytes] | None]]:
    packed = begin[:2] == b"\x1f\x8b"
    plain = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
    bounded = _Bounded(plain, bounds, end=bounds.stream, largest=CHUNK)
    # "r:" reads from where it is told, so that every read and every seek passes through the bounds
    with tarfile.open(fileobj=cast("Any", bounded), mode="r:") as tar:
        for member in tar:
            yield member.name, _tar_content(tar, member)
        bounded.seek(tar.offset)
        if bounded.read(BLOCK) != bytes(BLOCK):  # the parser takes whatever it cannot read for the end
            raise MediaError("BAD_ARCHIVE", "the archive has no end: it was cut, or its headers are broken")
    if packed:
        while plain.read(CHUNK):  # to its end, where its checksum is
            bounds.check(0)
            if plain.tell() > bounds.stream:
                raise MediaError("TOO_LARGE", "the archive unpacks to more than is taken")


def _tar_content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes] | None:
    if member.isdir():
        return None
    kinds = {
        "a symbolic link": member.issym(),
        "a hard link": member.islnk(),
        "a device": member.isdev() and not member.isfifo(),
        "a FIFO": member.isfifo(),
        "a sparse file": member.issparse() or member.type == tarfile.GNUTYPE_SPARSE,
    }
    for kind, is_one in kinds.items():
        if is_one:
            raise MediaError("BAD_ARCHIVE", f"{member.name[:120]!r} in the archive is {kind}: only files and folders are taken")
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise MediaError("BAD_ARCHIVE", f"{member.name[:120]!r} in the archive is of an unknown kind")
    if member.size < 0:
        raise MediaError("BAD_ARCHIVE", f"{member.name[:120]!r} in the archive has a negative size")
    content = tar.extractfile(member)
    if content is None:
        raise MediaError("BAD_ARCHIVE", f"{member.name[:120]!r} in the archive has no content")
    return content


def _zip(file: IO[bytes], bounds: _Bounds) -> Iterator[tuple[str, IO[bytes] | None]]:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    largest = max(4 * CHUNK, bounds.limits.files * ENTRY)
    bounded = _Bounded(file, bounds, end=size, largest=largest)
    with zipfile.ZipFile(cast("Any", bounded)) as folder:
        for entry in folder.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise MediaError("BAD_ARCHIVE", f"{entry.filename[:120]!r} in the archive is a link or a device")
            if entry.flag_bits & 0x1:
                raise MediaError("BAD_ARCHIVE", f"{entry.filename[:120]!r} in the archive is encrypted")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise MediaError("BAD_ARCHIVE", f"{entry.filename[:120]!r} in the archive is packed in a way that is not taken")
            if entry.filename != entry.orig_filename:
                raise MediaError("BAD_ARCHIVE", "an entry of the archive has a byte 0 or a backslash in its name")
            if entry.is_dir():
                yield entry.filename, None
                continue
            with folder.open(entry) as content:
                yield entry.filename, content


def _write(content: IO[bytes], path: Path, bounds: _Bounds) -> int:
    size = 0
    with content, path.open("xb") as file:
        while data := content.read(CHUNK):
            size += len(data)
            if size > bounds.limits.file:
                raise MediaError("TOO_LARGE", f"a file of the archive has more than {bounds.limits.file:,} bytes")
            bounds.out(len(data))
            file.write(data)
    return size
