"""Which files are complete, judged from one look to the next. Knows no clock and no file system."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from holdfast.watch.files import Sighting

Content: TypeAlias = tuple[int, int, int]
Body: TypeAlias = tuple[int, int, int]


class Settling:
    """Remembers since when each file has been as it is.

    A file is complete when it stayed the same for `settle` seconds, by the watcher's own clock: times on files may be those of
    another machine. One that was seen under a partial name, just as it is now, was renamed into place, and need not wait.
    """

    def __init__(self, settle: float) -> None:
        self._settle = settle
        self._since: dict[str, tuple[Content, float]] = {}
        self._partial: AbstractSet[Body] = frozenset()

    def look(self, now: float, files: Mapping[str, Sighting], partial: AbstractSet[Body] = frozenset()) -> list[str]:
        """Take in what is there now; return the paths of those that are complete, in order."""
        since = {
            path: before if (before := self._since.get(path)) is not None and before[0] == seen.content else (seen.content, now)
            for path, seen in files.items()
        }
        complete = [
            path
            for path, (_, begun) in since.items()
            if now - begun >= self._settle or ((body := files[path].body) in self._partial and body not in partial)
        ]
        self._since, self._partial = since, partial
        return sorted(complete)

    def next_at(self) -> float | None:
        """Return when the first of those that are not complete yet might be; `None` when there is none."""
        first = min((begun for _, begun in self._since.values()), default=None)
        return None if first is None else first + self._settle

    def anew(self, path: str, now: float) -> None:
        """Have a file wait once more: it could not be read, or not as it was seen."""
        self._since[path] = (self._since[path][0], now)

    def forget(self, path: str) -> None:
        """Wait no more for a file: it is known by now."""
        self._since.pop(path, None)

    @property
    def waiting(self) -> int:
        """How many files are not complete yet."""
        return len(self._since)
