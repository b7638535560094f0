"""Flask: the extension, the context of handlers, and the command."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import flask
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

from holdfast import BadSetting
from holdfast.flask import FlaskHoldfast
from tests.integrations.pages import Page

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WAIT = 20.0


def made(url: str) -> tuple[flask.Flask, FlaskHoldfast]:
    jobs = FlaskHoldfast()
    app = flask.Flask("shop")
    app.config["HOLDFAST_URL"] = url
    jobs.init_app(app)
    return app, jobs


def worked(jobs: FlaskHoldfast, enqueue: Callable[[], Any]) -> Any:
    """Enqueue from blocking code, run a worker, and return the result."""
    handle = enqueue()

    async def work() -> Any:
        async with jobs, jobs.worker(concurrency=1):
            return await handle.result(timeout=WAIT)

    try:
        return asyncio.run(work())
    finally:
        jobs.close_sync()


def test_handlers_run_in_an_application_context_that_ends_in_their_own_thread(tmp_path: Path) -> None:
    app, jobs = made(f"sqlite:///{tmp_path}/jobs.db")
    torn_down: list[threading.Thread] = []

    @app.teardown_appcontext
    def teardown(_error: BaseException | None) -> None:
        torn_down.append(threading.current_thread())

    @jobs.task()
    def blocking() -> list[str]:
        flask.g.seen = threading.current_thread().name
        return [flask.current_app.name, flask.g.seen]

    name, thread = worked(jobs, blocking.enqueue_sync)
    assert name == "shop"
    assert [ended.name for ended in torn_down] == [thread]


def test_handlers_that_await_run_in_an_application_context_too(tmp_path: Path) -> None:
    _, jobs = made(f"sqlite:///{tmp_path}/jobs.db")

    @jobs.task()
    async def awaiting() -> str:
        await asyncio.sleep(0)
        return flask.current_app.name

    assert worked(jobs, awaiting.enqueue_sync) == "shop"


def test_a_task_called_in_a_request_has_the_context_of_the_request(tmp_path: Path) -> None:
    app, jobs = made(f"sqlite:///{tmp_path}/jobs.db")

    @jobs.task()
    def who() -> str:
        return str(flask.g.user)

    with app.app_context():
        flask.g.user = "ann"
        assert who() == "ann"


def test_jobs_of_a_request_that_fails_were_never_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app, jobs = made(url)
    engine = create_engine(url)
    new_session = sessionmaker(engine)

    @jobs.task()
    def work(n: int) -> None: ...

    @app.post("/<outcome>")
    def ask(outcome: str) -> str:
        with new_session.begin() as session:
            session.execute(text("SELECT 1"))
            work.options(conn=session).enqueue_sync(1)
            if outcome == "bad":
                flask.abort(409)
        return "done"

    jobs.stats_sync()  # the schema: on a caller's connection none is created
    try:
        assert app.test_client().post("/bad").status_code == 409
        assert jobs.stats_sync()["ready"] == 0
        assert app.test_client().post("/good").text == "done"
        assert jobs.stats_sync()["ready"] == 1
    finally:
        jobs.close_sync()
        engine.dispose()


def test_an_extension_without_an_application_says_what_is_missing() -> None:
    jobs = FlaskHoldfast()
    with pytest.raises(BadSetting, match=r"call jobs\.init_app\(app\)"):
        _ = jobs.url


def test_the_url_comes_from_the_configuration_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    app = flask.Flask("shop")
    assert FlaskHoldfast(app, url="memory://").url == "memory://"
    app.config["HOLDFAST_URL"] = "sqlite:///configured.db"
    assert FlaskHoldfast(app).url == "sqlite:///configured.db"
    del app.config["HOLDFAST_URL"]
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///settings.db")
    assert FlaskHoldfast(app).url == "sqlite:///settings.db"


def test_the_command_knows_the_application_its_store_and_its_settings(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import flask\n"
        "from holdfast.flask import FlaskHoldfast\n"
        "app = flask.Flask('shop')\n"
        "app.config.update(HOLDFAST_URL='sqlite:///jobs.db', HOLDFAST_CONCURRENCY=3, HOLDFAST_QUEUES=['mail', 'default'])\n"
        "jobs = FlaskHoldfast(app)\n"
        "@jobs.task(name='greet')\n"
        "def greet(name: str) -> str:\n"
        "    return f'hello {name}'\n"
    )
    page = Page("flask.md", tmp_path)
    assert page.run("flask --app shop holdfast migrate").startswith("created")
    page.run("""flask --app shop holdfast enqueue greet '{"nam": "ann"}'""", code=2)
    assert '"mail"' in page.run("flask --app shop holdfast config --json")
    assert "Durable jobs" in page.run("flask --app shop --help")
