"""From MODULE:APP to the app, with every way in which that can go wrong told in words that help."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.app import Holdfast
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from types import ModuleType

DEFAULT_NAME = "app"


def load_app(target: str | None) -> Holdfast:
    """Return the app that MODULE:APP names (MODULE alone: its `app`). The current folder is on the path.

    Raises `BadSetting`; what the module itself raises is shown with its own frames only.
    """
    if not target:
        raise BadSetting(
            "which app? Name it as MODULE:APP, such as: holdfast worker shop.jobs:app\n"
            '(or app = "shop.jobs:app" in holdfast.toml, or HOLDFAST_APP)'
        )
    name, _, attribute = target.partition(":")
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        raise BadSetting(f"{target!r} names a file, and an app is named by its module: {module}:{attribute or DEFAULT_NAME}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadSetting(f"{target!r} is not of the form MODULE:APP, such as shop.jobs:app")
    return _app_in(_imported(name), attribute or DEFAULT_NAME, target)


def _imported(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _users_own(name, error) from error
        raise BadSetting(
            f"there is no module {error.name!r}: looked in {here} and in what is installed for {sys.executable}. "
            "Start it from the folder that holds the module, or install it"
        ) from error
    except Exception as error:
        raise _users_own(name, error) from error


def _users_own(name: str, error: Exception) -> BadSetting:
    """Show an error of the module's own code: only the frames from where that code begins."""
    trace = traceback.TracebackException.from_exception(error)
    frames = [index for index, frame in enumerate(trace.stack) if not _machinery(frame.filename)]
    trace.stack = traceback.StackSummary.from_list(trace.stack[frames[0] :] if frames else [])
    lines = "".join(trace.format(chain=False)).removeprefix("Traceback (most recent call last):\n").rstrip()
    return BadSetting(f"the module {name!r} could not be imported, its own code failed:\n{lines}")


def _machinery(file: str) -> bool:
    return file == __file__ or file.startswith("<frozen importlib") or Path(file).parent.name == "importlib"


def _app_in(module: ModuleType, attribute: str, target: str) -> Holdfast:
    found = getattr(module, attribute, None)
    if isinstance(found, Holdfast):
        return found
    others = sorted(name for name, value in vars(module).items() if isinstance(value, Holdfast))
    named = ", ".join(f"{module.__name__}:{name}" for name in others)
    hint = f" Found there: {named}" if others else f' Make one there: {attribute} = Holdfast("sqlite:///jobs.db")'
    if not hasattr(module, attribute):
        raise BadSetting(f"{target}: the module {module.__name__!r} ({_place(module)}) has no {attribute!r}.{hint}")
    raise BadSetting(f"{target} is a {type(found).__name__}, not a Holdfast app.{hint}")


def _place(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "built in"
