"""What every notifier promises."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from holdfast.notify.hub import Hub
from holdfast.notify.local import LocalNotifier
from holdfast.notify.port import Hint
from holdfast.notify.postgres import PostgresNotifier
from holdfast.notify.sqlite import SqliteNotifier
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment
from tests.notify.ear import Ear, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from holdfast.notify.port import Notifier

    Make = Callable[[], Notifier]
    """Makes one more handle on the same channel."""
    Listening = Callable[[Ear], Awaitable[Notifier]]
    """Makes one that listens, and closes it when the test is over."""

WORLD = SystemEnvironment()
MAIL = Hint(queues=frozenset({"mail"}))


class Promises:
    """Run for each adapter below."""

    @pytest.fixture
    async def listening(self, make: Make) -> AsyncIterator[Listening]:
        async with AsyncExitStack() as stack:

            async def listening(ear: Ear) -> Notifier:
                notifier = make()
                stack.push_async_callback(notifier.close)
                await notifier.listen(ear)
                return notifier

            yield listening

    async def test_a_hint_reaches_its_own_listener(self, listening: Listening) -> None:
        ear = Ear()
        notifier = await listening(ear)
        notifier.hint(MAIL)
        await ear.hears(MAIL)

    async def test_a_hint_reaches_another_handle_with_all_it_says(self, listening: Listening) -> None:
        own, other = Ear(), Ear()
        sender = await listening(own)
        await listening(other)
        hint = Hint(queues=frozenset({"mail", 'päper "A4"'}), later=True, jobs=frozenset({UUID(int=7), UUID(int=8)}))
        sender.hint(hint)
        await other.hears(hint)
        assert other.said == hint

    async def test_a_handle_need_not_listen_to_send(self, make: Make, listening: Listening) -> None:
        ear = Ear()
        await listening(ear)
        sender = make()
        sender.hint(MAIL)
        await ear.hears(MAIL)
        await sender.close()

    async def test_every_listener_of_a_handle_hears(self, listening: Listening) -> None:
        first, second = Ear(), Ear()
        notifier = await listening(first)
        await notifier.listen(second)
        notifier.hint(MAIL)
        await first.hears(MAIL)
        await second.hears(MAIL)

    async def test_a_listener_in_another_thread_is_called_there(self, make: Make, listening: Listening) -> None:
        here, there = Ear(), Ear()
        ready, thread_ids = threading.Event(), []

        async def elsewhere() -> None:
            notifier = make()
            await notifier.listen(there)
            ready.set()
            await there.hears(MAIL)
            notifier.hint(Hint(later=True))
            await notifier.close()

        def run() -> None:
            thread_ids.append(threading.get_ident())
            asyncio.run(elsewhere())

        sender = await listening(here)
        thread = threading.Thread(target=run)
        thread.start()
        await eventually(ready.is_set)
        sender.hint(MAIL)
        await here.hears(Hint(later=True))
        await eventually(lambda: not thread.is_alive())
        assert there.threads == set(thread_ids)
        assert here.threads == {threading.get_ident()}

    async def test_a_burst_is_joined_and_nothing_said_is_lost(self, listening: Listening) -> None:
        own, other = Ear(), Ear()
        sender = await listening(own)
        await listening(other)
        burst = [
            Hint(queues=frozenset({f"queue-{n % 50}"}), jobs=frozenset({UUID(int=n % 50)}), later=n == 999) for n in range(1000)
        ]
        said = Hint()
        for hint in burst:
            sender.hint(hint)
            said |= hint
        for ear in (own, other):
            await ear.hears(said)
            assert ear.said == said
            assert len(ear.hints) <= 3

    async def test_a_listener_may_send_hints_itself(self, listening: Listening) -> None:
        ear = Ear()

        class Answering(Ear):
            def __call__(self, hint: Hint) -> None:
                super().__call__(hint)
                if not hint.later:
                    answering.hint(Hint(later=True))

        await listening(ear)
        answering = await listening(Answering())
        answering.hint(MAIL)
        await ear.hears(MAIL | Hint(later=True))

    async def test_a_hint_that_says_nothing_is_not_sent(self, listening: Listening) -> None:
        own, other = Ear(), Ear()
        sender = await listening(own)
        await listening(other)
        sender.hint(Hint())
        sender.hint(MAIL)
        await own.hears(MAIL)
        await other.hears(MAIL)
        assert own.hints == other.hints == [MAIL]

    async def test_closing_sends_what_waits(self, make: Make, listening: Listening) -> None:
        ear, own = Ear(), Ear()
        await listening(ear)
        sender = make()
        await sender.listen(own)
        hints = [Hint(queues=frozenset({f"queue-{n}"})) for n in range(3)]
        for hint in hints:
            sender.hint(hint)
            await asyncio.sleep(0)
        await sender.close()
        for hint in hints:
            await own.hears(hint)
            await ear.hears(hint)

    async def test_closing_again_is_safe_and_a_closed_one_is_silent(self, make: Make, listening: Listening) -> None:
        ear, own = Ear(), Ear()
        sender = await listening(ear)
        closed = make()
        await closed.listen(own)
        await closed.close()
        await closed.close()
        assert not closed.healthy
        closed.hint(MAIL)
        sender.hint(Hint(later=True))
        await ear.hears(Hint(later=True))
        assert ear.said == Hint(later=True)
        assert own.hints == []
        with pytest.raises(RuntimeError, match="closed"):
            await closed.listen(own)

    async def test_one_that_was_never_used_can_be_closed(self, make: Make) -> None:
        notifier = make()
        assert not notifier.healthy
        await notifier.close()

    async def test_it_is_healthy_while_it_listens(self, listening: Listening) -> None:
        notifier = await listening(Ear())
        await eventually(lambda: notifier.healthy)
        await notifier.close()
        assert not notifier.healthy


class TestLocal(Promises):
    @pytest.fixture
    def make(self) -> Make:
        hub = Hub()
        return lambda: LocalNotifier(hub)


class TestSqlite(Promises):
    @pytest.fixture
    async def make(self, tmp_path: Path) -> Make:
        path = tmp_path / "jobs.db"
        store = SqliteStore(path, WORLD)
        await store.open()
        await store.close()
        return lambda: SqliteNotifier(path, WORLD)


class TestPostgres(Promises):
    @pytest.fixture
    def make(self, postgres_url: str) -> Make:
        return lambda: PostgresNotifier(postgres_url, WORLD)
