"""msgspec's refusal of a text, said in the user's words and with the full path.

msgspec names list items and fields but writes `[...]` for the value of a dict and speaks of JSON types. Here the key is found
by decoding again with fewer keys, and the type is that of the value the user passed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.tasks.values import Fault, Steps, children, name_of, render, short

if TYPE_CHECKING:
    from collections.abc import Callable

_MESSAGE: Final = re.compile(r"(?s)(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?")
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|(?P<some>\[\.\.\.\])")
_EXPECTED: Final = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<got>[^`]+)`")
_QUOTED: Final = re.compile(r"`([^`]*)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.+)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.+)`")
_JSON_NAMES: Final = {"null": "None", "array": "list", "object": "dict"}
_SOME: Final = object()
_NOWHERE: Final = object()


class Refusal:
    """One error of a decoder, taken apart."""

    def __init__(self, error: Exception, decode: Callable[[bytes], Any], data: bytes) -> None:
        parts = _MESSAGE.fullmatch(str(error))
        self.message = parts["what"] if parts else str(error)
        self._of_key = bool(parts and parts["key"])
        self._path = (parts["path"] if parts else None) or ""
        self._decode = decode
        self.steps = self._resolve(data) + _model_steps(error)
        if (reason := _model_reason(error)) is not None:
            self.message = reason

    def fault(self, prefix: Steps, *, sent: Any = _NOWHERE, takes: tuple[str, ...] | None = None, whole: str = "") -> Fault:
        """Say it: `sent` is the value that was encoded, `takes` the parameters, `whole` the annotation of a bare step."""
        steps = (*prefix, *self.steps)
        if missing := _MISSING.fullmatch(self.message):
            noun = "field" if self.steps or takes is None else "argument"
            return Fault(render((*steps, missing["name"])), f"missing {noun} {missing['name']!r}")
        if unknown := _UNKNOWN.fullmatch(self.message):
            name = unknown["name"]
            if self.steps or takes is None:
                return Fault(render((*steps, name)), f"unexpected field {name!r}")
            return Fault(render((name,)), unexpected(name, takes))
        if found := _EXPECTED.fullmatch(self.message):
            expected = whole or _in_python(found["expected"])
            if self._of_key:
                return Fault(render(steps), f"in the key: expected {expected}, got {found['got']}")
            part = locate(sent, self.steps)
            got = _in_python(found["got"]) if part is _NOWHERE else name_of(type(part))
            return Fault(render(steps), f"expected {expected}, got {got}")
        reason = short(_QUOTED.sub(lambda quoted: _in_python(quoted[1]), self.message))
        if reason.startswith("Invalid") and (part := locate(sent, self.steps)) is not _NOWHERE and type(part) is not str:
            reason += f" (got {name_of(type(part))})"  # msgspec speaks of the text, which the user never saw
        return Fault(render(steps), reason[:1].lower() + reason[1:])

    def _resolve(self, data: bytes) -> Steps:
        """Turn `$.a[0][...]` into steps, each `[...]` into the key it stands for."""
        wanted: list[Any] = [
            _SOME if found["some"] else int(found["index"]) if found["index"] else found["name"]
            for found in _STEP.finditer(self._path)
        ]
        if self._of_key:
            wanted.append(_SOME)
        if _SOME not in wanted:
            return tuple(wanted)
        tree = msgspec.json.decode(data)
        steps: Steps = ()
        for step in wanted:
            if step is _SOME:
                key = self._failing_key(tree, steps)
                tree = _with_keys(tree, steps, [key])
                steps = (*steps, key)
            else:
                steps = (*steps, step)
        return steps

    def _failing_key(self, tree: Any, steps: Steps) -> str:
        """Find the first key of the dict at `steps` without which the same error does not happen."""
        keys = list(locate(tree, steps))

        def fails(count: int) -> bool:
            try:
                self._decode(msgspec.json.encode(_with_keys(tree, steps, keys[:count])))
            except Exception as error:  # noqa: BLE001 - a user's validator may raise anything
                parts = _MESSAGE.fullmatch(str(error))
                return bool(parts and parts["path"] == self._path)
            return False

        return str(keys[min(bisect_left(range(len(keys) + 1), x=True, key=fails), len(keys)) - 1])


def unexpected(name: str, takes: tuple[str, ...]) -> str:
    """Say that a task takes no such argument, and which it takes."""
    return f"unexpected argument {short(name, 80)!r}; the task takes: {', '.join(takes) or 'none'}"


def locate(value: Any, steps: Steps) -> Any:
    """Give the part of a value that the steps lead to, or a mark that there is none."""
    for step in steps:
        value = dict(children(value) or ()).get(step, _NOWHERE)
    return value


def _with_keys(tree: Any, steps: Steps, keys: list[str]) -> Any:
    """Copy the tree along the steps, keeping only some keys of the dict they lead to."""
    if not steps:
        return {key: tree[key] for key in keys}
    copy = tree.copy()
    copy[steps[0]] = _with_keys(tree[steps[0]], steps[1:], keys)
    return copy


def _in_python(names: str) -> str:
    return " | ".join(_JSON_NAMES.get(name, name) for name in names.split(" | "))


def _model_steps(error: Exception) -> Steps:
    first = _model_error(error)
    return tuple(first["loc"]) if first else ()


def _model_reason(error: Exception) -> str | None:
    first = _model_error(error)
    return str(first["msg"]) if first else None


def _model_error(error: Exception) -> dict[str, Any] | None:
    """Give the first complaint of a pydantic ValidationError behind msgspec's, None if there is none."""
    errors = getattr(error.__cause__, "errors", None)
    found = errors() if callable(errors) else None
    return found[0] if isinstance(found, list) and found and {"loc", "msg"} <= found[0].keys() else None
