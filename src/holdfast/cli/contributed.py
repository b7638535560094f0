"""Groups of commands that other packages bring: entry points of the group `holdfast.commands`.

An entry point is called as its group is, and leads to a mapping from the names of its commands to where their functions are:

    [project.entry-points."holdfast.commands"]
    media = "holdfast_media.cli.commands:COMMANDS [media]"

    COMMANDS = {"transcode": "holdfast_media.cli.transcode:transcode"}

Nothing of the package is loaded before a command line names its group. A package whose parts are missing raises `ImportError`
when the mapping is loaded; the extra in brackets says what to install.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import BadSetting, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GROUP: Final = "holdfast.commands"
TEXTS: Final = {"media": "Transcode and clip videos, and keep a library of them."}
"""What help says of groups that we bring ourselves: to ask them would be to load them."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """A group of commands of another package."""

    name: str
    entry: EntryPoint

    @property
    def text(self) -> str:
        """What help says of it."""
        return (
            TEXTS.get(self.name) or f"Commands of {self.entry.dist.name if self.entry.dist is not None else self.entry.value}."
        )

    def commands(self) -> Mapping[str, str]:
        """Load where its commands are; raises `MissingExtra` when its package lacks what it needs."""
        try:
            found: Mapping[str, str] = self.entry.load()
        except ImportError as error:
            extra = next(iter(self.entry.extras), self.name)
            raise MissingExtra(extra, f"holdfast {self.name}", error.name or self.entry.module) from error
        if not hasattr(found, "items"):
            raise BadSetting(f"the entry point {self.name} = {self.entry.value!r} of {GROUP} leads to no mapping of commands")
        return found

    def command(self, where: str) -> Callable[..., Any]:
        """Load one of its functions."""
        module, _, name = where.partition(":")
        try:
            function: Callable[..., Any] = getattr(import_module(module), name)
        except ImportError as error:
            extra = next(iter(self.entry.extras), self.name)
            raise MissingExtra(extra, f"holdfast {self.name}", error.name or module) from error
        return function


def contributions() -> dict[str, Contribution]:
    """Return what other packages bring, by the name of the group. Reads what is installed, and loads none of it."""
    return {
        entry.name: Contribution(entry.name, entry) for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name)
    }
