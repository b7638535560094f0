"""Which version of a file is there: what tells one content from another on every host, after every mount and restart.

The number of its inode does not: a free one goes to the next file, and network file systems number files as they like. So the
version has something of the content itself.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.watch.files import Sighting

if TYPE_CHECKING:
    from collections.abc import Mapping

PIECE: Final = 65_536
PIECES: Final = 4
"""Of a larger file so many pieces are read, from its begin to its end; of a smaller one everything."""


class Version(NamedTuple):
    """What is written down of a file that was taken."""

    size: int
    modified: int
    """In microseconds: a share may keep no more of it than that."""
    sample: str
    """A digest of what was read."""

    def __str__(self) -> str:
        return f"{self.size}-{self.modified}-{self.sample}"


def begin(sighting: Sighting) -> str:
    """Return how the text of a version begins, as far as a look can tell."""
    return f"{sighting.size}-{sighting.modified // 1000}-"


def read(files: Mapping[str, Sighting]) -> tuple[dict[str, Version], dict[str, str]]:
    """Return the versions of files, and why some could not be read. Blocks.

    What is gone, or no longer as it was seen, is in neither: it is not complete.
    """
    versions: dict[str, Version] = {}
    troubles: dict[str, str] = {}
    for path, sighting in files.items():
        try:
            version = _version(path, sighting)
        except FileNotFoundError:
            continue
        except OSError as error:
            troubles[path] = error.strerror or str(error)
            continue
        if version is not None:
            versions[path] = version
    return versions, troubles


def _version(path: str, sighting: Sighting) -> Version | None:
    digest = blake2b(digest_size=16)
    with Path(path).open("rb") as file:
        if sighting.size <= PIECES * PIECE:
            digest.update(file.read(PIECES * PIECE))
        else:
            for number in range(PIECES):
                file.seek((sighting.size - PIECE) * number // (PIECES - 1))
                digest.update(file.read(PIECE))
        if Sighting.of(os.fstat(file.fileno())).content != sighting.content:
            return None
    return Version(sighting.size, sighting.modified // 1000, digest.hexdigest())
