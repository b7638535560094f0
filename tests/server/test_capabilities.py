"""What a worker in any language has: what it was registered with, whatever its claims say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from holdfast import Holdfast
from holdfast.server.api import owners
from holdfast.store.port import Worker
from tests.server.conftest import Asking
from tests.server.served import serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every claim look anew at who could do more."""
    monkeypatch.setattr(owners, "FRESH", 0.0)


@pytest.fixture
def asking() -> Iterator[Asking]:
    """A server of its own: what workers of other tests have would count here."""
    with serving(Holdfast("memory://"), housekeeping=False, key_rate=1e6) as served:
        ask = Asking(served)
        yield ask
        ask.client.close()


def registered(ask: Asking, *capabilities: str, slots: int = 1) -> UUID:
    body = {"name": "of the tests", "id": str(uuid4()), "capabilities": capabilities, "slots": slots}
    answer = ask.post("/workers", body)
    assert answer.status_code == 200, answer.text
    return UUID(answer.json()["id"])


@pytest.mark.parametrize(
    ("has", "says", "gets"),
    [
        ((), {"capabilities": ["gpu"]}, 0),
        ((), {}, 0),
        (("gpu",), {}, 1),
        (("gpu",), {"capabilities": ["gpu", "tape"]}, 1),
        (("gpu",), {"capabilities": []}, 0),
        (("gpu", "tape"), {"capabilities": ["tape"]}, 0),
    ],
)
def test_a_job_is_given_to_whoever_was_registered_with_what_it_requires_and_a_claim_may_only_narrow_that(
    asking: Asking, has: tuple[str, ...], says: dict[str, Any], gets: int
) -> None:
    worker = registered(asking, *has)
    asking.enqueue(requires=["gpu"])
    assert len(asking.claim(worker, **says)) == gets


def test_a_worker_that_registers_anew_has_what_it_says_now(asking: Asking) -> None:
    worker = registered(asking)
    asking.enqueue(requires=["gpu"])
    assert asking.claim(worker) == []
    asking.post("/workers", {"name": "grown", "id": str(worker), "capabilities": ["gpu"]})
    assert len(asking.claim(worker)) == 1


def test_a_worker_that_came_to_another_server_is_known_by_the_store(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "REST", 0.0)
    elsewhere = Worker(id=uuid4(), name="elsewhere", capabilities=("gpu",))
    asking.run(asking.store.register(elsewhere))
    asking.enqueue(requires=["gpu"])
    assert len(asking.claim(elsewhere.id)) == 1


def test_a_job_is_left_to_an_idle_worker_that_has_what_it_prefers_also_where_a_claim_says_nothing_of_others(
    asking: Asking,
) -> None:
    plain, able = registered(asking), registered(asking, "gpu")
    asking.enqueue(prefers=["gpu"], prefer_for_ms=30_000)
    assert asking.claim(plain) == []
    assert len(asking.claim(able)) == 1
    asking.enqueue(prefers=["gpu"], prefer_for_ms=30_000)
    assert len(asking.claim(plain)) == 1, "the other has enough to do"


def test_whoever_says_what_others_have_is_believed(asking: Asking) -> None:
    plain, _ = registered(asking), registered(asking, "gpu")
    asking.enqueue(prefers=["gpu"], prefer_for_ms=30_000)
    assert len(asking.claim(plain, idle=[])) == 1


def test_who_waits_for_a_job_is_given_it_when_it_was_left_to_others_for_long_enough(asking: Asking) -> None:
    plain, _ = registered(asking), registered(asking, "gpu")
    asking.enqueue(prefers=["gpu"], prefer_for_ms=500)
    assert len(asking.claim(plain, wait_ms=20_000)) == 1
