"""`PostgresNotifier`: hints through LISTEN and NOTIFY, sent after a commit or, now and then, with one of the store's own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.notify.channel import LOG, LONGEST_REST, Backoff, Channel
from holdfast.notify.hub import Hub
from holdfast.notify.joining import Gathered
from holdfast.notify.line import Line
from holdfast.notify.port import NOTHING_HANDED, Hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.environment import Environment
    from holdfast.notify.hub import Mailbox
    from holdfast.notify.port import Handed, Listener, Serving

TOGETHER: Final = 0.005
"""Seconds between two notifications of one handle: what is said in between goes out as one. Long enough to bound what a busy
producer costs the server (a notification is a commit), short enough for a worker that idles."""

ALONE: Final = 2 * TOGETHER
"""Seconds after the last notification from which on the next one may go with a commit. That is heard half a millisecond sooner,
but commits that notify wait for each other, to the end: who enqueues all the time must not be one of them."""
CROWDED: Final = 0.05
"""Seconds that a commit takes which had to wait for others that notify: then they are too many."""
CROWDED_FOR: Final = 2.0

LARGEST_PAYLOAD: Final = 7_500
"""Bytes; PostgreSQL takes 7,999."""

LONGEST_NAME: Final = 63
"""Bytes of an identifier; PostgreSQL cuts longer ones, and then two schemas might share a channel."""

NOTIFY: Final = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)"
"""A notification is a commit, and nobody needs it after a crash: neither it nor who waits for its lock waits for the disk."""

FLUSH_SECONDS: Final = 1.0


def channel_name(schema: str) -> str:
    """Return the channel on which the processes that use a schema hear each other."""
    name = f"holdfast.{schema}"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    return f"holdfast.{hashlib.sha256(schema.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the handles of one process on one channel meet."""

    hub: Hub = field(default_factory=Hub)
    name: str = field(default_factory=lambda: secrets.token_hex(6))
    """By which notifications name their sender: what they say was heard here long since."""


class Notification(Hint, frozen=True, omit_defaults=True):
    """A hint, and which meeting it comes from; none where it was sent in a caller's transaction."""

    by: str = ""


_decode = msgspec.json.Decoder(Notification).decode


_MEETINGS: Final[dict[tuple[int, str, str], Meeting]] = {}
"""By process (a forked child has its parent's entries), URL and channel."""


class PostgresNotifier:
    """Hints for a store on PostgreSQL, over one connection of its own.

    `listen=False` opens none for listening, for PgBouncer in transaction mode: hints are sent, but those of other processes
    do not arrive. `prepare=False` does without prepared statements. `timeout` bounds every wait for the server; a connection
    that says nothing for `probe_every` seconds is asked whether it still lives.
    """

    def __init__(
        self,
        url: str,
        environment: Environment,
        *,
        schema: str = "holdfast",
        listen: bool = True,
        prepare: bool = True,
        timeout: float = 5.0,
        probe_every: float = 15.0,
    ) -> None:
        self.channel = channel_name(schema)
        """Where to notify from a caller's own connection."""
        self.dropped = 0
        """Joined hints that could not be sent to other processes."""
        self._url = url
        self._environment = environment
        self._may_listen = listen
        self._prepare = prepare
        self._timeout = timeout
        self._probe_every = probe_every
        self._closing = False

        meeting = _MEETINGS.setdefault((os.getpid(), url, self.channel), Meeting())
        self._own = meeting.hub
        """Where the handles of this process meet: what one says the others hear at once."""
        self._name = meeting.name
        self._mailboxes: list[Mailbox] = []
        self._state = Channel(f"channel {self.channel!r}")
        self._keeping: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._line: Line | None = None
        """The connection that listens; sends too, while there is one."""

        self._told_at = 0.0
        """Since when others know what was said before."""
        self._carried_at = 0.0
        self._crowded_until = 0.0
        self._unsent = Gathered()
        self._sending: asyncio.Task[None] | None = None
        self._resting: asyncio.Future[None] | None = None
        self._spare: Line | None = None
        """A connection for sending only, while there is no other."""
        self._spare_rest = Backoff(environment)
        self._no_spare_before = 0.0

    # hearing

    async def listen(self, listener: Listener, serving: Serving | None = None) -> None:  # noqa: ARG002  all hear all
        """Begin to hear hints. Returns once the server has been reached or has failed to answer."""
        if self._closing:
            raise RuntimeError("this notifier is closed: it hears nothing any more")
        self._mailboxes.append(self._own.listen(listener))
        if not self._may_listen:
            return
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        await self._tried.wait()

    @property
    def healthy(self) -> bool:
        """Whether hints of other processes arrive now, as far as the last answer of the server tells."""
        return self._state.up and self._keeping is not None and not self._keeping.done()

    async def _keep(self) -> None:
        """Keep one connection listening for ever."""
        rest = Backoff(self._environment)
        while True:
            began = self._environment.monotonic()
            self._state.lost(await self._listen_until_lost())
            self._tried.set()
            if self._environment.monotonic() - began > LONGEST_REST:  # one that breaks at once is not tried at once again
                rest.reset()
            await asyncio.sleep(rest.next())

    async def _listen_until_lost(self) -> Exception | str:
        """Connect and listen for as long as that goes well; returns why it no longer does."""
        try:
            async with await self._open() as line:
                await line.listen(self.channel, self._heard)
                self._is_up(line)
                while not await line.wait_lost(self._probe_every):
                    await line.execute("SELECT 1")
        except Exception as error:  # noqa: BLE001  whatever the driver raises: hints only save time, so try again
            return error
        finally:
            self._line = None
        return "the connection was lost"

    async def _open(self) -> Line:
        return await Line.open(self._url, timeout=self._timeout, prepare=self._prepare)

    def _is_up(self, line: Line) -> None:
        self._line = line
        if self._state.restored():
            self._own.send(Hint(anything=True))
        self._tried.set()

    def _heard(self, payload: str) -> None:
        try:
            hint = _decode(payload)
        except msgspec.MsgspecError:
            hint = Notification()
        if hint.by != self._name:  # not its own or a neighbour's
            # one that cannot be read, or says only what a newer version understands
            self._own.send(hint or Hint(anything=True))

    # sending

    def with_commit(self, hint: Hint) -> str | None:
        """Return what to notify in the transaction, where nothing was sent for a while."""
        now = self._environment.monotonic()
        if now - self._told_at < ALONE or now < self._crowded_until or self._sending is not None or self._closing:
            return None
        self._told_at = self._carried_at = now
        self._crowded_until = now + CROWDED_FOR  # unless it is heard that it went well, and soon
        return self._payload(hint)

    def hint(self, hint: Hint, *, told: bool = False) -> None:
        """Reach its own process in the next turn of the loop, others at once or a few milliseconds after the last time."""
        if not hint or self._closing:
            return
        self._own.send(hint)
        if told:
            now = self._environment.monotonic()
            self._crowded_until = 0.0 if now - self._carried_at <= CROWDED else now + CROWDED_FOR
            return
        self._unsent.add(hint)
        if self._sending is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError as error:
                self._drop(self._unsent.take(), error)
            else:
                self._sending = loop.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            await self._rest()
            while hint := self._unsent.take():
                await self._send(hint)
                self._told_at = self._environment.monotonic()
                await self._rest()
        finally:
            self._sending = None

    async def _rest(self) -> None:
        """Wait until the next notification may be sent, or until this is closed. A timer alone: it is done for every one."""
        seconds = self._told_at + TOGETHER - self._environment.monotonic()
        if seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        self._resting = loop.create_future()
        timer = loop.call_later(seconds, self._rested)
        try:
            if not self._closing:
                await self._resting
        finally:
            timer.cancel()

    def _rested(self) -> None:
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)

    async def _send(self, hint: Hint) -> None:
        try:
            payload = self._payload(hint)
            for last_try in (False, True):
                line = await self._line_to_send()
                try:
                    return await line.execute(NOTIFY, self.channel, payload)
                except Exception:
                    # That a quiet connection has died is found out by using it: one dead connection does not cost the hint.
                    if last_try or not line.lost:
                        raise
        except Exception as error:  # noqa: BLE001  whatever the driver raises: what the hint follows has been done
            self._drop(hint, error)

    async def _line_to_send(self) -> Line:
        line = self._line
        if line is not None and not line.lost:
            await self._let_go_of_spare()
            return line
        if self._spare is None or self._spare.lost:
            await self._let_go_of_spare()
            self._spare = await self._open_spare()
        return self._spare

    async def _open_spare(self) -> Line:
        if self._environment.monotonic() < self._no_spare_before:
            raise ConnectionError("the server did not answer a moment ago")
        try:
            line = await self._open()
        except Exception:
            self._no_spare_before = self._environment.monotonic() + self._spare_rest.next()
            raise
        self._spare_rest.reset()
        return line

    async def _let_go_of_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await spare.close()

    def _payload(self, hint: Hint) -> str:
        notification = Notification(
            hint.queues, hint.later, hint.jobs, hint.anything, hint.waiters, hint.priority, by=self._name
        )
        payload = msgspec.json.encode(notification)
        if len(payload) > LARGEST_PAYLOAD:
            payload = msgspec.json.encode(Notification(anything=True, by=self._name))
        return payload.decode()

    def _drop(self, hint: Hint, error: Exception) -> None:
        self.dropped += 1
        LOG.debug("dropped %r: %r", hint, error)

    def heed(self) -> Handed:
        """Return nothing: everyone hears everything."""
        return NOTHING_HANDED

    def answered(self, handed: Handed, *, more: bool) -> None:
        """Do nothing: others have heard."""

    def figures(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    async def close(self) -> None:
        """Send what is still waiting to be sent, within a second, and let go of the connections. Safe to call again."""
        self._closing = True
        self._rested()
        self._tried.set()  # nobody shall wait for it any longer
        while self._mailboxes:
            self._own.leave(self._mailboxes.pop())
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=FLUSH_SECONDS)
        tasks = [task for task in (self._sending, self._keeping) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._let_go_of_spare()
