"""What Django knows of Holdfast: the checks, the jobs of every installed app, and the schema beside the other migrations."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from holdfast.django.checking import check_settings
from holdfast.django.migrating import migrate_with_django


class HoldfastConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """`"holdfast.django"` in INSTALLED_APPS. Imports `jobs.py` of every installed app once all of them are ready."""

    name = "holdfast.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        """Find the jobs, check the settings, and have `manage.py migrate` keep the schema up to date."""
        checks.register(check_settings)
        post_migrate.connect(_migrated, sender=self)
        autodiscover_modules("jobs")


def _migrated(*, using: str, **told: Any) -> None:
    if "plan" in told:  # `flush`, and with it tests of transactions, sends the same signal: nothing was migrated then
        migrate_with_django(using, verbosity=told.get("verbosity", 1))
