"""Archives that try to do harm, made by hand: tools refuse to make most of them."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Entry = tuple[str, bytes]


def tar(*entries: Entry | tarfile.TarInfo, format: int = tarfile.PAX_FORMAT) -> bytes:  # noqa: A002  as in tarfile
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry, io.BytesIO(bytes(entry.size)) if entry.isreg() else None)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                archive.addfile(info, io.BytesIO(entry[1]))
    return out.getvalue()


def special(name: str, kind: bytes, target: str = "", *, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    info.devmajor, info.devminor = 1, 5
    return info


def zipped(*entries: Entry, mode: int = 0, packed: bool = True) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
            archive.writestr(info, data)
    return out.getvalue()


def raw_header(name: bytes, *, size: int = 0, kind: bytes = b"0", size_field: bytes | None = None) -> bytes:
    """Return a tar header with any bytes in its name and in its size."""
    field = size_field if size_field is not None else b"%011o\0" % size
    head = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + field + b"00000000000\0" + b" " * 8 + kind
    head = head.ljust(257, b"\0") + b"ustar\x0000"
    head = head.ljust(512, b"\0")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


END = bytes(1024)


def overlapping_zip() -> bytes:
    """Return a zip all of whose entries are one and the same packed megabyte, as bombs are made."""
    data = zipped(("a", bytes(1024 * 1024)))
    start = data.index(b"PK\x01\x02")
    entry = data[start : data.index(b"PK\x05\x06")]
    count = 2000
    directory = entry * count
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), start, 0)
    return data[:start] + directory + end


def many_pax_headers() -> bytes:
    """Return a tar that is nothing but headers about headers."""
    record = b"11 path=ab\n"
    one = raw_header(b"x", size=len(record), kind=b"x") + record.ljust(512, b"\0")
    return one * 3000 + END


def lying_zip() -> bytes:
    """Return a zip whose two directories name another file each."""
    data = zipped(("inner", b"x"))
    return data.replace(b"inner", b"outer", 1)


def listed(offset: int, value: int) -> bytes:
    """Return a zip with another byte in its directory, so far behind the beginning of the entry."""
    data = bytearray(zipped(("a", b"x"), packed=False))
    data[data.index(b"PK\x01\x02") + offset] = value
    return bytes(data)


REFUSED: dict[str, Callable[[], bytes]] = {
    "an absolute path": lambda: raw_header(b"/etc/cron.d/evil", size=1) + b"x".ljust(512, b"\0") + END,
    "two dots": lambda: tar(("../evil", b"x")),
    "two dots within": lambda: tar(("a/../../evil", b"x")),
    "two dots at the end": lambda: tar(("a/..", b"x")),
    "a dot within": lambda: tar(("a/./b", b"x")),
    "an empty name": lambda: raw_header(b"", size=1) + b"x".ljust(512, b"\0") + END,
    "two slashes": lambda: tar(("a//b", b"x")),
    "a backslash": lambda: tar(("..\\evil", b"x")),
    "a drive": lambda: tar(("C:evil", b"x")),
    "a hidden file": lambda: tar((".ssh/authorized_keys", b"x")),
    "a control character": lambda: tar(("a\nb", b"x")),
    "a name in no encoding": lambda: raw_header(b"a\xff\xfe", size=1) + b"x".ljust(512, b"\0") + END,
    "a name turned around": lambda: tar(("a\u202egpj.exe", b"x")),
    "a decomposed name": lambda: tar(("cafe\u0301", b"x")),
    "a very long name": lambda: tar(("x" * 300, b"x")),
    "a very deep name": lambda: tar(("/".join("ab" * 400), b"x")),
    "a symbolic link": lambda: tar(special("a", tarfile.SYMTYPE, "/etc/passwd")),
    "a symbolic link to go through": lambda: tar(special("a", tarfile.SYMTYPE, "/tmp"), ("a/evil", b"x")),
    "a hard link": lambda: tar(("b", b"x"), special("a", tarfile.LNKTYPE, "b")),
    "a hard link outwards": lambda: tar(special("a", tarfile.LNKTYPE, "../../etc/passwd")),
    "a character device": lambda: tar(special("a", tarfile.CHRTYPE)),
    "a block device": lambda: tar(special("a", tarfile.BLKTYPE)),
    "a FIFO": lambda: tar(special("a", tarfile.FIFOTYPE)),
    "a contiguous file": lambda: tar(special("a", tarfile.CONTTYPE)),
    "a sparse file": lambda: raw_header(b"a", kind=b"S", size=0) + END,
    "an unknown kind": lambda: raw_header(b"a", kind=b"Q") + END,
    "a name twice": lambda: tar(("a", b"x"), ("a", b"y")),
    "a name twice, once with a dot": lambda: tar(("a", b"x"), ("./a", b"y")),
    "a name twice but for its case": lambda: tar(("Index.m3u8", b"x"), ("index.M3U8", b"y")),
    "a name twice in its folded form": lambda: tar(("straße", b"x"), ("STRASSE", b"y")),
    "a file that is a folder": lambda: tar(("a", b"x"), ("a/b", b"y")),
    "a folder that is a file": lambda: tar(("a/b", b"x"), ("A", b"y")),
    "nothing": tar,
    "only folders": lambda: tar(special("a", tarfile.DIRTYPE)),
    "no archive": lambda: b"this is no archive" * 100,
    "an empty file": lambda: b"",
    "a header of many bytes": lambda: raw_header(b"x", kind=b"x", size=2**30) + bytes(1024),
    "a long name of many bytes": lambda: raw_header(b"x", kind=b"L", size=2**30) + bytes(1024),
    "a packed header of many bytes": lambda: gzip.compress(raw_header(b"x", kind=b"x", size=2**26) + bytes(2**26) + END, 1),
    "a negative size": lambda: raw_header(b"a", size_field=b"\xff" * 12) + END,
    "a negative size with more behind": lambda: (
        raw_header(b"a", size_field=b"\xff" * 8 + b"\xff\xff\xfc\x00") + raw_header(b"b") + END
    ),
    "headers about headers": many_pax_headers,
    "a cut tar": lambda: tar(("a", b"x" * 5000))[:3000],
    "a tar without an end": lambda: tar(("a", b"x" * 512))[:1024],
    "a broken header after a good one": lambda: tar(("a", b"x"))[:1024] + b"garbage" * 100 + END,
    "a cut gzip": lambda: gzip.compress(tar(("a", bytes(range(256)) * 100)))[:-20],
    "a gzip with a wrong checksum": lambda: gzip.compress(tar(("a", b"x")))[:-8] + bytes(8),
    "zip: two dots": lambda: zipped(("../evil", b"x")),
    "zip: an absolute path": lambda: zipped(("/evil", b"x")),
    "zip: a backslash": lambda: zipped(("..\\evil", b"x")),
    "zip: a byte 0": lambda: zipped(("aXevil", b"x")).replace(b"aXevil", b"a\0evil"),
    "zip: a symbolic link": lambda: zipped(("a", b"/etc/passwd"), mode=0o120777),
    "zip: a device": lambda: zipped(("a", b""), mode=0o020666),
    "zip: a name twice": lambda: zipped(("a", b"x"), ("B", b""), ("b", b"y")),
    "zip: a name that lies": lying_zip,
    "zip: a wrong checksum": lambda: zipped(("a", b"xyzxyz"), packed=False).replace(b"xyzxyz", b"xyzxyy"),
    "zip: cut": lambda: zipped(("a", b"x" * 5000))[:-10],
    "zip: encrypted": lambda: zipped(("a", b"x"), packed=False).replace(
        b"PK\x01\x02\x14\x03\x14\0\0\0", b"PK\x01\x02\x14\x03\x14\0\x01\0"
    ),
    "zip: packed in another way": lambda: zipped(("a", b"x"), packed=False).replace(
        b"PK\x01\x02\x14\x03\x14\0\0\0\0\0", b"PK\x01\x02\x14\x03\x14\0\0\0\x0e\0"
    ),
}
"""Each is refused as it is."""

TOO_LARGE: dict[str, Callable[[], bytes]] = {
    "too many files": lambda: tar(*((f"f{number}", b"") for number in range(101))),
    "too many folders": lambda: tar(*(special(f"f{number}", tarfile.DIRTYPE) for number in range(101)), ("a", b"x")),
    "a file that is too large": lambda: tar(("a", bytes(2**21 + 1))),
    "files that are too large together": lambda: tar(*((f"f{number}", bytes(2**20)) for number in range(5))),
    "a bomb in gzip": lambda: gzip.compress(tar(("a", bytes(2**21)), ("b", bytes(2**21)))),
    "a bomb behind the end of a tar": lambda: gzip.compress(tar(("a", b"x")) + bytes(64 * 2**20)),
    "a bomb in zip": lambda: zipped(("a", bytes(2**21))),
    "a bomb of one entry many times": lambda: zipped(*((f"f{number}", bytes(2**20)) for number in range(50))),
    "zip: too many files": lambda: zipped(*((f"f{number}", b"") for number in range(101))),
}
"""Each is beyond limits of 100 files, 2 MiB for a file, 4 MiB in all, 20 times its size."""

EITHER: dict[str, Callable[[], bytes]] = {
    "a bomb of entries that overlap": overlapping_zip,
    "a file that says it is huge": lambda: raw_header(b"a", size=2**33 - 1) + END,
    "a file that says it is huger": lambda: raw_header(b"a", size_field=b"\x80" + b"\x7f" * 11) + END,
}
"""Each is refused, as broken or as too large."""
