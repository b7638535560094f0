"""`RedisNotifier`: work is handed to one worker through streams, everything else is told to all through Pub/Sub."""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.breaker import BREAKER, LASTS, LEVELS, TRANSITIONS, Limits, Phase
from holdfast.notify.channel import Backoff
from holdfast.notify.hub import Hub
from holdfast.notify.port import NOTHING_HANDED, Handed, Hint
from holdfast.notify.redis import counts as count
from holdfast.notify.redis.gate import Gate
from holdfast.notify.redis.line import FAILURES, Line
from holdfast.notify.redis.reading import Reader
from holdfast.notify.redis.sending import Message, Sender, message
from holdfast.notify.redis.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from holdfast.core.environment import Environment
    from holdfast.notify.hub import Mailbox
    from holdfast.notify.port import Listener, Notifier, Serving
    from holdfast.notify.redis.line import Command

PROBE_EVERY: Final = 1.0
"""Seconds without a word after which a subscription is asked whether it still lives."""

_decode: Final = msgspec.json.Decoder(Message).decode


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the handles of one process on one store meet."""

    watchers: Hub = field(default_factory=Hub)
    """Those who hear everything."""
    claimers: Hub = field(default_factory=Hub)
    """Those who are handed work through streams, and hear the rest."""
    name: str = field(default_factory=lambda: secrets.token_hex(6))


_MEETINGS: Final[dict[tuple[int, str, str], Meeting]] = {}
"""By process (a forked child has its parent's entries), URL and name."""


class RedisNotifier:
    """Hints through Redis, for processes that share a store and have agreed on a `name`.

    `fallback` carries them while Redis does not; without one they reach this process alone, and others find work by polling.
    `timeout` bounds every wait for Redis, and `sweep` is how often a worker looks by itself, for Redis may lose anything.
    """

    def __init__(
        self,
        url: str,
        environment: Environment,
        *,
        name: str,
        fallback: Notifier | None = None,
        sweep: float = 5.0,
        timeout: float = 0.25,
        limits: Limits | None = None,
    ) -> None:
        self._url = url
        self._environment = environment
        self._fallback = fallback
        self._sweep = sweep
        self._timeout = timeout
        self._closing = False
        meeting = self._meeting = _MEETINGS.setdefault((os.getpid(), url, name), Meeting())
        self._everyone = f"{{{name}}}:all"
        self._for_watchers = f"{{{name}}}:watch"
        self._streams = Streams(name, f"{meeting.name}-{secrets.token_hex(4)}")
        self._counts = count.counts()
        instead = "polling" if fallback is None else "PostgreSQL and polling"
        self._gate = Gate(environment, limits or Limits(), instead=instead, changed=self._look_around)
        self._sender = Sender(self._gate, url, timeout, commands=self._commands, sent=self._was_sent, failed=self._was_not_sent)
        self._mailboxes: list[tuple[Hub, Mailbox]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._subscribed: set[str] = set()
        self._line: Line | None = None
        """The subscription."""
        self._hears: bool | None = None
        self._reads: bool | None = None
        """`None`: not tried yet."""
        self._reader: Reader | None = None
        self._tried = asyncio.Event()
        self._tried_reading = asyncio.Event()

    # hearing

    async def listen(self, listener: Listener, serving: Serving | None = None) -> None:
        """Begin to hear hints. Returns once Redis has been reached or has failed to answer.

        Of those who are `serving`, one of all processes is handed each hint of work; this handle takes one such listener.
        """
        if self._closing:
            raise RuntimeError("this notifier is closed: it hears nothing any more")
        if serving is not None and self._reader is not None:
            raise RuntimeError("this notifier has a listener that claims: make another handle")
        hub = self._meeting.watchers if serving is None else self._meeting.claimers
        self._mailboxes.append((hub, hub.listen(listener)))
        if self._fallback is not None:
            await self._fallback.listen(listener)
        await self._subscribe({self._everyone} if serving is not None else {self._everyone, self._for_watchers})
        if serving is not None:
            self._reader = Reader(
                self._gate,
                self._streams,
                listener,
                serving,
                self._environment,
                counts=self._counts,
                pass_on=self._hand_on,
                state=self._reading_is,
            )
            self._start(self._reader.keep(self._url, self._timeout), "read")
            self._start(self._keep_sweeping(), "sweep")
            await self._tried_reading.wait()
        await self._tried.wait()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=f"holdfast-redis-{name}"))

    @property
    def healthy(self) -> bool:
        """Whether hints of other processes arrive now, as far as the last answer of Redis tells."""
        reads = self._reader is None or bool(self._reads)
        return self._gate.phase is Phase.CLOSED and bool(self._hears) and reads and not self._closing

    async def _subscribe(self, channels: set[str]) -> None:
        fresh = channels - self._subscribed
        self._subscribed |= channels
        if not any(task.get_name() == "holdfast-redis-hear" for task in self._tasks):
            self._start(self._keep_hearing(), "hear")
        elif fresh and self._line is not None and not self._line.lost:
            try:
                await self._line.send(("SUBSCRIBE", *fresh))
            except FAILURES:  # whoever reads from it finds out, and subscribes anew
                return

    async def _keep_hearing(self) -> None:
        rest = Backoff(self._environment)
        while True:
            permit = await self._gate.allowed()
            try:
                async with await Line.open(self._url, self._timeout) as line:
                    await line.call(*(("SUBSCRIBE", channel) for channel in sorted(self._subscribed)), timeout=self._timeout)
                    self._line = line
                    self._gate.succeeded(permit)
                    rest.reset()
                    self._hearing_is(None)
                    while True:
                        await self._hear(line)
            except FAILURES as error:
                self._gate.failed(permit, error)
                self._hearing_is(error)
            await asyncio.sleep(rest.next())

    async def _hear(self, line: Line) -> None:
        told = await line.next(PROBE_EVERY)
        if told is None:
            await line.send(("PING",))
            told = await line.next(self._timeout)
            if told is None:
                raise TimeoutError("the subscription does not answer")
        if told[0] == b"message":
            self._heard(told[1].decode(), told[2])

    def _heard(self, channel: str, text: bytes) -> None:
        try:
            hint: Hint = _decode(text)
        except msgspec.MsgspecError:
            hint = Message(anything=True)
        if isinstance(hint, Message) and hint.by == self._meeting.name:  # its own, or a neighbour's: heard long since
            return
        for hub, mailbox in self._mailboxes:
            if channel == self._everyone or hub is self._meeting.watchers:
                mailbox.post(hint)

    def _hearing_is(self, error: BaseException | None) -> None:
        was, self._hears = self._hears, error is None
        self._tried.set()
        if was is not None and was != self._hears:
            self._look_around()

    def _reading_is(self, error: BaseException | None) -> None:
        was, self._reads = self._reads, error is None
        self._tried_reading.set()
        if was is not None and was != self._reads:
            self._look_around()

    def _look_around(self) -> None:
        """Have everyone here look: something may have been missed, or is going to be, and polling is to begin or to end."""
        if not self._closing:
            for _, mailbox in self._mailboxes:
                mailbox.post(Hint(anything=True))

    async def _keep_sweeping(self) -> None:
        """Have the worker look every few seconds, whatever Redis says: what it lost is found so."""
        while True:
            await asyncio.sleep(self._sweep * (0.8 + 0.2 * self._environment.random()))
            self._counts[count.SWEPT] += 1
            for hub, mailbox in self._mailboxes:
                if hub is self._meeting.claimers:
                    mailbox.post(Hint(anything=True))

    # sending

    def hint(self, hint: Hint, *, told: bool = False) -> None:
        """Tell listeners of this process all but work in the next turn of the loop, and everyone through Redis, soon."""
        if self._closing or not (hint or hint.shown):
            return
        self._meeting.watchers.send(hint)
        if told:
            self._meeting.claimers.send(hint)
            if self._fallback is not None:
                self._fallback.hint(hint, told=True)
            return
        if rest := _without_work(hint):
            self._meeting.claimers.send(rest)
        self._sender.add(hint)

    def with_commit(self, hint: Hint) -> str | None:
        """Return what the fallback sends with a commit, while Redis is away.

        When Redis may be tried again, it is: a process that only enqueues has nothing else to try it with.
        """
        if self._fallback is None or self._gate.due:
            return None
        return self._fallback.with_commit(hint)

    def _commands(self, hint: Hint, onward: Hint) -> list[Command]:
        commands: list[Command] = []
        if onward:
            commands.append(("PUBLISH", self._everyone, message(onward, self._meeting.name)))
        if hint.queues:
            commands.append(self._streams.add(hint))
        if rest := _without_work(hint):
            commands.append(("PUBLISH", self._everyone, message(rest, self._meeting.name)))
        if hint.queues or hint.shown:
            seen = Hint(hint.queues, priority=hint.priority, shown=hint.shown)
            commands.append(("PUBLISH", self._for_watchers, message(seen, self._meeting.name)))
        return commands

    def _was_sent(self, _: Hint) -> None:
        self._counts[count.SENT] += 1

    def _was_not_sent(self, hint: Hint) -> None:
        if not hint:  # what only people look at: they look by themselves
            return
        self._counts[count.FELL_BACK] += 1
        if self._fallback is not None:
            self._fallback.hint(hint)
        else:
            self._meeting.claimers.send(hint)

    # work that was handed over

    def heed(self) -> Handed:
        """Return the hint of work that its listener was handed, and has not answered."""
        return NOTHING_HANDED if self._reader is None else self._reader.heed()

    def answered(self, handed: Handed, *, more: bool) -> None:
        """Take the answer; where there may be more, everyone hears of it."""
        if self._reader is not None:
            self._reader.answered(handed, more=more)

    def _hand_on(self, hint: Hint) -> None:
        """Have every other worker hear of it."""
        self._counts[count.HANDED_ON] += 1
        own = next((mailbox for hub, mailbox in self._mailboxes if hub is self._meeting.claimers), None)
        self._meeting.claimers.send(hint, but=own)
        self._sender.add(hint, onward=True)

    def figures(self) -> Mapping[str, int]:
        """Return its counts, and how it stands with the breaker."""
        entered = {f"{TRANSITIONS}:{phase}": self._gate.transitions[phase] for phase in Phase}
        return {**self._counts, **entered, BREAKER: LEVELS[self._gate.phase], LASTS: int(self._gate.lasts)}

    async def close(self) -> None:
        """Send what waits, within a second, and let go of connections and tasks. Safe to call again."""
        if self._closing:
            return
        if handed := self.heed():
            self.answered(handed, more=True)
        self._closing = True
        self._tried.set()  # nobody shall wait for it any longer
        self._tried_reading.set()
        while self._mailboxes:
            hub, mailbox = self._mailboxes.pop()
            hub.leave(mailbox)
        await self._sender.flush()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sender.close()
        await self._leave()
        if self._fallback is not None:
            await self._fallback.close()

    async def _leave(self) -> None:
        """Strike its consumer off, where Redis answers: nobody else would for minutes."""
        if self._reader is None or self._gate.phase is not Phase.CLOSED:
            return
        try:
            async with await Line.open(self._url, self._timeout) as line:
                await self._streams.leave(line, self._timeout)
        except FAILURES:
            return


def _without_work(hint: Hint) -> Hint:
    return Hint(later=hint.later, jobs=hint.jobs, anything=hint.anything, waiters=hint.waiters)
