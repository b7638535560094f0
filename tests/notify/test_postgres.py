"""Hints through PostgreSQL: whose they are, what cannot be read, and connections that die loudly or silently."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.notify.line import Line
from holdfast.notify.port import Hint
from holdfast.notify.postgres import ALONE, CROWDED, CROWDED_FOR, TOGETHER, PostgresNotifier, channel_name
from holdfast.system import SystemEnvironment
from tests.notify.ear import PATIENCE, Ear, eventually
from tests.notify.proxy import Proxy
from tests.support.postgres import MAJORS, PostgresServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

WORLD = SystemEnvironment()
MAIL = Hint(queues=frozenset({"mail"}))
SOMETHING = Hint(anything=True)


def as_another_process(url: str) -> str:
    """Return a URL under which no other notifier is known: those of one process on one URL meet without the server."""
    return f"{url}{'&' if '?' in url else '?'}application_name=holdfast-{uuid4().hex}"


@asynccontextmanager
async def notifying(url: str, ear: Ear | None = None, **options: Any) -> AsyncIterator[PostgresNotifier]:
    """A notifier that listens when it is given an ear. It stands for a process of its own, so it meets no other here."""
    notifier = PostgresNotifier(as_another_process(url), WORLD, **options)
    try:
        if ear is not None:
            await notifier.listen(ear)
        yield notifier
    finally:
        await notifier.close()


@asynccontextmanager
async def session(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """Somebody else's connection."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def notify(connection: asyncpg.Connection[asyncpg.Record], payload: str, channel: str = "holdfast.holdfast") -> None:
    await connection.execute("SELECT pg_notify($1, $2)", channel, payload)


async def end_sessions(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    await connection.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'holdfast-notify' AND datname = current_database()"
    )


# -- what is heard ---------------------------------------------------------------------------------------------------------


async def test_its_own_hints_are_heard_once(postgres_url: str) -> None:
    ear = Ear()
    async with notifying(postgres_url, ear) as notifier, session(postgres_url) as other:
        notifier.hint(MAIL)
        await eventually(lambda: notifier._sending is None)
        # notifications come in the order of their commits: once this one is heard, an echo would have been
        await notify(other, json.dumps({"later": True}))
        await ear.hears(Hint(later=True))
        assert ear.hints == [MAIL, Hint(later=True)]


@pytest.mark.parametrize("payload", ["", "mail", "[1]", '{"queues": 3}', '{"news": "of a later version"}', "{}"])
async def test_what_cannot_be_read_means_anything(postgres_url: str, payload: str) -> None:
    ear = Ear()
    async with notifying(postgres_url, ear), session(postgres_url) as other:
        await notify(other, payload)
        await ear.hears(SOMETHING)
        assert ear.hints == [SOMETHING]


@pytest.mark.row(18)
async def test_a_hint_too_large_to_send_arrives_as_anything(postgres_url: str) -> None:
    own, other = Ear(), Ear()
    large = Hint(jobs=frozenset(WORLD.job_id() for _ in range(300)))
    async with notifying(postgres_url, own) as sender, notifying(postgres_url, other):
        sender.hint(large)
        await other.hears(SOMETHING)
        assert own.hints == [large]
        assert other.hints == [SOMETHING]
        assert sender.dropped == 0


class Clocked(SystemEnvironment):
    """A world whose clock a test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


async def test_what_goes_with_a_commit_is_heard_by_others_then_and_by_its_own_process_once(
    postgres_url: str,
) -> None:
    own, other = Ear(), Ear()
    async with (
        notifying(postgres_url, own) as sender,
        notifying(postgres_url, other),
        session(postgres_url) as connection,
    ):
        text = sender.with_commit(MAIL)
        assert text is not None
        async with connection.transaction():
            await notify(connection, text)
            await connection.execute("SELECT 1")
            assert other.hints == own.hints == []
        await other.hears(MAIL)
        sender.hint(MAIL, told=True)
        await own.hears(MAIL)
        await notify(connection, json.dumps({"later": True}))
        await own.hears(Hint(later=True))
        assert own.hints == [MAIL, Hint(later=True)]
        assert sender._sending is None, "it was sent again"


async def test_only_who_has_said_nothing_for_a_while_notifies_in_a_transaction(postgres_url: str) -> None:
    clock = Clocked()
    notifier = PostgresNotifier(as_another_process(postgres_url), clock)
    try:
        assert notifier.with_commit(MAIL) is not None
        notifier.hint(MAIL, told=True)
        assert notifier.with_commit(MAIL) is None
        clock.seconds += ALONE * 1.01
        assert notifier.with_commit(MAIL) is not None
        clock.seconds += CROWDED * 1.01  # so long the commit took
        notifier.hint(MAIL, told=True)
        clock.seconds += ALONE * 1.01
        assert notifier.with_commit(MAIL) is None, "others that notify wait for it, and it for them"
        clock.seconds += CROWDED_FOR
        assert notifier.with_commit(MAIL) is not None
    finally:
        await notifier.close()


async def test_hints_that_keep_coming_go_out_every_few_milliseconds_at_most(postgres_url: str) -> None:
    ear = Ear()
    async with notifying(postgres_url) as sender, notifying(postgres_url, ear):
        began = time.monotonic()
        hints = [Hint(queues=frozenset({f"queue-{n}"})) for n in range(200)]
        for hint in hints:
            sender.hint(hint)
            await asyncio.sleep(0.001)
        for hint in hints:
            await ear.hears(hint)
        assert len(ear.hints) <= (time.monotonic() - began) / TOGETHER + 2


async def test_handles_of_one_process_hear_each_other_at_once_and_once(postgres_url: str) -> None:
    ear = Ear()
    async with notifying(postgres_url, ear) as hearing:
        neighbour = PostgresNotifier(hearing._url, WORLD)
        neighbour.hint(MAIL)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ear.hints == [MAIL], "it took the way through the server"
        await eventually(lambda: neighbour._sending is None)
        await neighbour.close()
        async with session(postgres_url) as other:
            await notify(other, '{"later": true}', hearing.channel)
            await ear.hears(Hint(later=True))
        assert ear.hints == [MAIL, Hint(later=True)], "its echo was heard too"


async def test_other_schemas_are_not_heard(postgres_url: str) -> None:
    ear = Ear()
    async with (
        notifying(postgres_url, ear, schema="mine") as mine,
        notifying(postgres_url, schema="theirs") as theirs,
        session(postgres_url) as other,
    ):
        theirs.hint(MAIL)
        await eventually(lambda: theirs._sending is None)
        await notify(other, '{"later": true}', mine.channel)
        await ear.hears(Hint(later=True))
        assert ear.hints == [Hint(later=True)]


@pytest.mark.parametrize("schema", ['Odd "name"; \\ it\'s', "ünïcode" * 9, "s" * 63])
async def test_schemas_of_any_name_have_a_channel(postgres_url: str, schema: str) -> None:
    ear = Ear()
    async with notifying(postgres_url, schema=schema) as sender, notifying(postgres_url, ear, schema=schema):
        sender.hint(MAIL)
        await ear.hears(MAIL)


def test_channels_of_long_names_fit_and_differ() -> None:
    names = [channel_name("s" * 62 + end) for end in "ab"]
    assert len(set(names)) == 2
    assert all(len(name.encode()) <= 63 for name in names)
    assert channel_name("holdfast") == "holdfast.holdfast"


async def test_without_listening_hints_are_sent_but_not_heard(postgres_url: str) -> None:
    ear, deaf = Ear(), Ear()
    async with notifying(postgres_url, ear) as other, notifying(postgres_url, deaf, listen=False, prepare=False) as notifier:
        assert not notifier.healthy
        notifier.hint(MAIL)
        await ear.hears(MAIL)
        other.hint(Hint(later=True))
        await eventually(lambda: other._sending is None)
        assert deaf.hints == [MAIL]
        assert not notifier.healthy


def test_a_hint_outside_an_event_loop_is_dropped() -> None:
    notifier = PostgresNotifier("postgresql://127.0.0.1:1/nowhere", WORLD)
    notifier.hint(MAIL)
    assert notifier.dropped == 1


# -- connections that die --------------------------------------------------------------------------------------------------


async def test_a_listener_whose_session_was_ended_comes_back_and_is_told_to_look(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "holdfast.notify")
    ear = Ear()
    async with notifying(postgres_url, ear) as notifier, session(postgres_url) as other:
        assert notifier.healthy
        await end_sessions(other)
        await notify(other, '{"later": true}')  # nobody hears it
        await ear.hears(SOMETHING)
        assert notifier.healthy
        assert ear.hints == [SOMETHING]
        await notify(other, '{"later": true}')
        await ear.hears(Hint(later=True))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_sender_whose_session_was_ended_opens_another(postgres_url: str) -> None:
    ear = Ear()
    async with session(postgres_url) as other, notifying(postgres_url) as sender:
        sender.hint(MAIL)
        await eventually(lambda: sender._sending is None)
        await end_sessions(other)
        async with notifying(postgres_url, ear):
            sender.hint(Hint(later=True))
            await ear.hears(Hint(later=True))
        assert sender.dropped == 0


async def test_one_connection_serves_for_listening_and_sending(postgres_url: str) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast-notify' AND datname = current_database()"
    other_ear = Ear()
    async with session(postgres_url) as other, notifying(postgres_url, other_ear), notifying(postgres_url) as notifier:
        notifier.hint(MAIL)
        await other_ear.hears(MAIL)
        await notifier.listen(Ear())
        notifier.hint(Hint(later=True))
        await other_ear.hears(Hint(later=True))
        await eventually(lambda: notifier._sending is None)
        async with asyncio.timeout(PATIENCE):
            while await other.fetchval(count) != 2:  # the one for sending only ends a moment later
                pass


@pytest.mark.row(17)
async def test_a_silently_dead_connection_is_found_and_replaced(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.notify")
    ear = Ear()
    async with (
        Proxy(postgres_url) as proxy,
        session(postgres_url) as other,
        notifying(proxy.url, ear, timeout=2.0, probe_every=0.1) as notifier,
    ):
        proxy.freeze()
        await notify(other, '{"later": true}')  # goes nowhere
        await ear.hears(SOMETHING)
        assert notifier.healthy
        assert not ear.said.later
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "no answer within 2 s" in caplog.text


@pytest.mark.row(17)
async def test_a_hint_survives_a_silently_dead_connection(postgres_url: str) -> None:
    ear = Ear()
    async with (
        Proxy(postgres_url) as proxy,
        notifying(postgres_url, ear),
        notifying(proxy.url, timeout=2.0) as sender,
    ):
        sender.hint(MAIL)
        await ear.hears(MAIL)
        proxy.freeze()
        sender.hint(Hint(later=True))
        await ear.hears(Hint(later=True))
        assert sender.dropped == 0


@pytest.mark.row(17)
async def test_closing_does_not_wait_for_a_silently_dead_connection(postgres_url: str) -> None:
    async with Proxy(postgres_url) as proxy, notifying(proxy.url, Ear(), timeout=600.0) as notifier:
        proxy.freeze()
        notifier.hint(MAIL)
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await notifier.close()


async def test_a_server_that_is_not_there_costs_hints_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.notify")
    ear = Ear()
    async with notifying("postgresql://somebody:secret@127.0.0.1:1/jobs", ear) as notifier:
        assert not notifier.healthy
        notifier.hint(MAIL)
        await ear.hears(MAIL)
        await eventually(lambda: notifier.dropped > 0)
        notifier.hint(Hint(later=True))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "secret" not in caplog.text


async def test_senders_do_not_storm_a_server_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class World(SystemEnvironment):
        clock = 1_000.0

        def monotonic(self) -> float:
            return self.clock

    attempts = 0

    async def refuse(*_: object, **__: object) -> Line:
        nonlocal attempts
        attempts += 1
        raise ConnectionRefusedError

    monkeypatch.setattr(Line, "open", refuse)
    world = World()
    notifier = PostgresNotifier("postgresql://127.0.0.1:1/jobs", world)

    async def send() -> None:
        before = notifier.dropped
        notifier.hint(MAIL)
        await eventually(lambda: notifier.dropped > before)

    for _ in range(3):
        await send()
    assert attempts == 1
    world.clock += 1.0
    await send()
    await send()
    assert attempts == 2
    await notifier.close()


# -- servers of their own, to be mistreated --------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=MAJORS, ids=lambda major: f"pg{major}")
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer(request.param) as server:
        yield server


async def test_hints_flow_again_after_the_server_was_restarted(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "holdfast.notify")
    url = server.create_database()
    first, second = Ear(), Ear()
    async with notifying(url, first) as sender, notifying(url, second):
        server.restart(immediate=True)
        await first.hears(SOMETHING)
        await second.hears(SOMETHING)
        sender.hint(MAIL)
        await second.hears(MAIL)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO", "INFO"]


async def fill(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    for _ in range(10_000):
        await notify(connection, "x" * 7_000, "hours")


async def enqueues(url: str) -> None:
    """Enqueue, alone and in transactions of the caller's own."""
    app = Holdfast(url)

    @app.task(name="note")
    async def note() -> None: ...

    jobs = [await note.enqueue()]
    async with session(url) as connection, connection.transaction():
        jobs.append(await note.options(conn=connection).enqueue())
    async with await psycopg.AsyncConnection.connect(url) as line:
        jobs.append(await note.options(conn=line).enqueue())
    assert [await job.state() for job in jobs] == ["ready"] * 3
    await app.close()


@pytest.mark.row(18)
async def test_a_full_queue_of_notifications_costs_hints_and_nothing_else() -> None:
    # only from PostgreSQL 17 on can the queue be made small enough to fill
    with PostgresServer(18, settings={"max_notify_queue_pages": "64"}) as server:
        url = server.create_database()
        ear = Ear()
        async with session(url) as sleeper, session(url) as talker, notifying(url, ear) as notifier:
            await sleeper.execute("LISTEN hours")
            await sleeper.execute("BEGIN")
            await sleeper.execute("SELECT 1")
            with pytest.raises(asyncpg.PostgresError, match="too many notifications"):
                await fill(talker)
            notifier.hint(MAIL)
            await eventually(lambda: notifier.dropped == 1)
            assert notifier.healthy
            await enqueues(url)
            await sleeper.execute("COMMIT")
            async with asyncio.timeout(PATIENCE):
                while await talker.fetchval("SELECT pg_notification_queue_usage()") > 0.5:  # asking makes room
                    pass
            await notify(talker, '{"later": true}')
            await ear.hears(MAIL | Hint(later=True))
