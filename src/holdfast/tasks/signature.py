"""What a task function takes and gives, read from its signature."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadTask
from holdfast.tasks.values import short

if TYPE_CHECKING:
    from collections.abc import Callable

_MISSING = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a task."""

    name: str
    annotation: Any
    required: bool
    default: Any
    positional_only: bool
    keyword_only: bool


def read_parameters(function: Callable[..., Any], *, task: str, injected: frozenset[str]) -> list[Parameter]:
    """Give the parameters a caller fills, in order; `BadTask` for what has no fixed name and type."""
    parameters = []
    for name, parameter in _signature(function, task).parameters.items():
        if name in injected:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise bad_task(function, task, f"parameter {name!r}", "it is passed by name: move it behind the '/'")
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            fix = f"args are stored by name: name each one, or take one list ({name}: list[...])"
            raise bad_task(function, task, f"parameter '*{name}'", fix)
        if parameter.kind is parameter.VAR_KEYWORD:
            fix = f"args are stored by name: name each one, or take one dict ({name}: dict[str, ...])"
            raise bad_task(function, task, f"parameter '**{name}'", fix)
        if name.startswith("__"):
            raise bad_task(function, task, f"parameter {name!r}", "rename it: two leading underscores are reserved")
        parameters.append(
            Parameter(
                name=name,
                annotation=_resolve(parameter.annotation, function, task, f"parameter {name!r}"),
                required=parameter.default is _MISSING,
                default=parameter.default,
                positional_only=parameter.kind is parameter.POSITIONAL_ONLY,
                keyword_only=parameter.kind is parameter.KEYWORD_ONLY,
            ),
        )
    return parameters


def read_result(function: Callable[..., Any], *, task: str) -> Any:
    """Give the annotation of the result, Any when there is none."""
    return _resolve(_signature(function, task).return_annotation, function, task, "the return annotation")


def bad_task(function: Callable[..., Any], task: str, where: str, why: str) -> BadTask:
    """Make the refusal of a function, naming it, the part at fault and the fix."""
    name = getattr(function, "__qualname__", None) or short(function)
    module = getattr(function, "__module__", None)
    full = f"{module}.{name}" if module else name
    return BadTask(f"task {task!r} cannot be declared from {full}: {where}: {why}")


def _signature(function: Callable[..., Any], task: str) -> inspect.Signature:
    try:
        if sys.version_info >= (3, 14):
            # A name that only a type checker imports must not stop us: the injected `job: Job` is often one.
            from annotationlib import Format  # noqa: PLC0415

            return inspect.signature(function, annotation_format=Format.FORWARDREF)
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise bad_task(function, task, "its signature", f"{short(error)}; wrap it in a function with annotations") from error


def _resolve(annotation: Any, function: Callable[..., Any], task: str, where: str) -> Any:
    if annotation is _MISSING:
        return Any
    # One annotation at a time: an injected parameter's may be unresolvable, and the refusal has to name the one at fault.
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, globalns=_globals(function), include_extras=True)["it"]
    except Exception as error:
        fix = "import or define it at module level, outside of `if TYPE_CHECKING`"
        raise bad_task(function, task, where, f"cannot resolve {short(annotation)!r} ({short(error)}): {fix}") from error


def _globals(function: Callable[..., Any]) -> dict[str, Any]:
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    if not hasattr(inner, "__globals__"):
        inner = type(inner).__call__  # an instance that can be called
    found: dict[str, Any] = getattr(inner, "__globals__", {})
    return found
