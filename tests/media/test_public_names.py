"""The media application is built on what everybody has: the documented names of Holdfast, and nothing behind them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import holdfast
import holdfast.server

PUBLIC = {"holdfast": holdfast.__all__, "holdfast.server": holdfast.server.__all__}
SOURCE = Path(__file__).parents[2] / "src" / "holdfast_media"


def behind(tree: ast.AST) -> list[str]:
    """Return what is used of Holdfast behind its names, also where only a type checker reads it: nobody can rely on that."""
    nodes = list(ast.walk(tree))
    modules = {
        alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else alias.name.partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and (path := _dotted(node)) is not None and path[0] in modules:
            found.append(".".join((modules[path[0]], *path[1:])))
    return sorted({one for one in found if one.partition(".")[0] == "holdfast" and not _is_public(one)})


def _dotted(node: ast.expr) -> tuple[str, ...] | None:
    """Return the names of `a.b.c`; `None` for what does not begin with a name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)) is not None:
        return (*before, node.attr)
    return None


def _is_public(path: str) -> bool:
    """Tell whether `holdfast.server.create_server`, or what is an attribute of that, is for everybody."""
    module = max((one for one in PUBLIC if path == one or path.startswith(f"{one}.")), key=len)
    name = path.removeprefix(module).removeprefix(".").partition(".")[0]
    return not name or name in PUBLIC[module]


def test_only_exported_names_of_holdfast_are_used() -> None:
    wrong = {str(path.relative_to(SOURCE)): behind(ast.parse(path.read_text())) for path in SOURCE.rglob("*.py")}
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from holdfast.core.states import State", ["holdfast.core.states.State"]),
        ("def late():\n    from holdfast.runtime import worker", ["holdfast.runtime.worker"]),
        ("import holdfast.store.port", ["holdfast.store.port"]),
        ("import holdfast\nholdfast.runtime.worker.RunningWorker()", ["holdfast.runtime", "holdfast.runtime.worker"]),
        ("import holdfast as h\nh.core.retry", ["holdfast.core", "holdfast.core.retry"]),
        ("import holdfast.server\nholdfast.server.asgi", ["holdfast.server.asgi"]),
        ("import holdfast.server\nholdfast.server.create_server(holdfast.Holdfast('').url)", []),
        ("from holdfast import Holdfast, State\nState.READY.value", []),
        ("holdfast = 1\nholdfast.runtime", []),
    ],
)
def test_names_behind_holdfast_are_found_however_they_are_reached(text: str, found: list[str]) -> None:
    assert {one for one in behind(ast.parse(text)) if one in found} == set(found)
    assert bool(behind(ast.parse(text))) is bool(found)
