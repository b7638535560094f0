"""`LocalNotifier`: hints among the handles of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.notify.port import NOTHING_HANDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.notify.hub import Hub, Mailbox
    from holdfast.notify.port import Handed, Hint, Listener, Serving


class LocalNotifier:
    """Hints for a store that lives in memory: whoever shares the hub hears them, on any thread's event loop."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._mailboxes: list[Mailbox] = []
        self._closed = False

    async def listen(self, listener: Listener, serving: Serving | None = None) -> None:  # noqa: ARG002  all hear all
        """Begin to hear the hints of every notifier of the hub."""
        if self._closed:
            raise RuntimeError("this notifier is closed: it hears nothing any more")
        self._mailboxes.append(self._hub.listen(listener))

    @property
    def healthy(self) -> bool:
        """Whether it listens: there are no other processes to hear."""
        return bool(self._mailboxes)

    def hint(self, hint: Hint, *, told: bool = False) -> None:  # noqa: ARG002  there are no others to be told
        """Reach every listener of the hub, each in the next turn of its loop. From any thread, never raises."""
        if hint and not self._closed:
            self._hub.send(hint)

    def with_commit(self, hint: Hint) -> None:
        """Return nothing: whoever is to hear it is in this process."""

    def heed(self) -> Handed:
        """Return nothing: everyone hears everything."""
        return NOTHING_HANDED

    def answered(self, handed: Handed, *, more: bool) -> None:
        """Do nothing: others have heard."""

    def figures(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    async def close(self) -> None:
        """Deliver to its own listeners what has been sent, and hear no more. Safe to call again."""
        self._closed = True
        while self._mailboxes:
            self._hub.leave(self._mailboxes.pop())
