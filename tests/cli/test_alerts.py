"""`holdfast alerts`: targets from the settings, a test that is really sent, the log of deliveries."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from standardwebhooks import Webhook

from holdfast.core.redact import MASK
from holdfast.server.alerts.target import targets_of
from tests.server.alerts.hook import Hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Done

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A receiver in a thread of its own: the command line has an event loop for itself."""
    hook, ready, done = Hook(202), threading.Event(), threading.Event()

    async def serve() -> None:
        async with hook:
            ready.set()
            while not done.is_set():  # noqa: ASYNC110  it is set in another thread
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    yield hook
    done.set()
    thread.join()


def settings(folder: Path, url: str, more: str = "") -> None:
    (folder / "holdfast.toml").write_text(f'[alerts.ops]\nurl = "{url}"\nsecret = "{SECRET}"\n{more}\n')


def test_targets_are_listed_without_what_must_not_be_seen(cli: Callable[..., Done], tmp_path: Path) -> None:
    settings(tmp_path, "https://user:word@hooks.example.com/T0/B0/xyz", 'events = ["worker_startup"]\ncooldown = 60')
    done = cli("alerts", "ls")
    assert done.rows == [["ops", "hooks.example.com", "standard", "worker_startup", "1m"]]
    done = cli("alerts", "ls", "--json")
    assert done.json["targets"][0]["secret"] is True
    for text in (done.out, cli("config").out, cli("config", "--json").out):
        assert SECRET not in text
    assert cli("config", "--json").json["settings"]["alerts"]["value"]["ops"]["secret"] == MASK


def test_a_test_is_really_sent_and_signed(cli: Callable[..., Done], tmp_path: Path, hook: Hook) -> None:
    settings(tmp_path, hook.url, "allow_private = true")
    done = cli("alerts", "test", "ops")
    assert (done.code, done.err.startswith("ops answered with 202 within")) == (0, True)
    (received,) = hook.received
    assert "this is a test" in Webhook(SECRET).verify(received.body.decode(), received.headers)["data"]["text"]


def test_a_test_that_is_not_delivered_says_why_and_what_to_do(cli: Callable[..., Done], tmp_path: Path, hook: Hook) -> None:
    settings(tmp_path, hook.url)
    done = cli("alerts", "test", "ops")
    assert done.code != 0
    assert "allow_private = true in [alerts.ops]" in done.err
    assert cli("alerts", "test", "nobody").err.strip().endswith("the settings have no target 'nobody'; there are: ops")


def test_a_secret_is_one_that_the_settings_take(cli: Callable[..., Done]) -> None:
    secrets = {cli("alerts", "secret").out.strip() for _ in range(2)}
    assert len(secrets) == 2
    for secret in secrets:
        targets_of({"ops": {"url": "https://hooks.example.com", "secret": secret}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("alerts = 3", "alerts must be tables by name"),
        ("[alerts]\nops = 3", "alerts must be tables by name"),
        ('[alerts.ops]\nurl = "nonsense"\nsecret = "x"', "alerts.ops: url must be such as"),
    ],
)
def test_settings_that_cannot_be_are_refused(cli: Callable[..., Done], tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    done = cli("alerts", "ls")
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err


def test_nothing_delivered_is_said_so(cli: Callable[..., Done], tmp_path: Path) -> None:
    assert cli("migrate", "--url", f"sqlite:///{tmp_path}/jobs.db").code == 0
    done = cli("alerts", "log", "--url", f"sqlite:///{tmp_path}/jobs.db", "--json")
    assert done.json == {"deliveries": []}
