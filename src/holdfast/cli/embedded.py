"""The command line inside another program's: `manage.py holdfast …`, `flask holdfast …`. The app is that program's."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.cli.ending import run_and_exit
from holdfast.config import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.app import Holdfast


@dataclass(frozen=True, slots=True)
class Embedding:
    """The program around the command line."""

    app: Holdfast
    command: tuple[str, ...]
    """What starts that program again, up to the words of Holdfast's own command line."""
    keeps_logs: bool = False
    """Whether it has set up its logs itself: then a worker leaves them as they are."""


embedding: ContextVar[Embedding | None] = ContextVar("holdfast_embedding", default=None)
"""Set while a command runs inside another program."""


def run_embedded(around: Embedding, words: Sequence[str], settings: Mapping[str, object]) -> None:
    """Run a command on the app and the store of another program, and exit with its code.

    `settings` are that program's own, by the names of Holdfast's: they rank below the environment and above a file.
    """
    for name, value in settings.items():
        os.environ.setdefault(f"{PREFIX}{name.upper()}", _text(value))
    os.environ[f"{PREFIX}URL"] = around.app.url  # what its own code works on, whatever else the environment says
    os.environ.pop(f"{PREFIX}APP", None)
    sys.argv = [" ".join(around.command), *words]
    token = embedding.set(around)
    try:
        run_and_exit()
    finally:
        embedding.reset(token)


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple, set, frozenset)) else str(value)
