"""A value as JSON text and back, under the one rule that holds on every store.

A value is accepted when decoding its encoding under the annotation gives an equal value, and it holds no NUL character, lone
surrogate, NaN, infinity or integer beyond 64 bits, and its text is at most `max_bytes` long and 64 levels deep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.tasks.explain import Refusal
from holdfast.tasks.hooks import decode_hook, encode_hook
from holdfast.tasks.values import MAX_DEPTH, Fault, find_difference, find_fault, name_of, short, surely_fine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.errors import BadArgs, BadResult
    from holdfast.tasks.shape import Shape

DEFAULT_MAX_BYTES: Final = 1024 * 1024

# The smallest integer that does not fit has 19 digits. Mapping every digit to 0 and searching for a run of them is two passes
# in C; a regular expression took twice as long on short texts and ten times as long on long ones.
_DIGITS_TO_ZERO: Final = bytes(ord("0") if chr(byte) in "0123456789" else byte for byte in range(256))
_NINETEEN_DIGITS: Final = b"0" * 19
_ENCODE: Final = msgspec.json.Encoder(enc_hook=encode_hook).encode
_DECODE_PLAIN: Final = msgspec.json.Decoder().decode


class JsonText:
    """Encodes values of one annotation to text and decodes them; both refuse with the error class it was given.

    `parts` gives the roots of a value with the step that leads to each: the parameters, or the result itself. `wrapped` says
    that the text has one object more than the values inside it.
    """

    __slots__ = ("_annotations", "_decode", "_max_bytes", "_noun", "_parts", "_refusal", "_shape", "_task", "_wrapped")

    def __init__(
        self,
        annotation: Any,
        *,
        shape: Shape,
        task: str,
        max_bytes: int,
        refusal: type[BadArgs | BadResult],
        parts: Callable[[Any], Iterable[tuple[str, Any]]],
        annotations: dict[str, Any],
        wrapped: bool,
    ) -> None:
        self._decode = msgspec.json.Decoder(annotation, dec_hook=decode_hook).decode
        self._shape = shape
        self._task = task
        self._max_bytes = max_bytes
        self._refusal = refusal
        self._parts = parts
        self._annotations = annotations
        self._wrapped = wrapped
        self._noun = "the parameter" if wrapped else "the result"

    def encode(self, value: Any) -> str:
        """Give the text of a value, or refuse it with path and reason. Nothing but the refusal is ever raised."""
        try:
            data = _ENCODE(value)
        except Exception as error:  # surrogates, foreign objects, depth, and whatever a user's class raises
            raise self._not_encoded(value, error) from error
        if len(data) > self._max_bytes:
            raise self.refuse(self._too_large(value, len(data)))
        text = data.decode()
        shape = self._shape
        if (
            (shape.texts and "\\u0000" in text)
            or (shape.integers and len(data) >= len(_NINETEEN_DIGITS) and _NINETEEN_DIGITS in data.translate(_DIGITS_TO_ZERO))
            # NaN and infinity are encoded as null, and a user's `__eq__` may not look there.
            or (shape.nulls and "null" in text)
            or (shape.infinities and ("nf" in text or "nan" in text or "NaN" in text))
            or (shape.deep and data.count(b"[") + data.count(b"{") > MAX_DEPTH)
        ):
            self._look_closely(value, data)
        try:
            received = self._decode(data)
            equal = bool(received == value)
        except Exception as error:  # validators and `__eq__` of a user's class may raise anything
            raise self._not_decoded(value, data, error) from error
        if not equal:
            raise self._not_equal(value, received)
        return text

    def decode(self, text: str) -> Any:
        """Give the value of a stored text, or refuse it with path and reason. Nothing but the refusal is ever raised."""
        try:
            return self._decode(text)
        except Exception as error:  # not JSON, another shape, depth, and a user's validators
            raise self.refuse(self._why_not_decoded(text.encode(errors="replace"), error)) from error

    def refuse(self, fault: Fault) -> BadArgs | BadResult:
        """Make the error of a fault."""
        return self._refusal(fault.reason, path=fault.path, task=self._task)

    def _look_closely(self, value: Any, data: bytes) -> None:
        """Decide exactly, where the quick search of the bytes could not: first on the value, then on the text itself."""
        if surely_fine(self._parts(value)):
            return
        fault = self._fault_of(value)
        if fault is None:
            # A class may encode to something that its fields do not show.
            try:
                tree = _DECODE_PLAIN(data)
            except Exception:  # noqa: BLE001 - no JSON at all: the decoder will say so
                return
            fault = find_fault(tree.items() if self._wrapped else [("result", tree)])
        if fault:
            raise self.refuse(fault)

    def _not_encoded(self, value: Any, error: Exception) -> Exception:
        fault = self._fault_of(value)
        return self.refuse(fault or Fault(self._root(), f"cannot be encoded: {name_of(type(error))}: {short(error)}"))

    def _not_decoded(self, value: Any, data: bytes, error: Exception) -> Exception:
        fault = self._fault_of(value)
        if fault is None and not isinstance(error, msgspec.MsgspecError):
            fault = self._difference_of(value, self._received(data))
        return self.refuse(fault or self._why_not_decoded(data, error, sent=value))

    def _not_equal(self, value: Any, received: Any) -> Exception:
        fault = self._fault_of(value) or self._difference_of(value, received)
        return self.refuse(fault or Fault(self._root(), "what comes back is not equal to it"))

    def _fault_of(self, value: Any) -> Fault | None:
        try:
            return find_fault(self._parts(value))
        except Exception as error:  # noqa: BLE001 - a property or an iterator of a user's class may raise anything
            return Fault(self._root(), f"cannot be read: {name_of(type(error))}: {short(error)}")

    def _difference_of(self, value: Any, received: Any) -> Fault | None:
        try:
            theirs = dict(self._parts(received))
            for step, part in self._parts(value):
                if step not in theirs or not _quietly_equal(part, theirs[step]):
                    return find_difference(part, theirs.get(step), (step,), self._noun)
        except Exception as error:  # noqa: BLE001 - as above
            return Fault(self._root(), f"cannot be compared: {name_of(type(error))}: {short(error)}")
        return None

    def _received(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except Exception:  # noqa: BLE001 - it was the decoder that failed, not the comparison
            return None

    def _why_not_decoded(self, data: bytes, error: Exception, *, sent: Any = None) -> Fault:
        if isinstance(error, RecursionError):
            return Fault(self._root(), f"nested deeper than {MAX_DEPTH} levels")
        if not isinstance(error, msgspec.ValidationError):
            return Fault(self._root(), f"cannot be decoded: {short(error)}")
        prefix = () if self._wrapped else ("result",)
        try:
            refusal = Refusal(error, self._decode, data)
            steps = (*prefix, *refusal.steps)
            whole = describe(self._annotations[steps[0]]) if len(steps) == 1 and steps[0] in self._annotations else ""
            takes = tuple(self._annotations) if self._wrapped else None
            if sent is None:
                return refusal.fault(prefix, takes=takes, whole=whole)
            return refusal.fault(prefix, sent=sent, takes=takes, whole=whole)
        except Exception:  # noqa: BLE001 - explaining met a user's class; the plain message is still true
            return Fault(self._root(), short(error))

    def _too_large(self, value: Any, size: int) -> Fault:
        largest = max(self._parts(value), key=lambda part: len(_ENCODE(part[1])))[0]
        shown, limit = _size(size), _size(self._max_bytes)
        if shown == limit:
            shown, limit = f"{size} bytes", f"{self._max_bytes} bytes"
        return Fault(largest, f"{shown} encoded, the limit is {limit}: store the data elsewhere and pass a reference")

    def _root(self) -> str:
        return "" if self._wrapped else "result"


def describe(annotation: Any) -> str:
    """Name an annotation as its author wrote it, nearly."""
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return "None" if annotation is type(None) else name_of(annotation)
    return short(annotation, 80).replace("typing.", "")


def _quietly_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - find_difference says what was raised
        return False


def _size(count: int) -> str:
    for unit, scale in (("MiB", 1024 * 1024), ("KiB", 1024)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
