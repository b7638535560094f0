"""What a line of `pip install` brings: everything else that is installed here is hidden from those who followed it."""

from __future__ import annotations

import re
import shlex
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parents[2]
CLONE = "../holdfast"
"""Where the pages have the clone: beside the folder of the reader."""

_INSTALL = re.compile(r"pip install [^\n`#]+")

HIDING = """
import sys
from importlib.machinery import PathFinder

HIDDEN = frozenset({hidden!r})


class Visible(PathFinder):
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        return None if fullname.partition(".")[0] in HIDDEN else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Visible
"""
"""What Python imports when it starts: as if the hidden packages were not installed."""


def install_lines(page: str) -> list[str]:
    """Return the installations a page asks for, in order: those of its blocks, and those for PostgreSQL in its text."""
    return [line.strip() for line in _INSTALL.findall(page)]


def asked_for(line: str) -> list[Requirement]:
    """Return what one line names; the clone is Holdfast."""
    words = shlex.split(line)[2:]
    return [Requirement(re.sub(rf"^{re.escape(CLONE)}(?=\[|$)", "holdfast", word)) for word in words]


def brought_by(wanted: Iterable[Requirement]) -> set[str]:
    """Return the names of all distributions that come with some, as their metadata says."""
    found: set[tuple[str, frozenset[str]]] = set()
    rest = list(wanted)
    while rest:
        one = rest.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in found:
            continue
        found.add((name, extras))
        rest += [need for need in _needs(name) if _holds(need, extras)]
    return {name for name, _ in found}


def hidden_from(wanted: Iterable[Requirement]) -> list[str]:
    """Return the modules of everything that is installed here and does not come with what was asked for."""
    there = brought_by(wanted)
    return sorted(module for module, owners in _modules().items() if not there & {canonicalize_name(owner) for owner in owners})


@cache
def _modules() -> Mapping[str, list[str]]:
    return packages_distributions()  # reads the records of everything that is installed, which takes a second


def hide(folder: Path, wanted: Iterable[Requirement]) -> dict[str, str]:
    """Return the variables under which Python sees only what was asked for."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(HIDING.format(hidden=hidden_from(wanted)))
    return {"PYTHONPATH": str(folder)}


def _needs(name: str) -> list[Requirement]:
    if name == "holdfast":  # what is said now, not when it was installed
        said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        optional = [f'{need}; extra == "{extra}"' for extra, needs in said["optional-dependencies"].items() for need in needs]
        return [Requirement(need) for need in said["dependencies"] + optional]
    try:
        return [Requirement(need) for need in requires(name) or []]
    except PackageNotFoundError:  # for another platform, or optional: it is not here, so there is nothing to hide
        return []


def _holds(need: Requirement, extras: frozenset[str]) -> bool:
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras or {""})
