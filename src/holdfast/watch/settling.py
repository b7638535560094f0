"""Which files are complete, judged from one look to the next. Knows no clock and no file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from holdfast.watch.files import Version


class Settling:
    """Remembers since when each file has been as it is.

    A file is complete when it stayed the same for `settle` seconds, by the watcher's own clock: times on files may be those of
    another machine. One that was seen under a partial name, just as it is now, was renamed into place, and need not wait.
    """

    def __init__(self, settle: float) -> None:
        self._settle = settle
        self._since: dict[str, tuple[Version, float]] = {}
        self._partial: AbstractSet[Version] = frozenset()

    def look(self, now: float, files: Mapping[str, Version], partial: AbstractSet[Version] = frozenset()) -> list[str]:
        """Take in what is there now; return the paths of those that are complete, in order."""
        since = {
            path: before if (before := self._since.get(path)) is not None and before[0] == version else (version, now)
            for path, version in files.items()
        }
        complete = [
            path
            for path, (version, begun) in since.items()
            if now - begun >= self._settle or (version in self._partial and version not in partial)
        ]
        self._since, self._partial = since, partial
        return sorted(complete)

    def next_at(self) -> float | None:
        """Return when the first of those that are not complete yet might be; `None` when there is none."""
        first = min((begun for _, begun in self._since.values()), default=None)
        return None if first is None else first + self._settle

    def forget(self, path: str) -> None:
        """Wait no more for a file: it is known by now."""
        self._since.pop(path, None)

    @property
    def waiting(self) -> int:
        """How many files are not complete yet."""
        return len(self._since)
