"""What a storage does: files under keys, published at once or not at all, each with its SHA-256.

Everything here blocks: it is for tasks that run in threads, and one storage may be used from several of them. Every error is a
`MediaError`:

| code | retryable | means |
|---|---|---|
| `BAD_KEY` | no | the key could leave the storage, or is none (`checked_key`) |
| `NOT_FOUND` | no | nothing is under this key |
| `CHECKSUM_MISMATCH` | yes | the bytes are not those of the SHA-256 that was given or is recorded |
| `DISK_FULL` | yes | no room, here or at the storage; nothing partial is left |
| `STORAGE_UPLOAD_FAILED` | yes | it could not be written for now, after retries of its own |
| `STORAGE_READ_FAILED` | yes | it could not be read for now, after retries of its own |
| `ACCESS_DENIED`, `NO_SUCH_BUCKET`, `BAD_STORAGE` | no | a setting is wrong; the message says which and how to mend it |
| `STALE_LEASE` | no | through a server: the attempt is no longer the job's holder, nothing was published |
| `TOO_LARGE` | no | through a server: beyond its limits |

`Stopped` is raised where `stop` gave a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path
    from uuid import UUID

OnProgress = Callable[[float], None]
"""Is told what share of the bytes has passed, from 0 to 1. What it raises ends the transfer."""
BeforePublish = Callable[[], None]
"""Is called when everything is in place but for the publication itself; what it raises is raised, and nothing is published."""


Stop = Callable[[], "str | None"]
"""Returns a reason to stop, or `None`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is under a key."""

    key: str
    size: int
    sha256: str | None
    """In hexadecimal digits. `None`: it was put there by other means, or the server keeps no metadata."""
    modified: datetime
    etag: str
    """Changes with the content; opaque."""
    content_type: str = "application/octet-stream"
    created: bool = False
    """Whether this `put` has put it there; `False`: it was there before, and this is what was found."""


class HasLease(Protocol):
    """What of a job names its attempt: `holdfast.Job` has all of it."""

    @property
    def id(self) -> UUID:
        """The job's id."""
        ...

    @property
    def attempt(self) -> int:
        """The number of the claim."""
        ...

    @property
    def token(self) -> UUID:
        """The secret of the claim."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Attempt:
    """Who reads and writes: an attempt at a job, with the secret of its lease. In no message and no repr is the token."""

    job_id: str
    number: int
    token: str

    @classmethod
    def of(cls, job: HasLease) -> Self:
        """Return the attempt that a handler makes: `storage.bind(Attempt.of(job))`."""
        return cls(str(job.id), job.attempt, str(job.token))

    def __repr__(self) -> str:
        return f"<Attempt {self.number} at {self.job_id}>"


@runtime_checkable
class Storage(Protocol):
    """Files under keys. See the module for what it raises."""

    def bind(self, attempt: Attempt, *, stop: Stop | None = None) -> Storage:
        """Return this storage as one attempt at a job uses it: every handler calls it first.

        Through a server every request then shows the lease, and what that does not cover is refused. `stop` is polled while
        bytes pass and while a retry is waited for: its reason ends the transfer with `Stopped`, and nothing is published.
        """
        ...

    def head(self, key: str) -> Stored | None:
        """Return what is under a key; `None`: nothing. Reads no content."""
        ...

    def put(
        self,
        key: str,
        path: Path,
        *,
        sha256: str | None = None,
        content_type: str | None = None,
        overwrite: bool = False,
        consume: bool = False,
        on_progress: OnProgress | None = None,
        before_publish: BeforePublish | None = None,
    ) -> Stored:
        """Publish a file under a key: whole and durable, or not at all.

        Put-if-absent: where something is under the key it stays, and is returned with `created=False`; of several at once one
        wins. `overwrite=True` replaces it, at once for readers. `sha256` is compared with what was read
        (`CHECKSUM_MISMATCH`); without it it is computed. `content_type` is guessed from the key's ending where it is not given.
        `consume=True` gives the file away: it is moved where that spares a copy, and gone when `put` returns. Repeatable.
        """
        ...

    def open(self, key: str, start: int = 0) -> BinaryIO:
        """Return a reader of the content from a byte on; the caller closes it.

        A connection that breaks is taken up where it broke, and only while the content is still the same.
        """
        ...

    def lend(self, key: str, *, on_progress: OnProgress | None = None) -> AbstractContextManager[Path]:
        """Return a context manager that gives the content as a local file, to be read and not changed.

        A local folder gives its own file, as it is. Others download into a cache, resumed where an earlier download broke off
        and checked by the SHA-256 (the size where that is not known); processes that share a cache folder share its files.
        """
        ...

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Return everything whose key begins with a prefix, by key. `sha256` may be missing: `head` has it."""
        ...

    def delete(self, key: str) -> bool:
        """Remove what is under a key; `False`: nothing was. Repeatable."""
        ...

    def check(self, key: str, *, sha256: str | None = None) -> bool:
        """Read the whole content and tell whether it has the recorded SHA-256, or the given one.

        `False` also where nothing is there, and where there is nothing to compare with.
        """
        ...

    def sweep(self, older_than: float = 86_400.0) -> int:
        """Remove what uploads that broke off have left, and tell how many those were. Safe beside uploads that go on.

        `older_than` is in seconds. To be called now and then; nothing depends on it but room.
        """
        ...

    def free_bytes(self) -> int | None:
        """Return how many bytes still fit; `None`: nobody can say."""
        ...

    def url_for(self, key: str) -> str:
        """Return where the content is, for logs and people. It lets nobody in."""
        ...

    def close(self) -> None:
        """Let go of connections. Safe to call again."""
        ...
