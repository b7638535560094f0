"""Django: jobs in its transactions, its commands, its checks and its test runner. In processes of a real project."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.integrations.pages import WAIT
from tests.integrations.site import Site, postgres_database, sqlite_database

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import PostgresServers


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A project, its database migrated; shared, for it takes seconds: what tests count, they count from what they find."""
    folder = tmp_path_factory.mktemp("site")
    if request.param == "sqlite":
        return built(Site(folder, sqlite_database(folder / "db.sqlite3")))
    servers: PostgresServers = request.getfixturevalue("postgres_servers")
    return built(Site(folder, postgres_database(servers[18].create_database())))


@pytest.fixture
def sqlite_site(tmp_path: Path) -> Site:
    """A project on SQLite, for what does not depend on the database."""
    return built(Site(tmp_path, sqlite_database(tmp_path / "db.sqlite3")))


@pytest.fixture
def unmigrated_site(tmp_path: Path) -> Site:
    """A project whose database is not there yet."""
    site = Site(tmp_path, sqlite_database(tmp_path / "db.sqlite3"))
    site.write()
    return site


def built(site: Site) -> Site:
    site.write()
    assert "Holdfast: created" in site.manage("migrate")
    return site


# -- transactions ----------------------------------------------------------------------------------------------------------


def test_jobs_stand_or_fall_with_the_transaction_they_are_enqueued_in(site: Site) -> None:
    seen = site.run("""
        from contextlib import suppress
        import threading
        seen = {}
        with transaction.atomic():
            count.enqueue_sync(0)
            seen["threads of our own"] = [thread.name for thread in threading.enumerate() if "holdfast" in thread.name]
            transaction.set_rollback(True)
        with suppress(ZeroDivisionError), transaction.atomic():
            Order.objects.create(item="tea")
            count.enqueue_sync(1)
            app.enqueue_many_sync([count.call(1), count.call(2)])
            count.start_chain_sync(1)
            app.group_sync([count.call(1)])
            1 / 0
        seen["rolled back"] = [Order.objects.count(), jobs()]
        with transaction.atomic():
            Order.objects.create(item="tea")
            kept = count.enqueue_sync(1)
            with suppress(ZeroDivisionError), transaction.atomic():
                count.enqueue_sync(2)
                1 / 0
            app.enqueue_many_sync([count.call(1), count.call(2)])
        seen["committed, but for a savepoint"] = [Order.objects.count(), jobs()]
        seen["readable"] = str(kept.state_sync())
        count.enqueue_sync(3)
        seen["outside of any"] = jobs()
        with transaction.atomic():
            transaction.on_commit(lambda: count.enqueue_sync(4))
        seen["on commit"] = jobs()
    """)
    assert seen == {
        "threads of our own": [],
        "rolled back": [0, 0],
        "committed, but for a savepoint": [1, 3],
        "readable": "ready",
        "outside of any": 4,
        "on commit": 5,
    }


def test_async_code_enqueues_through_djangos_thread_and_errors_leave_the_transaction_usable(site: Site) -> None:
    seen = site.run("""
        before = jobs()
        async def view():
            await count.enqueue(1)
            await count.options(delay=60).enqueue(1)
            handles = await app.enqueue_many([count.call(2), count.call(3)])
            return len(handles)
        seen = {"through Django's thread": [asyncio.run(view()), jobs() - before]}
        from holdfast import HoldfastError
        said, before = "", (Order.objects.count(), jobs())
        with transaction.atomic():
            try:
                count.options(after=[app.new_id()]).enqueue_sync(1)
            except HoldfastError as error:
                said = type(error).__name__
            Order.objects.create(item="tea")
            count.enqueue_sync(2)
        seen["after an error"] = [said, Order.objects.count() - before[0], jobs() - before[1]]
    """)
    assert seen == {"through Django's thread": [2, 4], "after an error": ["BadJob", 1, 1]}


# -- workers ---------------------------------------------------------------------------------------------------------------


def test_a_worker_runs_the_jobs_of_every_installed_app(site: Site) -> None:
    with site.worker():
        seen = site.run("""
            from letters.jobs import count_in_a_child, letter
            Order.objects.all().delete()
            Order.objects.create(item="tea")
            handles = [count.enqueue_sync(1), count_awaiting.enqueue_sync(2)]
            handles += [letter.enqueue_sync(), count_in_a_child.enqueue_sync(3)]
            seen = [handle.result_sync(timeout=60) for handle in handles]
        """)
    assert seen == [2, 3, "written", 4]
    assert re.search(r"worker \S+ stopped", site.log)


def test_connections_that_died_between_two_jobs_are_replaced(tmp_path: Path, postgres_servers: PostgresServers) -> None:
    database = postgres_database(postgres_servers[18].create_database())
    site = built(Site(tmp_path, database | {"CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": True}))
    with site.worker():
        seen = site.run("""
            seen = []
            for task in (session, session_awaiting):
                first, again = [task.enqueue_sync().result_sync(timeout=60) for _ in range(2)]
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_terminate_backend(%s)", [first])
                seen.append([first, again, task.options(retry=1).enqueue_sync().result_sync(timeout=60)])
        """)
    for first, again, replaced in seen:
        assert again == first  # or there would be nothing to replace
        assert replaced != first


def test_a_worker_that_reloads_starts_the_project_anew(sqlite_site: Site) -> None:
    site = sqlite_site
    with site.worker("--reload"):
        assert site.run("from letters.jobs import letter; seen = letter.enqueue_sync().result_sync(timeout=60)") == "written"
        source = site.folder / "letters/jobs.py"
        source.write_text(source.read_text().replace("written", "rewritten"))
        deadline = time.monotonic() + WAIT
        while "starting the worker anew" not in site.log:
            assert time.monotonic() < deadline, site.log
            time.sleep(0.05)
        assert site.run("from letters.jobs import letter; seen = letter.enqueue_sync().result_sync(timeout=60)") == "rewritten"


def test_the_logs_of_a_worker_go_where_the_project_says(sqlite_site: Site) -> None:
    sqlite_site.settings("""
        LOGGING = {
            "version": 1,
            "formatters": {"own": {"format": "OWN %(message)s"}},
            "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
            "root": {"handlers": ["own"], "level": "INFO"},
        }
    """)
    with sqlite_site.worker():
        assert sqlite_site.run("seen = count.enqueue_sync(1).result_sync(timeout=60)") == 1
    assert "OWN worker" in sqlite_site.log


# -- commands --------------------------------------------------------------------------------------------------------------


def test_the_whole_command_line_works_on_the_project(sqlite_site: Site) -> None:
    site = sqlite_site
    site.manage("holdfast", "enqueue", "count", "[2]")
    assert "expected int" in site.manage("holdfast", "enqueue", "count", '["two"]', code=2)
    assert '"count"' in site.manage("holdfast", "jobs", "ls", "--json", "--settings", "site_settings")
    assert "--concurrency" in site.manage("holdfast_worker", "--help")
    assert "up to date" in site.manage("holdfast_migrate")


def test_settings_reach_the_worker(unmigrated_site: Site) -> None:
    unmigrated_site.settings('HOLDFAST = {"APP": "shop.jobs.app", "CONCURRENCY": 7, "QUEUES": ["mail", "default"]}')
    shown = unmigrated_site.manage("holdfast", "config", "--json")
    assert re.search(r'"concurrency":\s*{[^}]*7', shown)
    assert "mail" in shown


# -- settings --------------------------------------------------------------------------------------------------------------


WRONG = [
    ('HOLDFAST = {"APP": "shop.jobs.ap"}', r"shop\.jobs has no such name\. Make one there: ap = DjangoHoldfast\(\)"),
    ('HOLDFAST = {"APP": "shop.job.app"}', r"there is no module 'shop\.job'"),
    ('HOLDFAST = {"APP": "shop.models.Order"}', r"shop\.models has a ModelBase there"),
    ('HOLDFAST = {"APPS": "shop.jobs.app"}', r"'APPS', which is no setting: do you mean 'APP'\?"),
    ('HOLDFAST = {"APP": "shop.jobs.app", "URL": "x"}', r"'URL', which is no setting.*using= to DjangoHoldfast"),
    ('HOLDFAST = "shop.jobs.app"', r"settings\.HOLDFAST must be a dict"),
    ("HOLDFAST = {}", r"names no app"),
    ('DATABASE["NAME"] = ":memory:"', r"SQLite in memory, which no worker could reach"),
    ('DATABASE["OPTIONS"] = {}', r"deferred transactions.*\n.*transaction_mode"),
]


def test_wrong_settings_are_told_by_the_checks(unmigrated_site: Site) -> None:
    seen = unmigrated_site.run(f"""
        from unittest.mock import patch
        from django.core.checks import run_checks
        from django.test import override_settings
        seen = []
        for text in {[text for text, _ in WRONG]!r}:
            own = {{"DATABASE": dict(connection.settings_dict)}}
            exec(text, own)
            given = {{name: own[name] for name in ["HOLDFAST"] if name in own}}
            with override_settings(**given), patch.object(connection, "settings_dict", own["DATABASE"]):
                seen.append([str(message) for message in run_checks()])
    """)
    for (text, said), told in zip(WRONG, seen, strict=True):
        assert len(told) == 1, (text, told)
        assert re.search(said, told[0]), told


def test_the_check_ends_badly_with_wrong_settings(unmigrated_site: Site) -> None:
    unmigrated_site.settings('DATABASES["default"]["OPTIONS"] = {}')
    assert "deferred transactions" in unmigrated_site.manage("check", "--fail-level", "WARNING", code=1)


def test_a_worker_does_not_start_with_wrong_settings(unmigrated_site: Site) -> None:
    unmigrated_site.settings('HOLDFAST = {"APP": "shop.jobs.ap"}')
    told = unmigrated_site.manage("holdfast_worker", code=2)
    assert "shop.jobs has no such name" in told
    assert "Traceback" not in told


# -- the test runner -------------------------------------------------------------------------------------------------------

TESTS = """
from django.test import TestCase, TransactionTestCase
from holdfast.testing import assert_enqueued, drain_sync, override
from shop.jobs import app, count
from shop.models import Order

class InATransaction(TestCase):
    def test_one(self):
        count.enqueue_sync(1)

    def test_two(self):
        count.enqueue_sync(1)

class WithAStoreOfItsOwn(TestCase):
    def test_one(self):
        with override(app):
            count.enqueue_sync(1)
            assert_enqueued(app, count)
"""


def test_tests_of_the_project_enqueue_in_their_own_transactions(site: Site) -> None:
    if "sqlite" in site.database["ENGINE"]:
        site.settings(f'DATABASES["default"]["TEST"] = {{"NAME": {str(site.folder / "test.sqlite3")!r}}}')
    (site.folder / "shop/tests.py").write_text(TESTS)
    before = site.run("seen = jobs()")
    assert "OK" in site.manage("test", "--noinput")
    assert site.run("seen = jobs()") == before


def test_tests_with_a_database_in_memory_give_the_app_a_store_of_its_own(unmigrated_site: Site) -> None:
    (unmigrated_site.folder / "shop/tests.py").write_text(TESTS)
    assert "OK" in unmigrated_site.manage("test", "shop.tests.WithAStoreOfItsOwn")
