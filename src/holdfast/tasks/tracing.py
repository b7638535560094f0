"""What follows jobs from where they are enqueued to where they run, behind a port: there is none by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from holdfast.tasks.bound import Call


class Tracing(Protocol):
    """Who wants to know of every enqueue."""

    def enqueuing(self, calls: Sequence[Call[Any]]) -> AbstractContextManager[None]:
        """Return what an enqueue is wrapped in; on entering it may give the jobs a trace."""
        ...
