"""What lies in a folder: which files count, and what the system says of each."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from holdfast.core.text import flaw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTIAL: Final = (".part", ".partial", ".tmp", ".temp", ".filepart", ".crdownload", ".download", ".swp", "~")
"""How names end while somebody still writes; so do those that begin with a dot."""


class Sighting(NamedTuple):
    """What the system says of a file at one look. For the looks of one process: another host or mount may say otherwise."""

    inode: int
    size: int
    modified: int
    """When its content was last changed, in nanoseconds. Anybody may set it back."""
    changed: int
    """When anything of it was last changed, which nobody can set back."""

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return what a status says."""
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def content(self) -> tuple[int, int, int]:
        """What stays while nobody writes. Not the inode: some network file systems number files anew at every look."""
        return (self.size, self.modified, self.changed)

    @property
    def body(self) -> tuple[int, int, int]:
        """What stays when the file is renamed."""
        return (self.inode, self.size, self.modified)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which files of a folder count."""

    patterns: tuple[str, ...] = ()
    """As a shell has them, for the name alone; none: every name."""
    recursive: bool = False
    follow_links: bool = False
    """Also those that lead out of the folder."""

    def wants(self, name: str) -> bool:
        """Tell whether a complete file of this name counts."""
        return not partial(name) and (not self.patterns or any(fnmatchcase(name, pattern) for pattern in self.patterns))


@dataclass(slots=True)
class Scan:
    """What one look at a folder found."""

    files: dict[str, Sighting] = field(default_factory=dict)
    """Those that count, by whole path."""
    partial: set[tuple[int, int, int]] = field(default_factory=set)
    """The bodies of those that somebody still writes, by their names."""
    troubles: dict[str, str] = field(default_factory=dict)
    """What could not be looked at, and why."""
    missing: str | None = None
    """Why the folder itself could not be looked at."""


def partial(name: str) -> bool:
    """Tell whether a name says that its file is not complete."""
    return name.startswith(".") or name.lower().endswith(PARTIAL)


def scan(folder: Path, rules: Rules) -> Scan:
    """Look at a folder. Blocks. What vanishes meanwhile is passed over; what cannot be read is told of and left alone."""
    found = Scan()
    seen: set[tuple[int, int]] = set()
    top = os.path.realpath(folder)
    waiting = [str(folder)]
    while waiting:
        here = waiting.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            if here == str(folder):
                found.missing = error.strerror or str(error)
            elif not isinstance(error, FileNotFoundError):
                found.troubles[here] = error.strerror or str(error)
            continue
        waiting += _look(entries, rules, top, found, seen)
    return found


def _look(entries: list[os.DirEntry[str]], rules: Rules, top: str, found: Scan, seen: set[tuple[int, int]]) -> Iterator[str]:
    """Sort what is in one folder, and name the folders below it that count too."""
    for entry in entries:
        try:
            if entry.is_symlink() and not (rules.follow_links and _leads_out(entry.path, top)):
                continue
            status = entry.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            found.troubles[entry.path] = error.strerror or str(error)
            continue
        if stat.S_ISDIR(status.st_mode):
            # several links may lead to one folder, or from one to another in a circle
            if rules.recursive and not entry.name.startswith(".") and (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield entry.path
        elif stat.S_ISREG(status.st_mode):
            _sort(entry, Sighting.of(status), rules, found)


def _leads_out(link: str, top: str) -> bool:
    """Tell whether a link leads out of the folder: what it leads to inside is there by its own name."""
    target = os.path.realpath(link)
    return target != top and not target.startswith(f"{top.rstrip('/')}/")


def _sort(entry: os.DirEntry[str], sighting: Sighting, rules: Rules, found: Scan) -> None:
    if partial(entry.name):
        found.partial.add(sighting.body)
    elif rules.wants(entry.name):
        if (reason := flaw(entry.path)) is not None:
            found.troubles[entry.path] = f"its name cannot be kept: {reason}"
        elif not os.access(entry.path, os.R_OK):
            found.troubles[entry.path] = "it may not be read"
        else:
            found.files[entry.path] = sighting
