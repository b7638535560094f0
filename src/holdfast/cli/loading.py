"""From MODULE:APP to the app, with every way in which that can go wrong told in words that help."""

from __future__ import annotations

import importlib
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.app import Holdfast
from holdfast.cli.embedded import embedding
from holdfast.connect import same_store, without_password
from holdfast.core.job import DEFAULT_LEASE
from holdfast.core.spans import span
from holdfast.errors import BadSetting, HoldfastError

if TYPE_CHECKING:
    from types import ModuleType

    from holdfast.config import Loaded

DEFAULT_NAME = "app"
OWN = Path(__file__).resolve().parent.parent
STANDARD = Path(sysconfig.get_path("stdlib")).resolve()


def load_app(target: str | None, *, command: str = "worker") -> Holdfast:
    """Return the app that MODULE:APP names (MODULE alone: its `app`), for a command. The current folder is on the path.

    Inside another program it is that program's app, and none has to be named. Raises `BadSetting`: what Holdfast refuses in
    the module is told with its place, what else the module raises with its own frames only.
    """
    if not target and (around := embedding.get()) is not None:
        return around.app
    if not target:
        raise BadSetting(
            f"which app? Name it as MODULE:APP, such as: holdfast {command} shop.jobs:app\n"
            '(or app = "shop.jobs:app" in holdfast.toml, or HOLDFAST_APP)'
        )
    name, _, attribute = target.partition(":")
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        raise BadSetting(f"{target!r} names a file, and an app is named by its module: {module}:{attribute or DEFAULT_NAME}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadSetting(f"{target!r} is not of the form MODULE:APP, such as shop.jobs:app")
    return _app_in(_imported(name), attribute or DEFAULT_NAME, target)


def another_store(app: Holdfast, loaded: Loaded) -> str | None:
    """Return a warning when the settings name another store than the one the app was given; raises when nobody names one."""
    configured = loaded.settings.url
    if configured is None or same_store(configured, app.url):
        return None
    return (
        f"{loaded.origins['url']} names the store {without_password(configured)}, but the app was given "
        f"{without_password(app.url)} and works on that. To have the settings decide, write Holdfast() without a URL"
    )


def unused_lease(app: Holdfast, loaded: Loaded) -> str | None:
    """Return a warning when the settings say a lease that the tasks of the app do not have."""
    if loaded.settings.lease is None or app.by_settings:
        return None
    return (
        f"{loaded.origins['lease']} says a lease of {span(loaded.settings.lease)}, but the app was given a URL, and its tasks "
        f"have the lease that they say themselves, else {span(DEFAULT_LEASE)}. To have the settings decide, write Holdfast() "
        "without a URL"
    )


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
    except (Exception, SystemExit) as error:  # a program that exits when it is imported would end this one, in peace
        raise _users_own(name, error) from error


def _users_own(name: str, error: Exception | SystemExit) -> BadSetting:
    """Tell of an error of the module's own code by that code alone: nobody has to read through Holdfast or Python."""
    trace = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in trace.stack if not _machinery(frame.filename)]
    if isinstance(error, HoldfastError) and frames:
        return BadSetting(f"{frames[-1].filename}:{frames[-1].lineno}: {error}")
    trace.stack = traceback.StackSummary.from_list(frames)
    lines = "".join(trace.format(chain=False)).removeprefix("Traceback (most recent call last):\n").rstrip()
    return BadSetting(f"the module {name!r} could not be imported, its own code failed:\n{lines}")


def _machinery(file: str) -> bool:
    """Tell whether a file is Holdfast's or Python's own; installed packages count as the user's."""
    if file.startswith("<frozen"):
        return True
    path = Path(file).resolve()
    standard = path.is_relative_to(STANDARD) and not {"site-packages", "dist-packages"} & set(path.parts)
    return standard or path.is_relative_to(OWN)


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
