"""Args and results as JSON text: what a task accepts is decided here, so that it is the same on every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import msgspec

from holdfast.errors import BadArgs, BadResult
from holdfast.tasks.evolving import FIRST, Evolution, NotUpgraded, too_new, unmarked
from holdfast.tasks.explain import unexpected
from holdfast.tasks.sealing import Purpose, SealError, names_key
from holdfast.tasks.shape import Shape, UnsupportedTypeError, shape_of
from holdfast.tasks.signature import Parameter, bad_task, read_parameters, read_result
from holdfast.tasks.text import DEFAULT_MAX_BYTES, JsonText
from holdfast.tasks.values import Fault, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.tasks.sealing import Sealer

__all__ = ["DEFAULT_MAX_BYTES", "ArgsCodec", "ResultCodec"]


class ArgsCodec:
    """Turns the arguments of a call into a JSON object and back.

    A text that was accepted decodes to equal arguments. Arguments the caller leaves out are left out of the text, so a default
    may change between enqueue and run. Raises `BadArgs` and nothing else; safe to use from several threads.

    With a `version` above 1 the text says it, and older text is upgraded before it is validated; with a `sealer` it is
    sealed. The limit on the size is on the clear text: sealed, it is a third longer.
    """

    __slots__ = (
        "_arguments",
        "_given",
        "_names",
        "_parameters",
        "_positional_only",
        "_read",
        "_sealer",
        "_task",
        "_text",
        "_write",
        "evolution",
    )

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        task: str,
        max_bytes: int = DEFAULT_MAX_BYTES,
        injected: frozenset[str] = frozenset(),
        version: int = FIRST,
        sealer: Sealer | None = None,
    ) -> Self:
        """Read a function; `BadTask` when a parameter has no fixed name or no storable type.

        `injected` are the parameters the worker fills: they are no args and are not examined.
        """
        parameters = read_parameters(function, task=task, injected=injected)
        shapes = []
        for parameter in parameters:
            try:
                shapes.append(shape_of(parameter.annotation))
            except UnsupportedTypeError as error:
                raise bad_task(function, task, f"parameter {parameter.name!r}", short(error, 500)) from error
        return cls(parameters, shapes, task=task, max_bytes=max_bytes, version=version, sealer=sealer)

    def __init__(
        self,
        parameters: list[Parameter],
        shapes: list[Shape],
        *,
        task: str,
        max_bytes: int,
        version: int,
        sealer: Sealer | None,
    ) -> None:
        self._task = task
        self._parameters = parameters
        self._names = tuple(parameter.name for parameter in parameters)
        self._positional_only = frozenset(parameter.name for parameter in parameters if parameter.positional_only)
        self._arguments = _struct_of(parameters)
        # decided once: where nothing can be left out there is nothing to look for
        required = all(parameter.required for parameter in parameters)
        self._given: Callable[[Any], dict[str, Any]] = msgspec.structs.asdict if required else _given_by_name
        self._text = JsonText(
            self._arguments,
            shape=_any_of(shapes),
            task=task,
            max_bytes=max_bytes,
            refusal=BadArgs,
            parts=_given,
            annotations={parameter.name: parameter.annotation for parameter in parameters},
            wrapped=True,
        )
        self.evolution = Evolution(task, version)
        """The versions of the args, for who declares upgrades."""
        self._sealer = sealer
        # decided once: a task without versions whose app does not encrypt pays nothing for either
        plain = version == FIRST and sealer is None
        self._write: Callable[[Any], str] = self._text.encode if plain else self._stored
        self._read: Callable[[str], Any] = self._text.decode if plain else self._restored

    def encode(self, /, *args: Any, **kwargs: Any) -> str:
        """Give the text of a call's arguments: a JSON object, by parameter name."""
        try:
            # The struct binds like the function itself, at C speed.
            arguments = self._arguments(*args, **kwargs)
        except TypeError:
            raise self._text.refuse(self._not_bound(args, kwargs)) from None
        if self._positional_only and not self._positional_only.isdisjoint(kwargs):
            raise self._text.refuse(self._not_bound(args, kwargs))
        return self._write(arguments)

    def decode(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give `args, kwargs` to call the function with; injected parameters are added to `kwargs` by the caller."""
        try:
            kwargs = self._given(self._read(text))
        except BadArgs:
            self._refuse_foreign(text)
            raise
        return (self._take_positional_only(kwargs) if self._positional_only else ()), kwargs

    def accept(self, text: str) -> str:
        """Give the text to store for args that somebody wrote as JSON, by the same rule as `encode`.

        They are of the version that stands now, unless they say another; stored text is accepted too.
        """
        try:
            written = unmarked(text)[0] == FIRST and names_key(text) is None
            return self._write(self._text.decode(text) if written else self._read(text))
        except BadArgs:
            self._refuse_foreign(text)
            raise

    def _stored(self, arguments: Any) -> str:
        text = self.evolution.mark(self._text.encode(arguments))
        return text if self._sealer is None else self._sealer.seal(text, Purpose.ARGS, self._task)

    def _restored(self, text: str) -> Any:
        try:
            clear = text if self._sealer is None else self._sealer.open(text, Purpose.ARGS, self._task)
            current = self.evolution.current(clear)
        except SealError as error:
            raise self._text.refuse(Fault("", str(error))) from error
        except NotUpgraded as error:
            raise self._text.refuse(Fault("", str(error))) from error
        try:
            return self._text.decode(current)
        except BadArgs as error:
            raise self._text.refuse(self.evolution.told(clear, Fault(error.path, error.reason))) from error

    def _refuse_foreign(self, text: str) -> None:
        """Say it plainly where text does not decode because another version or another app wrote it."""
        if self._sealer is None and (key_id := names_key(text)) is not None:
            reason = f"the stored text is sealed with the key {key_id!r}, and this app has no encryption: give it encryption="
            raise self._text.refuse(Fault("", reason)) from None
        if self._sealer is None and self.evolution.version == FIRST and (version := unmarked(text)[0]) > FIRST:
            raise self._text.refuse(Fault("", too_new(version, FIRST))) from None

    def _take_positional_only(self, kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Move the positional-only arguments out, up to the last one that was given."""
        given = [parameter for parameter in self._parameters if parameter.positional_only]
        while given and given[-1].name not in kwargs:
            given.pop()
        return tuple(kwargs.pop(parameter.name, parameter.default) for parameter in given)

    def _not_bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fault:
        """Say why a call does not fit the parameters, the first mismatch in the order a caller would read them."""
        positional = [parameter.name for parameter in self._parameters if not parameter.keyword_only]
        if len(args) > len(positional):
            return Fault("", f"too many positional arguments: the task takes {len(positional)}, got {len(args)}")
        by_position = positional[: len(args)]
        for name in kwargs:
            if name not in self._names:
                return Fault(short(name, 80), unexpected(name, self._names))
            if name in by_position:
                return Fault(name, f"argument {name!r} is passed twice, by position and by name")
            if name in self._positional_only:
                return Fault(name, f"argument {name!r} is positional-only: pass it without its name")
        for parameter in self._parameters:
            if parameter.required and parameter.name not in by_position and parameter.name not in kwargs:
                return Fault(parameter.name, f"missing argument {parameter.name!r}")
        return Fault("", "the arguments do not fit the task")


class ResultCodec:
    """Turns the result of a task into JSON text and back.

    A text that was accepted decodes to an equal result. Raises `BadResult` and nothing else; safe to use from several threads.
    With a `sealer` the text is sealed, for this task: the result of another one is to be opened before it comes here.
    """

    __slots__ = ("_nothing", "_read", "_sealer", "_task", "_text", "_write")

    @classmethod
    def of(
        cls, function: Callable[..., Any], *, task: str, max_bytes: int = DEFAULT_MAX_BYTES, sealer: Sealer | None = None
    ) -> Self:
        """Read the return annotation, Any when there is none; `BadTask` when it cannot be stored."""
        annotation = read_result(function, task=task)
        try:
            shape = shape_of(annotation)
        except UnsupportedTypeError as error:
            raise bad_task(function, task, "the return annotation", short(error, 500)) from error
        return cls(annotation, shape, task=task, max_bytes=max_bytes, sealer=sealer)

    def __init__(self, annotation: Any, shape: Shape, *, task: str, max_bytes: int, sealer: Sealer | None) -> None:
        self._task = task
        self._sealer = sealer
        self._text = JsonText(
            annotation,
            shape=shape,
            task=task,
            max_bytes=max_bytes,
            refusal=BadResult,
            parts=_the_result,
            annotations={"result": annotation},
            wrapped=False,
        )
        self._write: Callable[[Any], str] = self._text.encode if sealer is None else self._stored
        self._read: Callable[[str], Any] = self._text.decode if sealer is None else self._restored
        # what most functions return is encoded once
        self._nothing = self._text_of_nothing() if sealer is None else None

    def encode(self, value: Any) -> str:
        """Give the text of a result."""
        return self._nothing if value is None and self._nothing is not None else self._write(value)

    def _text_of_nothing(self) -> str | None:
        try:
            return self._text.encode(None)
        except BadResult:
            return None

    def decode(self, text: str) -> Any:
        """Give the result of a text."""
        return self._read(text)

    def _stored(self, value: Any) -> str:
        assert self._sealer is not None  # noqa: S101  else it is not called
        return self._sealer.seal(self._text.encode(value), Purpose.RESULT, self._task)

    def _restored(self, text: str) -> Any:
        assert self._sealer is not None  # noqa: S101  as above
        try:
            clear = self._sealer.open(text, Purpose.RESULT, self._task)
        except SealError as error:
            raise self._text.refuse(Fault("result", str(error))) from error
        return self._text.decode(clear)


def _struct_of(parameters: list[Parameter]) -> type[msgspec.Struct]:
    """Define the struct whose constructor binds, whose encoding is the text and whose decoder validates it.

    UNSET fields are not encoded: that is how arguments the caller left out stay out. Keyword-only parameters come from a base,
    because msgspec knows them per class, not per field.
    """

    def fields(*, keyword_only: bool) -> list[Any]:
        return [
            (one.name, one.annotation) if one.required else (one.name, one.annotation, msgspec.UNSET)
            for one in parameters
            if one.keyword_only is keyword_only
        ]

    base = msgspec.defstruct("KeywordOnly", fields(keyword_only=True), kw_only=True, forbid_unknown_fields=True)
    return msgspec.defstruct("Args", fields(keyword_only=False), bases=(base,), forbid_unknown_fields=True)


def _given_by_name(arguments: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(arguments).items() if value is not msgspec.UNSET}


def _given(arguments: msgspec.Struct) -> Iterable[tuple[str, Any]]:
    return _given_by_name(arguments).items()


def _the_result(value: Any) -> Iterable[tuple[str, Any]]:
    return [("result", value)]


def _any_of(shapes: list[Shape]) -> Shape:
    return Shape(
        texts=any(shape.texts for shape in shapes),
        integers=any(shape.integers for shape in shapes),
        nulls=any(shape.nulls for shape in shapes),
        infinities=any(shape.infinities for shape in shapes),
        deep=any(shape.deep for shape in shapes),
    )
