"""Args that were stored under an older declaration of a task, brought to the one that stands now."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from holdfast.errors import BadTask
from holdfast.tasks.hooks import encode_hook
from holdfast.tasks.values import Fault, name_of, short

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""From the stored JSON object of one version to that of the next."""
U = TypeVar("U", bound=Upgrade)

FIRST: Final = 1
"""The version of args that say none: plain tasks pay nothing, and what was stored before there were versions is of it."""

# No parameter can have this name, so that no args can be taken for marked ones.
_MARKED: Final = re.compile(r'\s*\{\s*"\$version"\s*:\s*([0-9]{1,9})\s*([,}])')
_ENCODE: Final = msgspec.json.Encoder(enc_hook=encode_hook).encode
_DECODE: Final = msgspec.json.Decoder(dict[str, Any]).decode


class NotUpgraded(Exception):
    """Stored args that cannot be brought to the version that stands now. The codec turns it into `BadArgs`."""


class Evolution:
    """The versions of a task's args, and the steps from each to the next. Steps are declared at import, then only read."""

    __slots__ = ("_marked", "_steps", "_task", "version")

    def __init__(self, task: str, version: int) -> None:
        if type(version) is not int or version < FIRST:
            raise BadTask(f"task {task!r}: version must be a whole number from {FIRST}, not {version!r}")
        self._task = task
        self.version = version
        self._steps: dict[int, Upgrade] = {}
        self._marked = f'{{"$version":{version}'

    def add(self, version: int, function: Upgrade) -> None:
        """Declare the step from a version to the next; `BadTask` for one that could never be taken."""
        if type(version) is not int or not FIRST <= version < self.version:
            known = f"it is of version {self.version}, so there are steps from {FIRST} to {self.version - 1}"
            none = f"it is of version {FIRST}: give its next one with @app.task(version={FIRST + 1})"
            raise BadTask(
                f"task {self._task!r} cannot be upgraded from version {version!r}: {known if self.version > FIRST else none}"
            )
        if version in self._steps:
            raise BadTask(f"task {self._task!r} has two upgrades from version {version}: args take one way")
        if inspect.iscoroutinefunction(function):
            raise BadTask(
                f"task {self._task!r}: the upgrade from version {version} awaits, and args are decoded where nothing can wait: "
                "make it a plain function from dict to dict"
            )
        self._steps[version] = function

    def check(self) -> None:
        """Refuse a task with a step missing: when a worker starts, and not when it meets the first old job."""
        missing = [version for version in range(FIRST, self.version) if version not in self._steps]
        if missing:
            steps = ", ".join(map(str, missing))
            raise BadTask(
                f"task {self._task!r} is of version {self.version} and has no upgrade from version {steps}: "
                f"jobs with such args may still be stored. Declare it with @task.upgrade({missing[0]})"
            )

    def mark(self, text: str) -> str:
        """Return args as they are stored: with their version, where that is not the first."""
        if self.version == FIRST:
            return text
        return f"{self._marked}}}" if text == "{}" else f"{self._marked},{text[1:]}"

    def current(self, text: str) -> str:
        """Return stored args as those of the version that stands now; raises `NotUpgraded`."""
        version, bare = unmarked(text)
        if version == self.version:
            return bare
        if version > self.version:
            raise NotUpgraded(too_new(version, self.version))
        try:
            args = _DECODE(bare)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise NotUpgraded(f"cannot be decoded: {short(error)}") from error
        for step in range(version, self.version):
            args = self._taken(step, args)
        try:
            return _ENCODE(args).decode()
        except Exception as error:  # whatever a class of the user raises
            raise NotUpgraded(
                f"what the upgrade to version {self.version} returned cannot be encoded: {short(error)}"
            ) from error

    def _taken(self, version: int, args: dict[str, Any]) -> dict[str, Any]:
        if (function := self._steps.get(version)) is None:
            raise NotUpgraded(
                f"they are of version {version}, and there is no upgrade to {version + 1}: declare @task.upgrade({version})"
            )
        try:
            upgraded = function(args)
        except Exception as error:
            what = f"{name_of(type(error))}: {short(error)}"
            raise NotUpgraded(f"they are of version {version}, and their upgrade to {version + 1} raised {what}") from error
        if type(upgraded) is not dict:
            kind = name_of(type(upgraded))
            raise NotUpgraded(
                f"they are of version {version}, and their upgrade to {version + 1} returned {kind}: return the dict"
            )
        return upgraded

    def told(self, text: str, fault: Fault) -> Fault:
        """Add to what is wrong with args which version they were stored as."""
        version, _ = unmarked(text)
        if self.version == FIRST:
            return fault
        if version == self.version:
            return fault._replace(reason=f"{fault.reason} (version {version})")
        return fault._replace(reason=f"{fault.reason} (stored as version {version}, upgraded to {self.version})")


def unmarked(text: str) -> tuple[int, str]:
    """Return the version of stored args, and their text without it."""
    if (found := _MARKED.match(text)) is None:
        return FIRST, text
    return int(found[1]), "{}" if found[2] == "}" else "{" + text[found.end() :]


def too_new(version: int, known: int) -> str:
    """Say that args are of a version that is not known here."""
    return f"they are of version {version}, and this process knows the task up to version {known}: a newer worker can run it"
