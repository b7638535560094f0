"""The manager's command line: what it refuses, and how a manager looks from elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from holdfast.cli import managing
from holdfast.cli.managing import worker_command
from holdfast.config import load
from holdfast.store.port import Action, Beat

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Done, Shop

MANAGER = {"slots": 0, "info": json.dumps({"tasks": [], "queues": None})}
APP = 'from holdfast import Holdfast\napp = Holdfast("{url}")\n'


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "which app? Name it as MODULE:APP, such as: holdfast manager shop.jobs:app"),
        (("kept:app", "--default-count", "3", "--max-count", "2"), "max_count is 2 and default_count 3"),
        (("kept:app", "--default-count", "0"), "--default-count: default_count must be a whole number from 1"),
        (("kept:app", "--interval", "1ms"), "error: --interval: scale_interval must be 0.05 s or more"),
        (("kept:app", "--interval", "0"), "error: --interval: scale_interval must be more than 0"),
        (("kept:app", "--max-memory", "lots"), "must be a size such as 512MB"),
        (("kept:app", "--max-memory", "5"), "max_memory must be 32 MB or more, not 5 bytes"),
        (("fleeting:app",), "a memory:// store lives in one process"),
    ],
)
def test_what_could_not_work_is_refused_with_words_that_help(
    cli: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    (tmp_path / "kept.py").write_text(APP.format(url="sqlite:///jobs.db"))
    (tmp_path / "fleeting.py").write_text(APP.format(url="memory://"))
    monkeypatch.syspath_prepend(tmp_path)
    done = cli("manager", *options)
    assert done.code != 0
    assert says in done.err


@pytest.mark.parametrize("command", ["manager", "worker"])
def test_an_app_that_exits_when_it_is_imported_is_a_mistake_and_no_success(
    cli: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / f"leaves_{command}.py").write_text("import sys\n\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    done = cli(command, f"leaves_{command}:app")
    assert done.code == 2
    assert f"the module 'leaves_{command}' could not be imported, its own code failed:" in done.err
    assert done.err.rstrip().endswith("SystemExit: 0")


def test_a_manager_behind_a_server_is_refused(cli: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER", "https://jobs.example.com")
    assert "HOLDFAST_SERVER names a server, and a manager works beside the database" in cli("manager", "kept:app").err


def test_workers_are_started_with_what_the_manager_was_told(tmp_path: Path) -> None:
    flags = {"app": "shop:app", "queues": "mail,video", "concurrency": 4, "health": "0.0.0.0:8080"}
    command = worker_command(load(flags, folder=tmp_path, environment={}), "m.1", 100)
    assert command[1:5] == ["-m", "holdfast", "worker", "shop:app"]
    told = dict(zip(command[5::2], command[6::2], strict=True))
    assert (told["--name"], told["--queues"], told["--concurrency"], told["--max-jobs"]) == ("m.1", "mail,video", "4", "100")
    assert told["--health"] == "0", "several workers cannot listen at one port"
    assert told["--shutdown-timeout"] == "365d", "nothing is aborted because fewer are needed"


@pytest.mark.parametrize(
    ("flags", "counts"),
    [({"max_count": 1}, (1, 1)), ({}, (2, 8)), ({"max_count": 5}, (2, 5)), ({"default_count": 3, "max_count": 3}, (3, 3))],
)
def test_who_allows_one_worker_alone_need_not_say_that_one_is_enough(
    tmp_path: Path, flags: dict[str, object], counts: tuple[int, int]
) -> None:
    scaling = managing._options(load(flags, folder=tmp_path, environment={}), "m").scaling
    assert (scaling.default_count, scaling.max_count) == counts


def test_a_manager_is_listed_as_one_and_serves_no_job(shop: Shop, cli: Callable[..., Done]) -> None:
    job_id = shop.enqueue()
    shop.worker("manager m", **MANAGER)
    (row,) = cli("workers", "ls", "--url", shop.url).rows
    assert row[1:5] == ["manager m", "manages", "0", "0"]
    assert ["worker", "manager m", "manages"] in [line[:3] for line in cli("top", "--once", "--url", shop.url).rows]
    why = cli("jobs", "why", str(job_id), "--url", shop.url).out
    assert "no worker was ever here" in why
    assert "0 live" not in why
    shop.worker("w1")
    assert "1 slot is free" in cli("jobs", "why", str(job_id), "--url", shop.url).out


def test_why_the_number_is_what_it_is_stands_below_the_workers(shop: Shop, cli: Callable[..., Done]) -> None:
    shop.worker("w1")
    assert cli("workers", "ls", "--url", shop.url).err == ""
    manager = shop.worker("manager m", **MANAGER)
    reason = "stays at 2: 0 wait, limits hold back 1,200 more, 40 of 40 slots are taken"
    shop.do(lambda store: store.beat(Beat(worker=manager, counters=json.dumps({"workers": 2, "reason": reason}))))
    assert cli("workers", "ls", "--url", shop.url).err == f"manager m: {reason}\n"
    told = cli("workers", "ls", "--json", "--url", shop.url).json
    assert [one["counters"].get("reason") for one in told["workers"] if one["worker"]["slots"] == 0] == [reason]
    shop.do(lambda store: store.beat(Beat(worker=manager, counters='{"reason": 7}')))
    assert "manager m:" not in cli("workers", "ls", "--url", shop.url).err, "any program may register one"


def test_a_manager_that_was_killed_is_silent_and_what_it_said_is_old(shop: Shop, cli: Callable[..., Done]) -> None:
    manager = shop.worker("manager m", **MANAGER)
    worker = shop.worker("w1")
    shop.do(lambda store: store.beat(Beat(worker=manager, counters='{"reason": "stays at 2: 0 wait"}')))
    shop.do(lambda store: store.beat(Beat(worker=worker)))
    assert [row[2] for row in cli("workers", "ls", "--url", shop.url).rows] == ["idle", "manages"]
    shop.do(lambda store: store.rewind(20))
    done = cli("workers", "ls", "--url", shop.url)
    assert [row[2] for row in done.rows] == ["idle", "silent for 20s"], "a worker gives a sign of life every 20 seconds"
    assert done.err == "manager m: silent for 20s, it said before: stays at 2: 0 wait\n"
    told = cli("workers", "ls", "--json", "--url", shop.url).json["workers"]
    assert [one["silent_seconds"] is None for one in told] == [True, False]
    assert ["worker", "manager m", "silent for 20s"] in [line[:3] for line in cli("top", "--once", "--url", shop.url).rows]
    assert "manager m" in cli("doctor", "--url", shop.url).out
    shop.do(lambda store: store.rewind(60))
    assert [row[2] for row in cli("workers", "ls", "--url", shop.url).rows] == ["silent for 1m 20s"] * 2
    shop.do(lambda store: store.beat(Beat(worker=manager)))
    assert [row[2] for row in cli("workers", "ls", "--url", shop.url).rows] == ["silent for 1m 20s", "manages"]


def test_decisions_are_shown_by_the_audit_log(shop: Shop, cli: Callable[..., Done]) -> None:
    shop.do(lambda store: store.note(Action.SCALE, ["4 workers"], by="manager m", detail="up from 2 to 4: 90 wait"))
    (row,) = cli("audit", "--action", "scale", "--url", shop.url).rows
    assert row[2:] == ["manager m", "scale", "1", "4 workers", "up from 2 to 4: 90 wait"]
