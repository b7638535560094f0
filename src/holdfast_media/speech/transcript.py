"""What is said when, and who can find out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Segment:
    """Something that is said without a break."""

    start: float
    """Seconds from the beginning."""
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """All that is said, in the order of time."""

    segments: tuple[Segment, ...]
    language: str | None = None
    """Its code, such as `en`; `None` when nobody knows."""


class Transcriber(Protocol):
    """Turns speech into text. Blocks; runs in a thread of a worker."""

    @property
    def recipe(self) -> str:
        """What determines its output, such as its name, model and options: part of the address of what it gives."""
        ...

    def check(self) -> None:
        """Raise `MediaError` when it could not work here, and say how to mend that. Asked before any work is done."""
        ...

    def transcribe(
        self,
        source: Path,
        *,
        language: str | None,
        on_progress: Callable[[float], None],
        stop: Callable[[], str | None],
    ) -> Transcript:
        """Return what is said in a file; empty when it has no sound.

        `language`: what is spoken, where that is known. `on_progress` gets the share that is done, from 0 to 1. `stop` is asked
        at least four times a second; when it gives a reason, the work ends at once with `MediaError`.
        """
        ...
