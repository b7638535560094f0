"""How long reads may take: a page that somebody looks at must not keep the database from its work."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_patience: Final[ContextVar[float | None]] = ContextVar("holdfast_patience", default=None)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Have the database itself give up every statement within this block that takes longer; then `StoreUnavailable`."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)


def patience_here() -> float | None:
    """Return how many seconds a statement may take here; `None`: as many as the store allows all."""
    return _patience.get()


def too_slow(seconds: float) -> str:
    """Return what is said of a statement that took longer."""
    return f"it took longer than the {seconds:g} s that a look may take, and was given up: look for less"
