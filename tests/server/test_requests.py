"""Requests that are too large, of another shape, or hold what no store accepts; and a store that is away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.conftest import Asking

DEEP = b'{"jobs":[{"task":"t","args":' + b"[" * 100_000
JSON = {"Content-Type": "application/json"}
LIMIT = 2 * 1024 * 1024


def test_a_request_that_is_too_large_is_refused_and_told_the_limit(ask: Asking) -> None:
    whole = ask.client.post("/jobs", content=b" " * (LIMIT + 1), headers=JSON)

    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            yield b" " * 1024 * 1024

    in_pieces = ask.client.post("/jobs", content=pieces(), headers=JSON)
    for answer in (whole, in_pieces):
        assert (answer.status_code, answer.json()["error"], answer.json()["facts"]) == (413, "too_large", {"limit": LIMIT})
        assert "2,097,152 bytes" in answer.json()["message"]


def test_a_request_of_just_the_limit_is_taken(ask: Asking) -> None:
    start = b'{"jobs":[{"task":"t","queue":"large","args":{"x":"'
    body = start + b"x" * (LIMIT - len(start) - 5) + b'"}}]}'
    assert len(body) == LIMIT
    assert ask.client.post("/jobs", content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"nothing", b'{"jobs":[{"task":"\\ud800"}]}', DEEP])
def test_what_is_no_json_is_told_so(ask: Asking, body: bytes) -> None:
    answer = ask.client.post("/jobs", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_json")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, ""),
        ({"jobs": []}, "jobs"),
        ({"jobs": [{"task": 1}]}, "jobs[0].task"),
        ({"jobs": [{"task": "t", "retry": {"factor": "x"}}]}, "jobs[0].retry.factor"),
        ({"jobs": [{"task": "t", "run_at": "tomorrow"}]}, "jobs[0].run_at"),
        ({"jobs": [{"task": "t"}], "under": {"job_id": "x"}}, "under.job_id"),
    ],
)
def test_what_has_another_shape_is_told_where(ask: Asking, body: Any, path: str) -> None:
    answer = ask.post("/jobs", body)
    assert (answer.status_code, answer.json()["error"], answer.json().get("path", "")) == (400, "bad_shape", path)


@pytest.mark.parametrize(
    ("job", "path"),
    [
        ({"task": ""}, "task"),
        ({"task": "t\0"}, "task"),
        ({"task": "t", "queue": "q" * 201}, "queue"),
        ({"task": "t", "priority": 10}, "priority"),
        ({"task": "t", "delay_ms": -1}, "delay"),
        ({"task": "t", "lease_ms": 0}, "lease"),
        ({"task": "t", "id": str(uuid4())}, "id"),
        ({"task": "t", "run_at": "2030-01-01T00:00:00"}, "run_at"),
        ({"task": "t", "run_at": "9999-01-01T00:00:00Z"}, "run_at"),
        ({"task": "t", "retry": {"max_attempts": 0}}, "retry.max_attempts"),
        ({"task": "t", "key": ""}, "unique.key"),
        ({"task": "t", "tags": ["a", ""]}, "tags[1]"),
    ],
)
def test_a_value_that_no_store_accepts_is_told_with_its_place(ask: Asking, job: Any, path: str) -> None:
    answer = ask.post("/jobs", {"jobs": [job]})
    assert (answer.status_code, answer.json()["error"], answer.json()["path"]) == (422, "bad_value", path)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ('{"a": "\\u0000"}', "NUL"),
        ('{"a": 123456789012345678901234567890}', "does not fit in 64 bits"),
        ('{"a": 1e400}', "out of range"),
        ('{"a": ' + "[" * 70 + "]" * 70 + "}", "nested deeper than 64 levels"),
        ("[1, 2]", "must be an object"),
        ("7", "must be an object"),
    ],
)
def test_args_that_no_task_could_take_are_refused_and_told_where(ask: Asking, args: str, said: str) -> None:
    body = '{"jobs": [{"task": "t"}, {"task": "t", "args": ' + args + "}]}"
    answer = ask.client.post("/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    assert answer.json()["path"].startswith("jobs[1].args")
    assert said in answer.json()["message"]


def test_a_misspelt_field_of_a_job_is_refused(ask: Asking) -> None:
    answer = ask.post("/jobs", {"jobs": [{"task": "t", "arg": {"a": 1}}]})
    assert answer.status_code == 400
    assert "`arg`" in answer.json()["message"]


def test_a_body_of_another_kind_is_refused(ask: Asking) -> None:
    answer = ask.client.post("/jobs", content=b"{}", headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")


def test_an_id_that_is_none_is_told_so(ask: Asking) -> None:
    answer = ask.get("/jobs/42")
    assert (answer.status_code, answer.json()["error"], answer.json()["path"]) == (400, "bad_id", "id")


def test_a_worker_says_at_most_ten_kilobytes_of_itself(ask: Asking) -> None:
    for field, large, small in (
        ("metadata", {"x": "y" * 10_000}, {"x": "y" * 9_900}),
        ("capabilities", ["c" * 199] * 51, ["c" * 199] * 50),
    ):
        answer = ask.post("/workers", {"name": "w", field: large})
        assert (answer.status_code, answer.json()["error"]) == (422, "bad_value"), answer.text
        size = len(json.dumps(large, separators=(",", ":"))) if field == "metadata" else sum(map(len, large))
        said = f"worker refused at {field}: has {size:,} bytes, and a worker may say 10,000 bytes of itself there at most"
        assert answer.json()["message"].startswith(f"{said}: leave out")
        assert answer.json()["path"] == field
        assert f"{field}:" in answer.json()["message"] or field in answer.json()["message"]
        assert "worker.info" not in answer.text
        assert ask.post("/workers", {"name": "w", field: small}).status_code == 200


def test_an_unknown_worker_is_told_to_register(ask: Asking) -> None:
    for path, body in (("heartbeat", {}), ("claim", {"tasks": ["t"]})):
        answer = ask.post(f"/workers/{uuid4()}/{path}", body)
        assert (answer.status_code, answer.json()["error"]) == (404, "unknown_worker")
        assert "POST /api/v1/workers" in answer.json()["fix"]


def test_a_path_that_is_not_served_is_told_in_the_same_shape(ask: Asking) -> None:
    assert ask.get("/nothing").json()["error"] == "not_found"
    answer = ask.delete("/jobs")
    assert (answer.status_code, answer.json()["error"], answer.headers["Allow"]) == (405, "method_not_allowed", "POST")


def test_a_store_that_is_away_is_told_and_no_more(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> None:
        raise StoreUnavailable("postgresql://secret-host/db", 5.0, "connection refused")

    monkeypatch.setattr(ask.store, "now", away)
    answer = ask.get("/server")
    assert (answer.status_code, answer.json()["error"], answer.headers["Retry-After"]) == (503, "unavailable", "1")
    assert "secret-host" not in answer.text


def test_an_error_of_the_servers_own_is_told_without_its_text(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(ask.store, "now", broken)
    answer = ask.get("/server")
    assert (answer.status_code, answer.json()["error"]) == (500, "internal")
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("given", [{}, {"id": None}])
def test_an_id_of_ones_own_may_be_left_out(ask: Asking, given: dict[str, None]) -> None:
    """Wherever the document says so."""
    assert ask.post("/workers", {"name": "w", **given}).status_code == 200
    assert ask.post("/jobs", {"jobs": [{"task": "tests.ids", **given}]}).status_code == 200
    job = ask.claimed()
    assert ask.post(f"/jobs/{job['job_id']}/log", {"token": job["token"], "message": "m", **given}).status_code == 200
    item = {"job_id": job["job_id"], "token": job["token"], "message": "m", **given}
    assert ask.post("/leases/log", {"items": [item]}).json() == {"answers": ["applied"]}
