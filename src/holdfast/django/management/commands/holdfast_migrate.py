"""`manage.py holdfast_migrate`: the schema of the store, without the migrations of Django's own."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from holdfast.django.migrating import migrate_store
from holdfast.django.settings import find_app
from holdfast.errors import HoldfastError


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Create the schema or bring it up to date."""

    help = "Create the schema of the jobs' store, or bring it up to date. manage.py migrate does so too."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Migrate the store of the app that the settings name."""
        try:
            self.stdout.write(migrate_store(find_app()))
        except HoldfastError as error:
            raise CommandError(str(error)) from error
