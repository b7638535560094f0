"""Doing something again and again, whether or not the store answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Repeating:
    """Loops over one store, which together say once that it does not answer and once that it does again."""

    def __init__(self, count: Callable[[], int], warn: Callable[[str], None], tell: Callable[[str], None]) -> None:
        self._count = count
        self._warn = warn
        self._tell = tell
        self._silent = False
        """Whether the store did not answer lately."""

    async def again_and_again(self, work: Callable[[], Awaitable[None]], rest: float) -> None:
        """Do something for ever. While the store does not answer, the number of workers stays as it is."""
        while True:
            await asyncio.sleep(rest)
            try:
                await work()
            except HoldfastError as error:
                if not self._silent:
                    self._warn(f"the store does not answer, the number of workers stays at {self._count()}: {error}")
                self._silent = True
            else:
                if self._silent:
                    self._tell("the store answers again: decisions go on")
                self._silent = False
