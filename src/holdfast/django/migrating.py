"""The schema of the store, beside the migrations of Django's own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.connect import migrate
from holdfast.django.app import DjangoHoldfast
from holdfast.django.databases import InMemory
from holdfast.django.settings import configured, find_app

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def migrate_store(app: Holdfast) -> str:
    """Create the schema of an app's store or bring it up to date; returns what was done, in words."""
    before, after = asyncio.run(migrate(app.url))
    if before == after:
        return f"up to date: version {after}"
    return f"created: version {after}" if before == 0 else f"upgraded: version {before} -> {after}"


def migrate_with_django(using: str, *, verbosity: int) -> None:
    """Do so after `manage.py migrate` of the database in which the app's jobs are kept; nothing where that is in memory."""
    if "APP" not in configured():
        return
    app = find_app()
    if not isinstance(app, DjangoHoldfast) or app.using != using:
        return
    try:
        done = migrate_store(app)
    except InMemory:
        return  # the database of a test run
    if verbosity >= 1:
        print(f"  Holdfast: {done}")  # noqa: T201  as Django tells of its own
