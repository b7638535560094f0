"""The probes of a server: what strangers are told, what those who may look, and what makes them fail."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx2

from holdfast import Holdfast
from holdfast.runtime.heartbeat import Heartbeat
from holdfast.server.alerts.target import Target
from holdfast.store.memory import MemoryStore
from holdfast.store.port import Role, Worker
from tests.server.served import SECRET, Served, bearer, made_key, serving
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

HOOK_KEY = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
LOOPS = ["presence", "promoter", "reaper", "sweeper", "pruner", "measurer"]


def got(served: Served, path: str, key: str | None = None) -> tuple[int, dict[str, Any]]:
    answer = httpx2.get(f"{served.url}/health/{path}", headers={} if key is None else bearer(key), verify=False)
    body: dict[str, Any] = answer.json()
    return answer.status_code, body


def failing(body: dict[str, Any]) -> dict[str, str]:
    assert body["ok"] == all(check["ok"] for check in body["checks"])
    return {check["name"]: check.get("detail", "") for check in body["checks"] if not check["ok"]}


def test_strangers_are_told_the_checks_and_those_who_may_look_the_figures_too(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="work")
    async def work() -> None: ...

    with serving(app) as served:
        store = served.server.context.store
        viewer, worker = (served.run(made_key(store, role)) for role in (Role.VIEWER, Role.WORKER))
        served.run(store.register(Worker(id=app.world().environment.job_id(), name="w")))
        work.enqueue_sync()
        work.options(delay=3600).enqueue_sync()

        loops = [{"name": name, "ok": True} for name in [*LOOPS, "scheduler"]]
        store_checks = [{"name": name, "ok": True} for name in ("database", "schema")]
        for key in (None, "nonsense", worker):
            assert got(served, "ready", key) == (200, {"ok": True, "checks": store_checks + loops})
        assert got(served, "live") == (200, {"ok": True, "checks": loops})

        for key in (viewer, SECRET):
            figures = _fresh(served, key)
            assert (figures["active_workers"], figures["pending_jobs"], figures["running_jobs"]) == (1, 2, 0)
            assert figures["storage"]["bytes_used"] > 0
            assert figures["storage"]["bytes_free"] > 0
    app.close_sync()


def _fresh(served: Served, key: str) -> dict[str, Any]:
    """Return the figures, once they are no longer those that an earlier probe was told."""

    async def both_jobs() -> bool:
        return bool((await asyncio.to_thread(got, served, "ready", key))[1]["figures"]["pending_jobs"] == 2)

    asyncio.run(until(both_jobs))
    figures: dict[str, Any] = got(served, "ready", key)[1]["figures"]
    return figures


def test_probes_ask_the_store_once_for_as_long_as_its_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.health.KEPT", 1e9)
    asked = []
    real = MemoryStore.storage

    async def storage(self: MemoryStore) -> Any:
        asked.append(self)
        return await real(self)

    monkeypatch.setattr(MemoryStore, "storage", storage)
    with serving(Holdfast("memory://"), housekeeping=False) as served:
        for _ in range(20):
            names = ("database", "schema", "measurer")
            assert got(served, "ready") == (200, {"ok": True, "checks": [{"name": name, "ok": True} for name in names]})
    assert len(asked) == 1


def test_a_store_that_does_not_answer_in_time_makes_it_unready_and_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: MemoryStore) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("holdfast.server.health.IN_TIME", 0.05)
    monkeypatch.setattr(MemoryStore, "stats", never)
    with serving(Holdfast("memory://"), housekeeping=False) as served:
        status, body = got(served, "ready", SECRET)
        assert (status, failing(body)) == (503, {"database": "no answer within 0.05 s"})
        assert got(served, "live") == (200, {"ok": True, "checks": [{"name": "measurer", "ok": True}]})


def test_a_schema_of_another_version_makes_it_unready(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/jobs.db") as served:
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as file, file:
            file.execute("UPDATE holdfast_meta SET version = 99")
        status, body = got(served, "ready", SECRET)
    assert (status, failing(body)) == (503, {"schema": "SchemaTooNew"})


def test_a_loop_that_has_ended_makes_live_and_ready_fail() -> None:
    with serving(Holdfast("memory://")) as served:

        async def end() -> None:
            (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "holdfast-reaper")
            task.cancel()
            await asyncio.wait([task])

        assert got(served, "live")[0] == 200
        served.run(end())
        for path in ("live", "ready"):
            status, body = got(served, path)
            assert (status, failing(body)) == (503, {"reaper": "it does not run"})


def test_what_tells_of_trouble_is_looked_after_like_every_other_loop() -> None:
    target = Target(name="ops", url="https://hooks.example.com/", secret=HOOK_KEY, events=())
    with serving(Holdfast("memory://"), housekeeping=False, alerts=[target]) as served:
        assert [check["name"] for check in got(served, "live")[1]["checks"]] == ["measurer", "alerts", "worker"]

        async def end() -> None:
            (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "holdfast-alerts")
            task.cancel()
            await asyncio.wait([task])

        served.run(end())
        assert failing(got(served, "live")[1]) == {"alerts": "it does not run"}


def test_a_loop_that_is_stuck_makes_live_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: MemoryStore, *args: Any, **kwargs: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(MemoryStore, "unblock", never)
    monkeypatch.setattr("holdfast.server.loops.BOUND", 0.05)
    with serving(Holdfast("memory://")) as served:

        async def is_named() -> bool:
            status, body = await asyncio.to_thread(got, served, "live")
            return status == 503 and "should have moved" in failing(body).get("sweeper", "")

        asyncio.run(until(is_named))
        _release(served)


def test_a_worker_in_the_same_process_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Holdfast("memory://"), housekeeping=False, worker={}) as served:
        assert got(served, "live") == (
            200,
            {"ok": True, "checks": [{"name": name, "ok": True} for name in ("measurer", "worker")]},
        )
        monkeypatch.setattr(Heartbeat, "lives", False)
        assert failing(got(served, "live")[1]) == {"worker": "heartbeat"}


def _release(served: Served) -> None:
    """End what is stuck: a server waits for its loops when it stops."""

    async def end() -> None:
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "holdfast-sweeper")
        task.cancel()

    served.run(end())
