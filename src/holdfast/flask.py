"""Flask: an extension, `init_app` and all; jobs enqueued in requests; handlers inside an application context.

    jobs = FlaskHoldfast()

    def create_app() -> Flask:
        app = Flask(__name__)
        app.config["HOLDFAST_URL"] = "sqlite:///shop.db"
        jobs.init_app(app)
        return app

`flask holdfast worker` runs the jobs, and `flask holdfast jobs ls` and all other commands are there too.
"""

from __future__ import annotations

import functools
import inspect
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from holdfast.app import Holdfast
from holdfast.connect import Adapters, checked_url
from holdfast.errors import BadSetting, MissingExtra

try:
    import click
    import flask
    from flask.cli import with_appcontext
except ImportError as missing:
    raise MissingExtra("flask", "holdfast.flask", missing.name or "flask") from missing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.tasks.typed import Declare

__all__ = ["FlaskHoldfast"]

NAME = "holdfast"
"""Of the extension and of the command."""


class FlaskHoldfast(Holdfast):
    """An app that belongs to a Flask application; the URL is its `HOLDFAST_URL` unless one is given here.

    Every attempt runs in an application context of its own, so `current_app` and extensions work as in a request.
    """

    def __init__(self, app: flask.Flask | None = None, *, url: str | None = None, **options: Any) -> None:
        """Declare an app, and bind it at once where the Flask application exists already; `options` are those of `Holdfast`."""
        super().__init__(url, **options)
        self._flask: flask.Flask | None = None
        if url is None:
            self._adapters = _ConfiguredAdapters(self, options.get("create", True), self._environment)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask) -> None:
        """Bind to a Flask application, and give it the command `holdfast`. One extension serves one application at a time."""
        self._flask = app
        app.extensions[NAME] = self
        app.cli.add_command(_command(self))

    @property
    def bound_to(self) -> flask.Flask:
        """The Flask application; raises `BadSetting` when there is none yet."""
        if self._flask is None:
            raise BadSetting("this FlaskHoldfast belongs to no Flask application yet: call jobs.init_app(app) in create_app()")
        return self._flask

    def task(self, function: None = None, /, **options: Any) -> Declare:
        """Declare a function as a task, as `Holdfast.task` does; it runs inside an application context."""
        declare: Any = super().task(function, **options)
        return cast("Declare", lambda function: declare(self._in_context(function)))

    def _in_context(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Push the context where the function runs, in its own thread: so what ends with it, ends there."""
        if inspect.iscoroutinefunction(inspect.unwrap(function)):

            @functools.wraps(function)
            async def attempt(*args: Any, **kwargs: Any) -> Any:
                with self._context():
                    return await function(*args, **kwargs)
        else:

            @functools.wraps(function)
            def attempt(*args: Any, **kwargs: Any) -> Any:
                with self._context():
                    return function(*args, **kwargs)

        return attempt

    def _context(self) -> AbstractContextManager[Any]:
        # called as a plain function in a request or a test, it has the context of its caller
        return nullcontext() if flask.has_app_context() else self.bound_to.app_context()


class _ConfiguredAdapters(Adapters):
    """The store that the configuration of the Flask application names, else the settings."""

    def __init__(self, owner: FlaskHoldfast, create: bool, environment: Any) -> None:  # noqa: FBT001  as it was given
        super().__init__(None, create=create, environment=environment)
        self._owner = owner

    @property
    def url(self) -> str:
        """The store's URL, when it is first needed."""
        configured = self._owner.bound_to.config.get("HOLDFAST_URL")
        return super().url if configured is None else checked_url(configured)


def _command(jobs: FlaskHoldfast) -> click.Command:
    @click.command(
        NAME,
        help="Durable jobs: worker, jobs ls, migrate, … (all commands of holdfast, on the store of this application).",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )
    @click.argument("words", nargs=-1, type=click.UNPROCESSED)
    @with_appcontext
    def command(words: Sequence[str]) -> None:
        from holdfast.cli.embedded import Embedding, run_embedded  # noqa: PLC0415  not in requests

        settings = {name: value for name, value in jobs.bound_to.config.get_namespace("HOLDFAST_").items() if value is not None}
        before = sys.argv[: len(sys.argv) - len(words)] if words else sys.argv
        run_embedded(Embedding(jobs, (sys.executable, "-m", "flask", *before[1:])), words, settings)

    return command
