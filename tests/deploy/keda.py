"""The fields of KEDA's objects, from types that others generate from its sources: a package of npm, pinned and checked.

KEDA publishes its schema in no registry of packages; `@kubernetes-models/keda` has it as declarations of TypeScript. They are
read as a JSON Schema that takes nothing unknown. The package is fetched once and kept in the environment of the tests.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from hatch_build import Package, _checked, _download, _members

PACKAGE: Final = Package(
    name="@kubernetes-models/keda",
    version="2.0.0",
    integrity="sha512-iqDohrzL51UXD6zM+Rl4RDnZ9Q7jwgikXYrDCxL0sWA5ZTFa7nMfS4Exu2uK6ohA+OUNQMUIFWORAHNpz5qlFw==",
    files={},
)
KEPT: Final = Path(sys.prefix) / "holdfast-tests" / f"keda-{PACKAGE.version}.tgz"
FOLDER: Final = "keda.sh/v1alpha1"
PREFIX: Final = "IComGithubKedacoreKedaV2ApisKedaV1alpha1"
FIELD: Final = re.compile(r'^    "(?P<name>\w+)"(?P<optional>\??): (?P<type>\{.*?^    \}|.*?);$', re.MULTILINE | re.DOTALL)
SIMPLE: Final = {"string": {"type": "string"}, "number": {"type": "number"}, "boolean": {"type": "boolean"}}


def schema(kind: str) -> dict[str, Any]:
    """Return the schema of a kind of object, with those of all that it is made of."""
    files = _files()
    definitions = {_name(path): _schema(text) for path, text in files.items()}
    return {"$ref": f"#/$defs/{kind}", "$defs": definitions}


def _files() -> dict[str, str]:
    """Return the declarations; raises `RuntimeError` with what to do when they cannot be had."""
    content = KEPT.read_bytes() if KEPT.exists() else _download(PACKAGE)
    members = _members(_checked(PACKAGE, content))
    if not KEPT.exists():
        KEPT.parent.mkdir(exist_ok=True)
        partly = KEPT.with_suffix(f".{os.getpid()}")
        partly.write_bytes(content)
        partly.replace(KEPT)
    return {name: text.decode() for name, text in members.items() if name.startswith(f"{FOLDER}/") and name.endswith(".d.ts")}


def _name(path: str) -> str:
    return Path(path).name.removesuffix(".d.ts")


def _schema(text: str) -> dict[str, Any]:
    """Return the schema of one file: an object with its fields, or another name for something."""
    declared = re.search(r"^export interface \w+ (?:extends \w+ )?\{\n(?P<fields>.*?)^\}", text, re.MULTILINE | re.DOTALL)
    if declared is None:
        alias = re.search(r"^export type I?\w+ = (?P<type>[^;]+);", text, re.MULTILINE)
        return {} if alias is None else _type(alias["type"])
    fields = list(FIELD.finditer(re.sub(r"/\*\*.*?\*/", "", declared["fields"], flags=re.DOTALL)))
    return {
        "type": "object",
        "properties": {field["name"]: _type(field["type"]) for field in fields},
        "required": [field["name"] for field in fields if not field["optional"]],
        "additionalProperties": False,
    }


def _type(text: str) -> dict[str, Any]:
    if text in SIMPLE:
        return SIMPLE[text]
    if text.startswith("Array<"):
        return {"type": "array", "items": _type(text[len("Array<") : -1])}
    if words := re.fullmatch(r'"[^"]*"( \| "[^"]*")*', text):
        return {"enum": re.findall(r'"([^"]*)"', words[0])}
    if values := re.fullmatch(r"\{\s*\[key: string\]: (?P<type>.+);\s*\}", text, re.DOTALL):
        return {"type": "object", "additionalProperties": _type(values["type"])}
    if text.startswith(PREFIX):
        return {"$ref": f"#/$defs/{text.removeprefix(PREFIX)}"}
    return {}  # of Kubernetes itself, which has schemas of its own
