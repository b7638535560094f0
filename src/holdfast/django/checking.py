"""System checks: what is wrong with the settings, told by `manage.py check` and before anything starts."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004  Django's name for it
from django.db import connections

from holdfast.django.app import DjangoHoldfast
from holdfast.django.databases import InMemory, store_url
from holdfast.django.settings import EXAMPLE, NAME, configured, find_app
from holdfast.errors import HoldfastError


def check_settings(**_options: Any) -> list[CheckMessage]:
    """Check `settings.HOLDFAST`, and the database that the app's jobs are kept in."""
    try:
        if "APP" not in configured():
            return [Warning(f"settings.{NAME} names no app", hint=f"Write {EXAMPLE}", id="holdfast.W001")]
        app = find_app()
    except HoldfastError as error:
        return [Error(str(error), id="holdfast.E001")]
    if not isinstance(app, DjangoHoldfast):
        return []
    try:
        store_url(app.using, app.schema)
    except HoldfastError as error:
        if isinstance(error, InMemory) and error.of_tests:
            return []  # in which the app may well have a store of its own
        return [Error(str(error), id="holdfast.E002")]
    database = connections[app.using]
    mode = (database.settings_dict.get("OPTIONS") or {}).get("transaction_mode")
    if database.vendor == "sqlite" and str(mode).upper() not in {"IMMEDIATE", "EXCLUSIVE"}:
        return [
            Warning(
                f"the database {app.using!r} is SQLite with deferred transactions: one that reads first and then enqueues "
                "fails with 'database is locked' when somebody else wrote in between",
                hint="Write 'OPTIONS': {'transaction_mode': 'IMMEDIATE'} into DATABASES",
                id="holdfast.W002",
            )
        ]
    return []
