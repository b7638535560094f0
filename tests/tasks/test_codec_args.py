"""How a call becomes a JSON object by parameter name, and which functions can be declared."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator  # noqa: TC003 - the declared functions below are read at run time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec  # noqa: TC002 - as above
import pytest

from holdfast.errors import BadArgs, BadTask
from holdfast.tasks.codec import ArgsCodec

if TYPE_CHECKING:
    from nowhere import Job, Ghost  # type: ignore[import-not-found]  # isort: skip


@dataclass
class User:
    name: str
    tags: list[str]


def send(user_id: int, name: str = "nobody", *, urgent: bool = False) -> None: ...


def codec(function: Callable[..., Any], **options: Any) -> ArgsCodec:
    return ArgsCodec.of(function, task="mail.send", **options)


def refusal(function: Callable[..., Any], *args: Any, **kwargs: Any) -> BadArgs:
    with pytest.raises(BadArgs) as caught:
        codec(function).encode(*args, **kwargs)
    assert caught.value.task == "mail.send"
    return caught.value


# --- binding -----------------------------------------------------------------------------------------------------------------


def test_args_are_stored_by_name_however_they_are_passed() -> None:
    expected = {"user_id": 1, "name": "Ada", "urgent": True}
    assert json.loads(codec(send).encode(1, "Ada", urgent=True)) == expected
    assert json.loads(codec(send).encode(urgent=True, name="Ada", user_id=1)) == expected


def test_defaults_are_left_out_so_that_they_can_change_later() -> None:
    assert codec(send).encode(1) == '{"user_id":1}'
    assert codec(send).decode('{"user_id":1}') == ((), {"user_id": 1})


def test_a_default_passed_by_the_caller_is_stored() -> None:
    assert codec(send).encode(1, "nobody") == '{"user_id":1,"name":"nobody"}'


def test_a_task_without_parameters_stores_an_empty_object() -> None:
    def tick() -> None: ...

    assert codec(tick).encode() == "{}"
    assert codec(tick).decode("{}") == ((), {})


def test_a_required_keyword_only_parameter_may_follow_a_default() -> None:
    def task(a: int = 1, *, b: int) -> None: ...

    assert codec(task).encode(b=2) == '{"b":2}'
    assert json.loads(codec(task).encode(5, b=2)) == {"a": 5, "b": 2}
    assert refusal(task, 5).reason == "missing argument 'b'"


def test_decoded_args_call_a_function_with_positional_only_parameters() -> None:
    def task(a: int, b: int = 20, /, c: int = 30, *, d: int = 40) -> tuple[int, ...]:
        return a, b, c, d

    for passed, named in (((1,), {}), ((1, 2), {"d": 4}), ((1, 2, 3), {}), ((1,), {"c": 3})):
        args, kwargs = codec(task).decode(codec(task).encode(*passed, **named))
        assert task(*args, **kwargs) == task(*passed, **named)


def test_a_positional_only_gap_in_stored_args_is_filled_with_the_default() -> None:
    def task(a: int = 10, b: int = 20, /) -> tuple[int, int]:
        return a, b

    args, kwargs = codec(task).decode('{"b":2}')
    assert task(*args, **kwargs) == (10, 2)


def test_a_parameter_may_be_called_self() -> None:
    def task(self: int) -> None: ...

    assert codec(task).encode(self=1) == '{"self":1}'


def test_bound_methods_partials_and_wrapped_functions_are_read_like_the_function() -> None:
    class Mailer:
        def send(self, to: str) -> None: ...

    @functools.wraps(send)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert codec(Mailer().send).encode("ada") == '{"to":"ada"}'
    assert codec(wrapper).encode(1) == '{"user_id":1}'
    assert codec(functools.partial(send, urgent=True)).encode(1) == '{"user_id":1}'


def test_a_wrapped_function_resolves_its_names_in_its_own_module() -> None:
    elsewhere: dict[str, Any] = {"Amount": int}
    exec("def pay(amount: 'Amount'): ...", elsewhere)

    @functools.wraps(elsewhere["pay"])
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    assert refusal(wrapper, "1").reason == "expected int, got str"


@pytest.mark.parametrize(
    ("args", "kwargs", "path", "reason"),
    [
        ((), {}, "user_id", "missing argument 'user_id'"),
        ((1, "a", True), {}, "", "too many positional arguments: the task takes 2, got 3"),
        ((1,), {"x": 1}, "x", "unexpected argument 'x'; the task takes: user_id, name, urgent"),
        ((1,), {"user_id": 1}, "user_id", "argument 'user_id' is passed twice, by position and by name"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(args: tuple[Any, ...], kwargs: dict[str, Any], path: str, reason: str) -> None:
    error = refusal(send, *args, **kwargs)
    assert (error.path, error.reason) == (path, reason)


def test_a_positional_only_argument_is_refused_by_name() -> None:
    def task(a: int, /) -> None: ...

    assert refusal(task, a=1).reason == "argument 'a' is positional-only: pass it without its name"


# --- decoding what was stored by another version -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ('{"name":"x"}', "user_id", "missing argument 'user_id'"),
        ('{"user_id":1,"old":2}', "old", "unexpected argument 'old'; the task takes: user_id, name, urgent"),
        ('{"user_id":"1"}', "user_id", "expected int, got str"),
        ('{"user_id":null}', "user_id", "expected int, got None"),
        ("[1]", "", "expected dict, got list"),
        ('{"user_id":', "", "cannot be decoded: Input data was truncated"),
        ("nonsense", "", "cannot be decoded: JSON is malformed: invalid character (byte 4)"),
    ],
)
def test_args_that_no_longer_decode_are_refused(text: str, path: str, reason: str) -> None:
    with pytest.raises(BadArgs) as caught:
        codec(send).decode(text)
    assert (caught.value.task, caught.value.path, caught.value.reason) == ("mail.send", path, reason)


@pytest.mark.parametrize(
    "text", ['{"user_id":' + "[" * 100_000, '{"user_id":"\ud800"}', "", "\0", '{"user_id":' + "9" * 5000 + "}"]
)
def test_stored_rubbish_is_refused_and_never_crashes(text: str) -> None:
    with pytest.raises(BadArgs):
        codec(send).decode(text)


def test_a_wrong_value_deep_in_stored_args_is_named() -> None:
    def task(users: dict[str, list[User]]) -> None: ...

    text = '{"users":{"a":[],"b c":[{"name":"x","tags":["t"]},{"name":"x","tags":["t",1]}],"d":[{"name":1}]}}'
    with pytest.raises(BadArgs) as caught:
        codec(task).decode(text)
    assert (caught.value.path, caught.value.reason) == ('users["b c"][1].tags[1]', "expected str, got int")


# --- which functions can be declared -----------------------------------------------------------------------------------------


def test_injected_parameters_are_no_args_and_need_not_resolve() -> None:
    def task(job: Job, user_id: int) -> None: ...

    declared = codec(task, injected=frozenset({"job"}))
    assert declared.encode(42) == '{"user_id":42}'
    assert declared.decode('{"user_id":42}') == ((), {"user_id": 42})
    with pytest.raises(BadArgs, match="unexpected argument 'job'"):
        declared.encode(42, job=1)


def test_an_injected_parameter_cannot_be_positional_only() -> None:
    def task(job: Job, /) -> None: ...

    with pytest.raises(BadTask, match="parameter 'job': it is passed by name"):
        codec(task, injected=frozenset({"job"}))


def unnamed(*values: int) -> None: ...
def open_ended(**options: int) -> None: ...
def ghostly(a: int, b: Ghost) -> None: ...
def foreign(it: Iterator[int]) -> None: ...
def nested(it: dict[str, list[Opaque]]) -> None: ...
def anything(it: object) -> None: ...
def ambiguous(it: list[int] | set[int]) -> None: ...
def keyed(it: dict[tuple[int, int], str]) -> None: ...
def raw(it: msgspec.Raw) -> None: ...
def inside(it: Holder) -> None: ...
def dunder(__it: int) -> None: ...  # noqa: PYI063 - two underscores are the case under test


class Opaque: ...


@dataclass
class Holder:
    inner: list[Opaque]


@pytest.mark.parametrize(
    ("function", "where", "fix"),
    [
        (unnamed, "parameter '*values'", "take one list"),
        (open_ended, "parameter '**options'", "take one dict"),
        (ghostly, "parameter 'b'", "import or define it at module level"),
        (foreign, "parameter 'it'", "use a dataclass"),
        (nested, "parameter 'it'", "Opaque cannot be stored as JSON"),
        (anything, "parameter 'it'", "typing.Any"),
        (ambiguous, "parameter 'it'", "separate parameters"),
        (keyed, "parameter 'it'", "a list of pairs"),
        (raw, "parameter 'it'", "typing.Any"),
        (inside, "parameter 'it'", "Opaque cannot be stored as JSON"),
        (dunder, "parameter '__it'", "rename it"),
    ],
)
def test_a_function_that_cannot_be_declared_is_refused_with_the_fix(function: Callable[..., Any], where: str, fix: str) -> None:
    with pytest.raises(BadTask) as caught:
        codec(function)
    message = str(caught.value)
    assert function.__name__ in message
    assert "mail.send" in message
    assert where in message
    assert fix in message
