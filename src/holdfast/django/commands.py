"""What the commands of `manage.py` have in common: Holdfast's own command line, on the app that the settings name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils.autoreload import get_child_arguments

from holdfast.django.settings import find_app, worker_settings
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Sequence

DJANGOS_OWN = ("--settings", "--pythonpath")
"""Options that `manage.py` has heeded before a command is asked."""


class PassingOn(BaseCommand):  # type: ignore[misc]  # Django has no types
    """A command whose words and options are those of Holdfast's command line, after `first`."""

    first: tuple[str, ...] = ()
    checked = True
    """Whether the system checks must hold first."""

    def run_from_argv(self, argv: list[str]) -> None:
        """Run from the command line. Not parsed here: whatever `holdfast` takes, this does."""
        try:
            self.handle(*without_djangos(argv[2:]))
        except CommandError as error:
            self.stderr.write(str(error))
            sys.exit(error.returncode)
        finally:
            connections.close_all()

    def handle(self, *words: str, **_options: Any) -> None:
        """Run with the words that follow the command."""
        try:
            app = find_app()
        except HoldfastError as error:
            raise CommandError(str(error), returncode=2) from error
        if self.checked and "--help" not in words and "-h" not in words:
            self.check()
        from holdfast.cli.embedded import Embedding, run_embedded  # noqa: PLC0415  an extra, loaded on demand

        command = [*get_child_arguments()[: -len(sys.argv[1:]) or None], "holdfast"]
        run_embedded(
            Embedding(app, tuple(command), keeps_logs=bool(settings.LOGGING)), [*self.first, *words], worker_settings()
        )


def without_djangos(words: Sequence[str]) -> list[str]:
    """Return the words without what is meant for `manage.py` itself."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in DJANGOS_OWN:
            skip = True
        elif not word.startswith(tuple(f"{option}=" for option in DJANGOS_OWN)):
            kept.append(word)
    return kept
