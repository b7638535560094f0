"""A Django project in a folder, and its `manage.py` in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import dedent
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.integrations.pages import clean_environment, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""

SETTINGS = """
SECRET_KEY = "none"
INSTALLED_APPS = ["holdfast.django", "shop", "letters"]
DATABASES = {{"default": {database!r}}}
HOLDFAST = {{"APP": "shop.jobs.app", "CONCURRENCY": 1}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""

MODELS = """
from django.db import models

class Order(models.Model):
    item = models.CharField(max_length=100)
"""

MIGRATION = """
from django.db import migrations, models

class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[("id", models.BigAutoField(primary_key=True)), ("item", models.CharField(max_length=100))],
        )
    ]
"""

JOBS = """
import asyncio
from django.db import connection
from holdfast.django import DjangoHoldfast
from shop.models import Order

app = DjangoHoldfast()

@app.task(name="count")
def count(n: int) -> int:
    return n + Order.objects.count()

@app.task(name="count_awaiting")
async def count_awaiting(n: int) -> int:
    return n + await Order.objects.acount()

@app.task(name="session")
def session() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]

@app.task(name="session_awaiting")
async def session_awaiting() -> int:
    from asgiref.sync import sync_to_async
    return await sync_to_async(session.function.__wrapped__)()
"""

LETTERS = """
from shop.jobs import app
from shop.models import Order

@app.task(name="count_in_a_child", executor="process")
def count_in_a_child(n: int) -> int:
    return n + Order.objects.count()

@app.task(name="letter")
def letter() -> str:
    return "written"
"""


@dataclass
class Site:
    """A project with two apps: `shop` has the app and a model, `letters` a task."""

    folder: Path
    database: dict[str, Any]

    def write(self) -> None:
        """Write the files."""
        files = {
            "manage.py": MANAGE,
            "site_settings.py": SETTINGS.format(database=self.database),
            "shop/__init__.py": "",
            "shop/models.py": MODELS,
            "shop/jobs.py": JOBS,
            "shop/migrations/__init__.py": "",
            "shop/migrations/0001_initial.py": MIGRATION,
            "letters/__init__.py": "",
            "letters/jobs.py": LETTERS,
        }
        for path, text in files.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(text)

    def settings(self, text: str) -> None:
        """Add to the settings."""
        with (self.folder / "site_settings.py").open("a") as file:
            file.write(f"\n{dedent(text)}\n")

    def manage(self, *words: str, code: int = 0) -> str:
        """Run `manage.py` and return what it printed and complained about."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=self.folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    def run(self, code: str) -> Any:
        """Run code in `manage.py shell`; returns what it left in `seen`."""
        preamble = """
            from django.db import connection, transaction
            from shop.jobs import *
            from shop.models import Order
            import json
            def jobs(): return app.stats_sync()["live"]
        """
        said = self.manage("shell", "-v", "0", "-c", f"{dedent(preamble)}\n{dedent(code)}\nprint(json.dumps(seen))")
        return json.loads(said.splitlines()[-1])

    @contextmanager
    def worker(self, *words: str) -> Iterator[None]:
        """Run `manage.py holdfast_worker` meanwhile; its log is in the folder."""
        command = " ".join([sys.executable, "manage.py", "holdfast_worker", *words])
        with (self.folder / "log").open("w") as log, started(command, self.folder, clean_environment(), log):
            try:
                yield
            except AssertionError as error:
                error.add_note(self.log)
                raise

    @property
    def log(self) -> str:
        """What the worker has written."""
        return (self.folder / "log").read_text()


def postgres_database(url: str) -> dict[str, Any]:
    """Return a URL as Django names a database."""
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


def sqlite_database(path: Path) -> dict[str, Any]:
    """Return a file as Django names a database."""
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path), "OPTIONS": {"transaction_mode": "IMMEDIATE"}}
