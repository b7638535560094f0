"""The parts that notifiers are made of."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import uuid4

import pytest

from holdfast.notify.channel import Backoff, Channel
from holdfast.notify.hub import Hub, Mailbox
from holdfast.notify.joining import Gathered
from holdfast.notify.port import MOST_NAMED, Hint
from holdfast.system import SystemEnvironment
from tests.notify.ear import Ear

MAIL = Hint(queues=frozenset({"mail"}))


def test_what_was_taken_is_not_said_again() -> None:
    gathered = Gathered()
    assert not gathered
    assert not gathered.take()
    gathered.add(MAIL)
    gathered.add(Hint(anything=True))
    assert gathered
    assert gathered.take() == MAIL | Hint(anything=True)
    gathered.add(Hint(later=True))
    assert gathered.take() == Hint(later=True)
    assert not gathered


@pytest.mark.parametrize("field", Hint.__struct_fields__)
def test_joining_keeps_whatever_a_hint_can_say(field: str) -> None:
    values: dict[str, Any] = {"jobs": frozenset({uuid4()}), "priority": 8, "ready": (uuid4(),)}
    work = {"queues": frozenset({"mail"})} if field in {"queues", "priority", "ready"} else {}
    said = Hint(**work | ({} if field == "queues" else {field: values.get(field, True)}))
    gathered = Gathered()
    gathered.add(said)
    assert gathered
    assert gathered.take() == said
    assert not gathered
    assert not gathered.take().ready


def test_hints_of_thousands_of_jobs_joined_name_the_first_of_them_once() -> None:
    ids = [uuid4() for _ in range(3 * MOST_NAMED)]
    gathered, joined = Gathered(), Hint()
    for at in (0, 0, 10, 20):
        said = Hint(frozenset({"mail"}), ready=tuple(ids[at : at + 10]))
        gathered.add(said)
        joined |= said
    assert gathered.take() == joined
    assert joined.ready == tuple(ids[:MOST_NAMED])


async def test_a_listener_whose_loop_was_closed_does_not_trouble_the_sender() -> None:
    hub, gone, here = Hub(), Ear(), Ear()

    async def elsewhere() -> None:
        hub.listen(gone)

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    thread.join()
    mailbox = hub.listen(here)
    hub.send(MAIL)
    hub.send(Hint(later=True))
    hub.leave(mailbox)
    assert here.said == MAIL | Hint(later=True)
    assert gone.hints == []
    assert hub._mailboxes == set()


async def test_a_closed_mailbox_takes_nothing() -> None:
    ear = Ear()
    mailbox = Mailbox(ear)
    assert mailbox.post(MAIL)
    mailbox.close()
    assert not mailbox.post(Hint(later=True))
    await asyncio.sleep(0)
    assert ear.hints == [MAIL]


async def test_a_listener_that_raises_does_not_keep_the_others_from_hearing() -> None:
    hub, here, complaints = Hub(), Ear(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))

    def deaf(_: Hint) -> None:
        raise ValueError("no")

    first, second = hub.listen(deaf), hub.listen(here)
    hub.send(MAIL)
    await here.hears(MAIL)
    hub.leave(first)
    hub.leave(second)
    assert [str(error) for error in complaints] == ["no"]


def test_an_outage_is_said_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.notify")
    channel = Channel("the wire")
    assert not channel.restored()
    for _ in range(2):
        for _ in range(3):
            channel.lost(TimeoutError())
            assert not channel.up
        assert channel.restored()
        assert not channel.restored()
        assert channel.up
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"] * 2
    assert "through the wire (TimeoutError)" in caplog.text


def test_rests_grow_to_five_seconds_and_differ() -> None:
    class World(SystemEnvironment):
        chance = 0.0

        def random(self) -> float:
            return self.chance

    world = World()
    backoff = Backoff(world)
    shortest = [backoff.next() for _ in range(8)]
    assert shortest == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]
    backoff.reset()
    world.chance = 1.0
    assert [backoff.next() for _ in range(8)] == [2 * rest for rest in shortest]
