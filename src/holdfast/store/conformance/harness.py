"""What the author of an adapter writes so that the suite can get at the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.store.port import Store


class Harness(ABC):
    """How the suite gets at a store under test.

    The suite calls `clean` before every test, opens as many handles as the test needs, and closes each of them itself.
    Handles are opened, used and closed within one event loop, which need not be the one of the `harness` fixture.
    """

    opener: str = ""
    """`package.module:function` that child processes import: it takes the URL and returns a store, not yet opened.

    For `ProcessConformance` only.
    """

    @property
    def url(self) -> str:
        """Where the data is now, as given to `opener`. For `ProcessConformance` only."""
        raise NotImplementedError(f"{type(self).__name__} needs `url`: child processes are told it")

    @abstractmethod
    async def clean(self) -> None:
        """Make the data empty: no jobs, workers, keys, pauses. Nobody has a handle open then."""

    @abstractmethod
    async def open(self) -> Store:
        """Return a new, opened handle on the data; every handle sees the same jobs.

        In its environment `lot` gives 0: most tests are about the order of claims.
        """

    async def join(self) -> Store:
        """Return a new, opened handle as another process has it, in whose environment `lot` gives what chance will have."""
        raise NotImplementedError(f"{type(self).__name__} needs `join`: some tests are about handles that begin by lot")
