"""Arguments that no store can keep: the same verdict at enqueue on every store, and what is accepted comes back as it was."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast import BadArgs, Holdfast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tasks.task import Task
    from tests.support.postgres import PostgresServers

pytestmark = pytest.mark.row(31)

LARGEST = 1024 * 1024
TEXTS = st.text(st.one_of(st.characters(), st.sampled_from('\0\ud800\udfff\x7f\u2028\\"')), max_size=12)
NUMBERS = st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 2**53 + 1, 10**400]) | st.integers()
FLOATS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=8,
)


def nested(levels: int, value: Any = None) -> Any:
    """Wrap a value in so many lists."""
    for _ in range(levels):
        value = [value]
    return value


@st.composite
def hostile(draw: st.DrawFn) -> Any:
    """A value of JSON, perhaps wrapped so deep, or made so large, that it is just within the bounds or just beyond them."""
    value = draw(VALUES)
    value = nested(draw(st.sampled_from([0, 0, 0, 0, 55, 63, 64, 65, 500])), value)
    if not draw(st.integers(0, 9)):
        return {"value": value, "filling": "x" * (LARGEST + draw(st.integers(-200, 20)))}
    return value


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory, postgres_servers: PostgresServers) -> Iterator[list[str]]:
    file = tmp_path_factory.mktemp("hostile") / "jobs.db"
    server = postgres_servers[18]
    database = server.create_database()
    yield ["memory://", f"sqlite:///{file}", database]
    server.drop_database(database)


@dataclass
class Kept:
    """A task on one kind of store."""

    app: Holdfast
    task: Task[[Any], None]

    def verdict(self, value: Any) -> tuple[str, str]:
        """Enqueue, and return the text that the store gives back, or how the value was refused."""
        before = self.app.stats_sync()["live"]
        try:
            handle = self.task.enqueue_sync(value)
        except BadArgs as refused:
            assert self.app.stats_sync()["live"] == before, "what is refused leaves nothing behind"
            return type(refused).__name__, f"{refused.path}: {refused.reason}"
        stored = handle.view_sync().args
        handle.cancel_sync()
        return "accepted", stored


@pytest.fixture(scope="module")
def everywhere(urls: list[str]) -> Iterator[list[Kept]]:
    """The same task on every store."""
    with ExitStack() as stack:
        yield [declared(stack, url) for url in urls]


def declared(stack: ExitStack, url: str) -> Kept:
    app = Holdfast(url)
    stack.callback(app.close_sync)

    @app.task(name="take")
    async def take(value: Any) -> None: ...

    assert app.stats_sync()["live"] == 0
    return Kept(app, take)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(value=hostile())
@example(value=-0.0)
@example(value=[math.nan])
@example(value={"key": -math.inf})
@example(value=[2**63 - 1, -(2**63)])
@example(value=2**63)
@example(value="\0")
@example(value={"\ud800": 1})
@example(value=nested(63))
@example(value=nested(64))
@example(value="x" * (LARGEST - len('{"value":""}')))
@example(value="x" * (LARGEST - len('{"value":""}') + 1))
def test_args_are_accepted_or_refused_alike_on_every_store(everywhere: list[Kept], value: Any) -> None:
    first, *others = [kept.verdict(value) for kept in everywhere]
    assert others == [first] * len(others)
    if first[0] == "accepted":
        assert identical(json.loads(first[1])["value"], value)


def identical(one: Any, other: Any) -> bool:
    """Tell whether two values are the same to the last bit: 1 and 1.0 and True are not, nor are 0.0 and -0.0."""
    if type(one) is not type(other):
        return False
    match one:
        case list():
            return len(one) == len(other) and all(map(identical, one, other))
        case dict():
            return list(one) == list(other) and all(identical(one[key], other[key]) for key in one)
        case float():
            return bool(one.hex() == other.hex())
    return bool(one == other)
