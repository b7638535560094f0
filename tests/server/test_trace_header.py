"""The W3C context of a request is that of the jobs that it enqueues, where they bring none of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

if TYPE_CHECKING:
    from tests.server.conftest import Asking

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def stored(ask: Asking, headers: list[tuple[str, str]], **fields: str) -> str | None:
    """Enqueue a job with these headers, and return the context that was stored with it."""
    raw = [(name.encode(), value.encode("latin-1")) for name, value in (*ask.client.headers.items(), *headers)]
    answer = ask.client.post("/jobs", json={"jobs": [{"task": "t", **fields}]}, headers=raw)
    assert answer.status_code == 200, answer.text
    (view,) = ask.run(ask.store.get([UUID(answer.json()["jobs"][0]["job_id"])]))
    trace: str | None = view.trace
    return trace


def test_the_header_counts_where_the_job_says_nothing(ask: Asking) -> None:
    assert stored(ask, [("traceparent", PARENT)]) == PARENT
    assert stored(ask, [("traceparent", PARENT), ("tracestate", "a=1, b=2")]) == f"{PARENT} a=1, b=2"
    assert stored(ask, [("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]) == f"{PARENT} a=1,b=2"
    assert stored(ask, []) is None


def test_what_the_job_says_counts_more_than_the_header(ask: Asking) -> None:
    own = f"00-{TRACE[::-1]}-{SPAN}-00"
    assert stored(ask, [("traceparent", PARENT), ("tracestate", "a=1")], trace=own) == own


def test_a_version_that_is_yet_to_come_is_read_as_ours(ask: Asking) -> None:
    assert stored(ask, [("traceparent", f"01-{TRACE}-{SPAN}-03-more")]) == f"00-{TRACE}-{SPAN}-01"
    assert stored(ask, [("traceparent", f"cc-{TRACE}-{SPAN}-02")]) == f"00-{TRACE}-{SPAN}-00"


@pytest.mark.parametrize(
    "parent",
    [
        *("", "nonsense", PARENT[:-1], f"{PARENT}-more", f"{PARENT}0", PARENT.upper(), f"ff-{TRACE}-{SPAN}-01"),
        *(f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}-{SPAN}-0g", f"01-{TRACE}-{SPAN}-01more"),
        f"{PARENT},{PARENT}",
    ],
)
def test_a_header_that_cannot_be_read_is_ignored_with_what_belongs_to_it(ask: Asking, parent: str) -> None:
    assert stored(ask, [("traceparent", parent), ("tracestate", "a=1")]) is None


def test_two_contexts_are_none(ask: Asking) -> None:
    assert stored(ask, [("traceparent", PARENT), ("traceparent", PARENT)]) is None


@pytest.mark.parametrize("state", ["a=\x01", "x" * 513, "a=\xe9"])
def test_a_state_that_cannot_be_kept_is_left_out(ask: Asking, state: str) -> None:
    assert stored(ask, [("traceparent", PARENT), ("tracestate", state)]) == PARENT
