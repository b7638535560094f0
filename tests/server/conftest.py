"""A server over jobs in memory, and short words for asking it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import httpx2
import pytest

from holdfast import Holdfast
from tests.server.served import SECRET, Served, bearer, made_key, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.store.port import Role, Store

TASK = "tests.render"


class Asking:
    """Asks a server over HTTP, as an admin unless another key is given."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.client = httpx2.Client(base_url=served.api, headers=bearer(SECRET), timeout=20.0, verify=False)

    @property
    def store(self) -> Store:
        """The server's own store: for `served.run` alone."""
        return self.served.server.context.store

    def run(self, work: Any) -> Any:
        return self.served.run(work)

    def key(self, role: Role, **fields: Any) -> str:
        key: str = self.run(made_key(self.store, role, **fields))
        return key

    def get(self, path: str, key: str | None = None) -> httpx2.Response:
        return self.client.get(path, headers=_shown(key))

    def post(self, path: str, body: Any = None, key: str | None = None) -> httpx2.Response:
        return self.client.post(path, json={} if body is None else body, headers=_shown(key))

    def delete(self, path: str, key: str | None = None) -> httpx2.Response:
        return self.client.delete(path, headers=_shown(key))

    # what most tests begin with

    def worker(self, name: str = "one", key: str | None = None) -> UUID:
        answer = self.post("/workers", {"name": name, "id": str(uuid4())}, key)
        assert answer.status_code == 200, answer.text
        return UUID(answer.json()["id"])

    def enqueue(self, **fields: Any) -> UUID:
        answer = self.post("/jobs", {"jobs": [{"task": TASK, **fields}]})
        assert answer.status_code == 200, answer.text
        return UUID(answer.json()["jobs"][0]["job_id"])

    def claim(self, worker: UUID, key: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        answer = self.post(f"/workers/{worker}/claim", {"tasks": [TASK], **fields}, key)
        assert answer.status_code == 200, answer.text
        jobs: list[dict[str, Any]] = answer.json()["jobs"]
        return jobs

    def claimed(self, name: str = "one", **fields: Any) -> dict[str, Any]:
        """Enqueue a job of a task of its own and claim it."""
        task = f"{TASK}.{uuid4()}"
        worker = self.worker(name)
        job_id = self.enqueue(**{"task": task, **fields})
        jobs = self.claim(worker, tasks=[task])
        assert [UUID(job["job_id"]) for job in jobs] == [job_id]
        return jobs[0]

    def taken_over(self, job: dict[str, Any], name: str = "two") -> dict[str, Any]:
        """Let the lease of a job lapse and another worker claim it."""
        self.run(self.store.rewind(2 * job["lease_ms"] / 1000))
        self.run(self.store.reap(1000))
        jobs = self.claim(self.worker(name), tasks=[job["task"]])
        assert [one["job_id"] for one in jobs] == [job["job_id"]]
        return jobs[0]

    def state(self, job: dict[str, Any]) -> str:
        state: str = self.get(f"/jobs/{job['job_id']}").json()["state"]
        return state


def _shown(key: str | None) -> dict[str, str] | None:
    return None if key is None else bearer(key)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A server without housekeeping: what it would do, tests do at the moment that they are about."""
    with serving(Holdfast("memory://"), housekeeping=False, key_rate=1e6, failure_rate=1e6) as served:
        yield served


@pytest.fixture
def ask(served: Served) -> Iterator[Asking]:
    asking = Asking(served)
    yield asking
    asking.client.close()
