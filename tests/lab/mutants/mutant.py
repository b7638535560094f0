"""What a mutant is, and how it is put in."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from holdfast.store.sqlite import _sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Mutant:
    """A bug: what it is, which store shows it, and how it is put in."""

    name: str
    store: str
    replaced: tuple[tuple[Any, str, Callable[[Any], Any]], ...]
    """What is replaced where, by what is made of it."""

    def __str__(self) -> str:
        return self.name

    statements: tuple[tuple[str, str, str], ...] = ()
    """Of the SQL of SQLite: the statement, what is replaced in it, and by what."""
    seed: int = 0
    """One that found it lately: it is tried first, and where it does not any more, all the others are."""

    @contextmanager
    def at_large(self) -> Iterator[None]:
        """Put it in for a while."""
        with ExitStack() as stack:
            for where, name, make in self.replaced:
                stack.enter_context(patch.object(where, name, make(getattr(where, name))))
            for name, text, other in self.statements:
                stack.enter_context(_restated(name, text, other))
            yield


@contextmanager
def _restated(name: str, text: str, other: str) -> Iterator[None]:
    operation, _, statement = name.partition(".")
    known = _sql._statements(operation)
    assert text in known[statement], f"{name} has changed: the mutant must follow"
    with patch.dict(known, {statement: known[statement].replace(text, other)}):
        _forget_statements()
        yield
    _forget_statements()


def _forget_statements() -> None:
    _sql.sql.cache_clear()
    _sql._with_ids.cache_clear()
