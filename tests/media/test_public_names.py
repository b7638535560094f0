"""The media application is built on what everybody has: the documented names of Holdfast, and nothing behind them."""

from __future__ import annotations

import ast
from pathlib import Path

import holdfast
import holdfast.server

PUBLIC = {"holdfast": holdfast.__all__, "holdfast.server": holdfast.server.__all__}
SOURCE = Path(__file__).parents[2] / "src" / "holdfast_media"


def imports(tree: ast.AST) -> list[tuple[str, list[str]]]:
    """Return what is imported when a module runs; what is only for type checkers is left out."""
    found: list[tuple[str, list[str]]] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom):
            found.append((node.module or "", [name.name for name in node.names]))
        elif isinstance(node, ast.Import):
            found += [(name.name, []) for name in node.names]
        found += imports(node)
    return found


def test_only_exported_names_of_holdfast_are_imported() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        for module, names in imports(ast.parse(path.read_text())):
            inside = module.startswith("holdfast.") and module not in PUBLIC
            unknown = module in PUBLIC and not set(names) <= set(PUBLIC[module])
            if inside or unknown:
                wrong.append(f"{path.relative_to(SOURCE)}: {module} {names}")
    assert wrong == []
