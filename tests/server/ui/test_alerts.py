"""The page of the alerts: targets without what must not be seen, deliveries, and delivering again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import UUID

import httpx2
import pytest

from holdfast import Holdfast
from holdfast.core.job import NewJob
from holdfast.core.states import State
from holdfast.notify.port import Hint
from holdfast.server.alerts.delivering import QUEUE, TASK
from holdfast.server.alerts.target import Target
from holdfast.store.port import Action, Role
from tests.server.alerts.hook import Hook
from tests.server.served import SECRET as ADMIN
from tests.server.served import bearer, serving
from tests.server.ui.alerting import SECRET, TARGETS, WORLD, alerted, delivery
from tests.support.until import until

if TYPE_CHECKING:
    from tests.server.ui.conftest import Place


def rows(page: str) -> dict[UUID, str]:
    """Return the rows of the deliveries, from top to bottom."""
    found = re.findall(r'<tr id="delivery-([0-9a-f-]{36})"(.*?)</tr>', page, re.DOTALL)
    return {UUID(job): " ".join(re.sub(r"<[^>]+>", " ", row).split()) for job, row in found}


def test_targets_are_shown_without_secrets_and_paths(place: Place) -> None:
    place.server.context.alerts = TARGETS
    page = place.client.get("/alerts").text
    for shown in ("ops", "hooks.example.com", "everything", "standard, signed", "5m", "chat.example.com", "1h"):
        assert f">{shown}<" in page, shown
    assert "job max retries exceeded, job failed pattern" in page
    for hidden in (SECRET, SECRET[6:], "T0", "xyz", "T1", "abc", "user:word", "https://"):
        assert hidden not in page, hidden


def test_without_targets_the_page_says_what_to_do(place: Place) -> None:
    assert "add a table [alerts.NAME] to holdfast.toml" in place.client.get("/alerts").text


def test_deliveries_are_listed_newest_first_with_what_went_wrong_last(place: Place) -> None:
    well, ill, again, waits = place.do(alerted(place.store))
    found = rows(place.client.get("/alerts").text)
    assert list(found) == [waits, again, ill, well]
    assert "succeeded" in found[well]
    assert "worker startup worker gpu-3 has started 1 " in found[well]
    assert "HTTP_410 chat.example.com wants no more alerts" in found[ill]
    assert "retrying" in found[again]
    assert "HTTP_503 hooks.example.com answered with 503" in found[again]
    assert "ready" in found[waits]
    assert [job for job, row in found.items() if "Redeliver" in row] == [ill, well]


def test_the_list_goes_on_where_its_page_ended(place: Place) -> None:
    jobs = [delivery("ops", "worker_startup", f"worker {number} has started") for number in range(60)]
    place.do(place.store.enqueue(jobs))
    first = place.client.get("/alerts").text
    older = re.search(r'rel="next" href="([^"]+)"', first)
    assert older is not None
    second = place.client.get(older[1]).text
    assert [*rows(first), *rows(second)] == [job.id for job in reversed(jobs)]
    assert "Newest" in second
    assert place.client.get("/alerts?after=nonsense").status_code == 400


def test_a_delivery_is_done_again_and_audited(place: Place) -> None:
    well, ill, *_ = place.do(alerted(place.store))
    operator = place.having(Role.OPERATOR)
    for job in (well, ill):
        answer = operator.post(f"/alerts/{job}/redeliver", data={"back": "/alerts?after="})
        assert (answer.status_code, answer.headers["location"]) == (303, "/alerts?after=")
    assert "It is delivered again." in operator.get("/alerts").text
    assert [view.state for view in place.do(place.store.get([well, ill]))] == [State.READY, State.READY]
    lines = place.do(place.store.audits(limit=2))
    assert [(line.action, line.actor, line.targets) for line in lines] == [
        (Action.RETRY, "operator one", (str(ill),)),
        (Action.RETRY, "operator one", (str(well),)),
    ]


def test_a_delivery_that_is_on_its_way_is_left_alone(place: Place) -> None:
    *_, waits = place.do(alerted(place.store))
    place.client.post(f"/alerts/{waits}/redeliver")
    assert "Refused: it is on its way." in place.client.get("/alerts").text


def test_only_deliveries_are_redelivered(place: Place) -> None:
    other = NewJob(id=WORLD.job_id(), task="mail.send")
    place.do(place.store.enqueue([other]))
    for job in (other.id, WORLD.job_id()):
        answer = place.client.post(f"/alerts/{job}/redeliver")
        assert (answer.status_code, "There is no such delivery" in answer.text) == (404, True)


def test_a_viewer_looks_and_redelivers_nothing(place: Place) -> None:
    well, *_ = place.do(alerted(place.store))
    viewer = place.having(Role.VIEWER)
    page = viewer.get("/alerts").text
    assert well in rows(page)
    assert "Redeliver" not in page
    assert viewer.post(f"/alerts/{well}/redeliver").status_code == 403


def test_a_key_for_some_queues_sees_no_deliveries_of_all(place: Place) -> None:
    well, *_ = place.do(alerted(place.store))
    client = place.having(Role.OPERATOR, queues=("mail",))
    page = client.get("/alerts").text
    assert rows(page) == {}
    assert "Your key is for some queues alone" in page
    assert client.post(f"/alerts/{well}/redeliver").status_code == 403


@pytest.mark.parametrize("args", ["null", "7", '"x"', "[]", "[1, 2]", '{"target": 7}', '{"alert": {"text": "<img src=x>"}}'])
def test_what_pretends_to_be_a_delivery_breaks_nothing(place: Place, args: str) -> None:
    place.do(place.store.enqueue([NewJob(id=WORLD.job_id(), task=TASK, queue=QUEUE, args=args)]))
    answer = place.client.get("/alerts")
    assert (answer.status_code, len(rows(answer.text)), "<img" in answer.text) == (200, 1, False)


async def test_what_is_redelivered_reaches_its_target_again() -> None:
    async with Hook(410, 204) as hook:
        target = Target(name="ops", url=hook.url, secret=SECRET, events=(), allow_private=True)
        with serving(Holdfast("memory://"), housekeeping=False, alerts=[target]) as served:
            headers = bearer(ADMIN) | {"Sec-Fetch-Site": "same-origin"}
            async with httpx2.AsyncClient(base_url=served.url, headers=headers, verify=False, timeout=20.0) as client:

                async def in_state(state: State) -> bool:
                    return bool((await client.get(f"/api/v1/jobs/{job}")).json()["state"] == state)

                sent = delivery("ops", "worker_startup", "worker gpu-3 has started")
                job = sent.id

                async def send() -> None:
                    await served.server.context.store.enqueue([sent])
                    served.server.context.notifier.hint(Hint(queues=frozenset({QUEUE})))

                served.run(send())
                await until(lambda: in_state(State.FAILED))
                assert "HTTP_410" in rows((await client.get("/alerts")).text)[job]
                await client.post(f"/alerts/{job}/redeliver")
                await until(lambda: in_state(State.SUCCEEDED))
    assert [one.headers["webhook-id"] for one in hook.received] == [f"msg_{job.hex}"] * 2
