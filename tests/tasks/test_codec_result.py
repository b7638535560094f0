"""Results as JSON text: the same rule as for args, with `result` as the root of every path."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator  # noqa: TC003 - the declared functions below are read at run time
from typing import Any

import pytest

from holdfast.errors import BadResult, BadTask
from holdfast.tasks.codec import ResultCodec


def unannotated(): ...  # type: ignore[no-untyped-def]  # noqa: ANN201 - that is the case under test
def nothing() -> None: ...
def pairs() -> list[tuple[int, str]]: ...  # type: ignore[empty-body]
async def dated() -> dt.datetime: ...  # type: ignore[empty-body]
def stream() -> Iterator[int]: ...  # type: ignore[empty-body]


def codec(function: Callable[..., Any], **options: Any) -> ResultCodec:
    return ResultCodec.of(function, task="report", **options)


def refusal(function: Callable[..., Any], value: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(BadResult) as caught:
        codec(function, **options).encode(value)
    assert caught.value.task == "report"
    return caught.value.path, caught.value.reason


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (unannotated, {"a": [1, 2.5, None, "é", True]}),
        (unannotated, None),
        (nothing, None),
        (pairs, [(1, "a"), (2, "b")]),
        (dated, dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)),
    ],
)
def test_a_result_comes_back_equal(function: Callable[..., Any], value: Any) -> None:
    declared = codec(function)
    received = declared.decode(declared.encode(value))
    assert received == value
    assert type(received) is type(value)


def test_refusals_name_the_place_in_the_result() -> None:
    assert refusal(unannotated, float("nan"))[0] == "result"
    assert refusal(unannotated, [1, {"a b": object()}])[0] == 'result[1]["a b"]'
    assert refusal(pairs, [(1, "a"), (2, 3)]) == ("result[1][1]", "expected str, got int")
    assert refusal(nothing, 1) == ("result", "expected None, got int")
    assert refusal(unannotated, (1,)) == (
        "result",
        "tuple: annotate the result as tuple[...]; as it is, it would come back as list",
    )


def test_a_huge_result_is_refused_by_its_size() -> None:
    path, reason = refusal(unannotated, "x" * 100_000_000)
    assert path == "result"
    assert reason == "95.4 MiB encoded, the limit is 1.0 MiB: store the data elsewhere and pass a reference"


def test_sixty_four_levels_are_accepted_and_one_more_is_not() -> None:
    value: Any = "leaf"
    for _ in range(64):
        value = [value]
    assert codec(unannotated).decode(codec(unannotated).encode(value)) == value
    assert refusal(unannotated, [value])[1] == "nested deeper than 64 levels"
    assert refusal(unannotated, {"a": value})[1] == "nested deeper than 64 levels"


def test_comparing_that_gives_no_truth_value_is_a_refusal() -> None:
    class Array(list[int]):
        __hash__ = None

        def __eq__(self, other: object) -> Any:
            return Undecided()

    class Undecided:
        def __bool__(self) -> bool:
            raise ValueError("the truth value of an array is ambiguous")

    path, reason = refusal(unannotated, Array([1]))
    assert path == "result"
    assert "ValueError: the truth value of an array is ambiguous" in reason


def test_a_stored_result_that_no_longer_decodes_is_refused() -> None:
    with pytest.raises(BadResult) as caught:
        codec(pairs).decode('[[1,"a"],[2]]')
    assert (caught.value.path, caught.value.reason) == ("result[1]", "expected list of length 2")


def test_a_return_annotation_that_cannot_be_stored_is_refused_at_declaration() -> None:
    with pytest.raises(BadTask, match="stream: the return annotation: Iterator cannot be stored as JSON"):
        codec(stream)
