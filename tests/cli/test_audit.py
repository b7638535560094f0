"""Every change that a command makes stands in the audit log with who made it, or was not made.

The tables name every command: one that is new fails a test until it is in one of them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import pytest
from uuid_utils.compat import uuid7

from holdfast.cli.commands import COMMANDS
from holdfast.cli.common import actor
from holdfast.store.port import Action, Key, Role
from tests.support.audited import picture, refuse_changes, refuse_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.store.port import AuditView
    from tests.cli.conftest import Done, Shop

    Cli = Callable[..., Done]

APP: Final = """
from holdfast import Holdfast
app = Holdfast({url!r})
app.queue("mail", max_depth=9)

@app.task(name="mail.welcome", queue="mail")
async def welcome(to: str) -> None: ...
"""
KEY: Final = Key(id="0" * 12, name="farm", role=Role.WORKER, digest="0" * 64)

CHANGES: Final[dict[str, tuple[str, list[str], list[Action]]]] = {
    "enqueue": ("enqueue", ["mail.send", '{"to": "a secret"}'], [Action.ENQUEUE]),
    "enqueue with the app": ("enqueue", ["mail.welcome", '["ann"]', "--app", "<app>"], [Action.ENQUEUE]),
    "jobs retry": ("jobs retry", ["<failed>"], [Action.RETRY]),
    "jobs retry by filter": ("jobs retry", ["state:failed", "--yes"], [Action.RETRY]),
    "jobs cancel": ("jobs cancel", ["<waiting>"], [Action.CANCEL]),
    "jobs delete": ("jobs delete", ["<failed>"], [Action.DELETE]),
    "jobs complete": ("jobs complete", ["<waiting>", "1"], [Action.COMPLETE]),
    "jobs fail": ("jobs fail", ["<waiting>", "no"], [Action.FAIL]),
    "chains retry": ("chains retry", ["<ended>"], [Action.RETRY]),
    "chains cancel": ("chains cancel", ["<chain>"], [Action.CANCEL]),
    "chains delete": ("chains delete", ["<ended>"], [Action.DELETE_CHAINS]),
    "signal": ("signal", ["paid:42"], [Action.EMIT]),
    "queues pause": ("queues pause", ["other"], [Action.PAUSE]),
    "queues resume": ("queues resume", ["mail"], [Action.RESUME]),
    "limits set": ("limits set", ["--queue", "mail", "--most", "3"], [Action.SET_LIMIT]),
    "limits clear": ("limits clear", ["--queue", "mail"], [Action.SET_LIMIT]),
    "workers disable": ("workers disable", ["w1"], [Action.DISABLE]),
    "workers enable": ("workers enable", ["off"], [Action.ENABLE]),
    "workers drain": ("workers drain", ["w1"], [Action.DRAIN]),
    "workers revoke": ("workers revoke", ["w1", "--yes"], [Action.REVOKE_WORKER]),
    "keys add": ("keys add", ["ann"], [Action.ADD_KEY]),
    "keys rotate": ("keys rotate", ["farm"], [Action.ROTATE_KEY]),
    "keys revoke": ("keys revoke", ["farm"], [Action.REVOKE_KEY]),
    "prune": ("prune", ["--failed", "0s", "--canceled", "0s"], [Action.PRUNE]),
}
"""What people change: the command, its arguments, and what the lines say."""

LOOKS: Final = "changes nothing"
RUNS: Final = "is a program that works, not a person who steers: its jobs have records of their own"
UNCHANGED: Final = {
    **dict.fromkeys(("jobs ls", "jobs show", "jobs why", "jobs logs", "chains ls", "chains show", "queues ls"), LOOKS),
    **dict.fromkeys(("workers ls", "schedules ls", "alerts ls", "alerts log", "keys ls", "audit", "top", "doctor"), LOOKS),
    "limits ls": LOOKS,
    **dict.fromkeys(("config", "completion", "alerts secret", "keys secret"), LOOKS),
    "alerts test": "sends a message, and has no store",
    **dict.fromkeys(("worker", "server", "watch", "demo", "bench", "load"), RUNS),
    "manager": "runs workers; each of its decisions is a line (`scale`)",
    "migrate": "makes the tables that the log is in",
    "move": "makes a new store, with the log of the old one; what it gives back says so in its own events",
}
"""Commands that write no line, and why."""


def test_every_command_is_known_to_be_audited_or_not_to_be() -> None:
    assert sorted({command for command, *_ in CHANGES.values()} | set(UNCHANGED)) == sorted(COMMANDS)
    assert not {command for command, *_ in CHANGES.values()} & set(UNCHANGED)


@pytest.fixture
def scene(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Put something into the store for every command; gives the words of one."""
    name = f"shop_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(APP.format(url=shop.url))
    monkeypatch.setattr(sys, "path", list(sys.path))
    shop.worker("off")
    shop.do(lambda store: store.disable(shop.workers["off"]))
    ended = uuid7()
    ids = {"failed": shop.fail(), "ended": shop.enqueue(id=ended, chain_id=ended)}
    shop.do(lambda store: store.cancel([ended]))
    shop.enqueue(task="run")
    shop.claim(task="run")
    ids |= {"waiting": shop.enqueue(), "chain": shop.chain(1)[0]}
    shop.do(lambda store: store.pause("mail"))
    shop.do(lambda store: store.add_key(KEY))
    shop.do(lambda store: store.rewind(60))
    known = {**ids, "app": f"{name}:app"}

    def words(change: str) -> list[str]:
        command, arguments, _ = CHANGES[change]
        filled = [str(known[word[1:-1]]) if word.startswith("<") else word for word in arguments]
        return [*command.split(), *filled]

    return words


def file_of(shop: Shop) -> str:
    return shop.url.removeprefix("sqlite:///")


def lines(shop: Shop) -> list[AuditView]:
    return shop.do(lambda store: store.audits(limit=100))[::-1]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_command_changes_leaves_a_line_with_user_and_host(
    cli: Cli, shop: Shop, scene: Callable[[str], list[str]], change: str
) -> None:
    before = picture(file_of(shop))

    done = cli(*scene(change))

    assert done.code == 0, done.err
    assert [(line.actor, line.action) for line in lines(shop)] == [(actor(), action) for action in CHANGES[change][2]]
    assert not any("secret" in line.detail or "ann" in line.detail.split() for line in lines(shop) if line.action != "add_key")
    assert picture(file_of(shop)) != before


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_command_is_to_change_stays_where_its_line_cannot_be_written(
    cli: Cli, shop: Shop, scene: Callable[[str], list[str]], change: str
) -> None:
    refuse_lines(file_of(shop))
    before = picture(file_of(shop))

    assert cli(*scene(change)).code != 0

    assert picture(file_of(shop)) == before


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_command_is_to_change_in_vain_leaves_no_line(
    cli: Cli, shop: Shop, scene: Callable[[str], list[str]], change: str
) -> None:
    refuse_changes(file_of(shop))

    assert cli(*scene(change)).code != 0

    assert lines(shop) == []


def test_an_enqueue_with_the_app_heeds_the_depth_of_its_queue(cli: Cli, shop: Shop, scene: Callable[[str], list[str]]) -> None:
    codes = [cli(*scene("enqueue with the app")).code for _ in range(10)]
    assert codes == [0] * 9 + [1]
    assert [line.detail for line in lines(shop)] == ["1 mail.welcome"] * 9
