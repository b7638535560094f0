"""`settings.HOLDFAST`: which app, and what its workers are told."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings

from holdfast.config import Settings
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.app import Holdfast

NAME: Final = "HOLDFAST"
EXAMPLE: Final = 'HOLDFAST = {"APP": "shop.jobs.app"}'

KEYS: Final = frozenset(name.upper() for name in Settings.__struct_fields__ if name != "url")
"""What may stand there: the settings of the command line, but for the URL, which Django's DATABASES say."""


def configured() -> Mapping[str, Any]:
    """Return `settings.HOLDFAST`; raises `BadSetting` for what cannot be meant."""
    given = getattr(settings, NAME, {})
    if not isinstance(given, dict):
        raise BadSetting(f"settings.{NAME} must be a dict such as {EXAMPLE}, not {given!r}")
    for key in given:
        if key not in KEYS:
            near = get_close_matches(str(key).upper(), KEYS, n=1)
            hint = f"do you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(KEYS))}"
            more = " (the store is that of DATABASES: give using= to DjangoHoldfast)" if key == "URL" else ""
            raise BadSetting(f"settings.{NAME} has {key!r}, which is no setting: {hint}{more}")
    return given


def worker_settings() -> dict[str, Any]:
    """Return what workers are told, by the names of the command line's settings."""
    return {key.lower(): value for key, value in configured().items() if key != "APP" and value is not None}


def find_app() -> Holdfast:
    """Return the app that `settings.HOLDFAST["APP"]` names; raises `BadSetting`."""
    from holdfast.app import Holdfast  # noqa: PLC0415  takes time, and not every command needs it

    target = configured().get("APP")
    if not isinstance(target, str) or not target:
        raise BadSetting(f"which app? Name it in settings, by its dotted path: {EXAMPLE}")
    module_name, _, attribute = target.replace(":", ".").rpartition(".")
    if not module_name:
        raise BadSetting(f"settings.{NAME}['APP'] is {target!r}: give the module too, such as 'shop.jobs.app'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise BadSetting(f"settings.{NAME}['APP'] is {target!r}, but there is no module {error.name!r}") from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Holdfast):
        what = "has no such name" if found is None else f"has a {type(found).__name__} there"
        raise BadSetting(
            f"settings.{NAME}['APP'] is {target!r}, but {module_name} {what}. Make one there: {attribute} = DjangoHoldfast()"
        )
    return found
