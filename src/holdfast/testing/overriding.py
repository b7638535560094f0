"""Pointing an app at another store for the length of a test."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from holdfast.errors import HoldfastError
from holdfast.testing.clock import FakeClock

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from holdfast.app import Holdfast

MEMORY: Final = "memory://"


def override(app: Holdfast, url: str = MEMORY, *, clock: FakeClock | None = None) -> Override:
    """Have an app, and all its tasks and handles, go by another store and a fake clock.

    `with override(app) as clock:`. A fresh `memory://` store unless a URL is given. The app's own store is not touched;
    afterwards it is back. For the whole process: threads that use the app meanwhile are redirected too. What was opened is
    closed at the end; in async tests with a database that takes `async with`.
    """
    return Override(app, url, FakeClock() if clock is None else clock)


class Override:
    """An app that goes by another store and clock, `with` or `async with`. Made by `override`; for one use at a time."""

    def __init__(self, app: Holdfast, url: str, clock: FakeClock) -> None:
        self.app = app
        self.clock = clock
        self._url = url
        self._entered: AbstractContextManager[Holdfast] | None = None

    def __enter__(self) -> FakeClock:
        if self._entered is not None:
            raise HoldfastError("this override is in use already: make another one with testing.override(app)")
        entered = self.app.override(self._url, self.clock)
        entered.__enter__()
        self._entered = entered
        return self.clock

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            # in a thread: this may be a running event loop, which the app would refuse to block
            with ThreadPoolExecutor(1) as pool:
                pool.submit(self.app.close_sync).result()
            self._close_clients()
        finally:
            self._leave()

    async def __aenter__(self) -> FakeClock:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.app.close()
        finally:
            self._leave()

    def _leave(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(None, None, None)

    def _close_clients(self) -> None:
        """Close what is open on event loops: those of tests that are over, as far as they can still run."""
        if self._url.startswith(MEMORY):
            return  # nothing is open there
        for loop, client in list(self.app._clients.items()):  # noqa: SLF001  an app closes only what is of its caller's loop
            if loop.is_closed():
                continue
            if loop.is_running():
                raise HoldfastError(
                    f"connections to {self._url} are open on a running event loop, and `with override(…)` cannot wait for them "
                    "to close. Use: async with override(…), or await app.close() before it ends"
                )
            loop.run_until_complete(client.close())
