"""Enqueuing, queues, workers, pruning, doctor: and every mistake told in one message."""

from __future__ import annotations

import asyncio
import io
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from holdfast.cli import doctor
from holdfast.cli.commands import COMMANDS, build
from holdfast.cli.common import actor
from holdfast.core.settle import Write
from holdfast.core.spans import span
from holdfast.core.states import Event, State
from holdfast.store.port import Beat, JobFilter, JobView, Schedule, Settlement

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Done, Shop

    Cli = Callable[..., Done]

APP = """
from holdfast import Holdfast
app = Holdfast({url!r})
other = 3

@app.task(name="mail.send", queue="mail", priority=7)
async def send(to: str, times: int = 1) -> str:
    return to * times
"""


def newest(shop: Shop) -> JobView:
    return shop.do(lambda store: store.find(JobFilter(), limit=1)).jobs[0]


@pytest.fixture
def module(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An app on the shop's store, in the current folder."""
    name = f"shop_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(APP.format(url=shop.url))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


# -- enqueue -----------------------------------------------------------------------------------------------------------------


def test_enqueue_without_an_app_stores_the_args_as_they_are(cli: Cli, shop: Shop) -> None:
    args = '{"n": 123456789012345678901234567890}'
    options = [
        "--queue",
        "q",
        "--priority",
        "high",
        "--key",
        "k",
        "--expires-in",
        "1h",
        "--tag",
        "a",
        "--tag",
        "b",
        "--delay",
        "5m",
    ]
    done = cli("enqueue", "some.task", args, *options)
    assert "unchecked" in done.err
    job = newest(shop)
    assert done.out == f"{job.id}\n"
    assert (job.task, job.args, job.queue, job.priority, job.key, job.tags) == ("some.task", args, "q", 8, "k", ("a", "b"))
    assert (job.state, job.start_by is not None) == (State.SCHEDULED, True)
    again = cli("enqueue", "some.task", "{}", "--key", "k", "--json")
    assert again.json == {"status": "existing", "job_id": str(job.id)}


def test_enqueue_reads_args_from_standard_input_and_makes_a_missing_file(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": 1}'))
    assert cli("enqueue", "t", "-", "--url", f"sqlite:///{tmp_path}/new.db").code == 0


def test_enqueue_with_an_app_has_the_task_check_the_args(cli: Cli, shop: Shop, module: str) -> None:
    assert cli("enqueue", "mail.send", '{"to": "ann"}', "--app", module).code == 0
    job = newest(shop)
    assert (job.queue, job.priority, job.args) == ("mail", 7, '{"to":"ann"}')
    bad = cli("enqueue", "mail.send", '{"to": 3}', "--app", f"{module}:app")
    assert (bad.code, "at to" in bad.err) == (2, True)
    unknown = cli("enqueue", "mail.sent", "{}", "--app", module)
    assert (unknown.code, "mail.send" in unknown.err) == (2, True)
    assert cli("enqueue", "mail.send", "{}", "--app", module, "--url", shop.url).code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["t", '{"a": 1,}'], "line 1, column 9"),
        (["t", "[1]"], "an array needs --app"),
        (["t", "3"], "must be a JSON object"),
        (["shop:app", "mail.send", "{}"], 'holdfast enqueue mail.send \'{"name": "value"}\' --app shop:app'),
        (["shop:app", "mail.send"], "the app goes into --app: holdfast enqueue mail.send"),
        (["shop:app"], "the app goes into --app: holdfast enqueue TASK"),
        (["t", '{"to":', '"ann"}'], "ARGS is one JSON text, in single quotes"),
        (["t", '{"a": NaN}'], "not valid JSON"),
        (["t", "{}", "--delay", "soon"], "--delay: 'soon' is no duration"),
        (["t", "{}", "--run-at", "tomorrow"], "--run-at: 'tomorrow' is no time"),
        (["t", "{}", "--delay", "1s", "--run-at", "2030-01-01T00:00:00Z"], "not both"),
        (["t", "{}", "--priority", "11"], "priority"),
        (["t", "{}", "--priority", "huge"], "none of low, normal, high"),
        (["t", "{}", "--on-conflict", "replace"], "give --key too"),
        (["t", "{}", "--on-conflict", "fight", "--key", "k"], "none of skip, replace, debounce"),
        (["", "{}"], "must not be empty"),
        ([], "TASK"),
    ],
)
def test_a_wrong_enqueue_is_wrong_usage_and_enqueues_nothing(cli: Cli, shop: Shop, arguments: list[str], says: str) -> None:
    done = cli("enqueue", *arguments)
    assert done.code == 2
    assert says in done.err
    assert shop.do(lambda store: store.stats()).live == 0


def test_enqueue_waits_no_longer_than_it_was_told_to(cli: Cli, shop: Shop) -> None:
    done = cli("enqueue", "mail.send", "{}", "--wait", "--timeout", "50ms")
    assert (done.code, "has not ended within" in done.err) == (1, True)
    assert newest(shop).state is State.READY


def test_enqueue_prints_the_result_when_the_job_ends(cli: Cli, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def end_it(seconds: float) -> None:
        job = (await asyncio.to_thread(lambda: newest(shop))).id
        await asyncio.to_thread(lambda: shop.do(lambda store: store.complete({job: '{"n": 1}'})))

    monkeypatch.setattr("holdfast.cli.enqueue.asyncio.sleep", end_it)
    done = cli("enqueue", "mail.send", "{}", "--wait")
    assert (done.code, done.out) == (0, '{"n": 1}\n')


def test_args_in_an_array_go_to_the_parameters_in_their_order(cli: Cli, shop: Shop, module: str) -> None:
    assert cli("enqueue", "mail.send", '["ann", 2]', "--app", module).code == 0
    assert newest(shop).args == '{"to":"ann","times":2}'
    for args, says in (('["ann", 2, 3]', "ARGS holds 3 values, and the task 'mail.send' takes 2: to, times"), ("[3]", "at to")):
        bad = cli("enqueue", "mail.send", args, "--app", module)
        assert (bad.code, says in bad.err) == (2, True), bad.err


def test_a_setting_that_names_another_store_than_the_app_is_told(
    cli: Cli, shop: Shop, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "warning" not in cli("enqueue", "mail.send", '["ann"]', "--app", module).err
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://me:secret@host/jobs")
    done = cli("enqueue", "mail.send", '["bob"]', "--app", module)
    assert done.code == 0
    assert "warning: HOLDFAST_URL names the store postgresql://me:***@host/jobs, but the app was given" in done.err
    assert newest(shop).args == '{"to":"bob"}'


# -- loading an app ----------------------------------------------------------------------------------------------------------


def test_every_way_to_name_an_app_wrongly_is_told(
    cli: Cli, shop: Shop, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks.py").write_text("def load():\n    return 1 / 0\n\nload()\n")
    (tmp_path / "needs.py").write_text("import nothing_like_this\n")
    (tmp_path / "empty.py").write_text("")
    for target, says in {
        "no_such_module:app": f"there is no module 'no_such_module': looked in {tmp_path}",
        "breaks:app": "return 1 / 0",
        "needs:app": "No module named 'nothing_like_this'",
        "empty:app": 'Make one there: app = Holdfast("sqlite:///jobs.db")',
        f"{module}:missing": f"Found there: {module}:app",
        f"{module}:other": f"is a int, not a Holdfast app. Found there: {module}:app",
        "empty.py": "empty:app",
        "what ever": "is not of the form MODULE:APP",
    }.items():
        done = cli("worker", target)
        assert done.code == 2, target
        assert says in done.err, target
        assert "importlib" not in done.err
    assert "which app?" in cli("worker").err


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("@app.task(name='a')\ndef f(): ...\n@app.task(name='a')\ndef g(): ...", "5: there are two tasks named 'a'"),
        ("@app.task(cron='every day')\ndef f(): ...", "3: task 'MODULE.f': cron='every day' does not parse"),
        ("@app.task(timeout=0)\ndef f(): ...", "3: task 'MODULE.f': timeout must be a number of seconds"),
        ("@app.task\ndef f(): ...", "3: @app.task needs its parentheses"),
        ("other = Holdfast('mysql://x')", "3: the scheme 'mysql' names no store"),
    ],
)
def test_what_holdfast_refuses_in_a_module_is_told_in_one_line_with_its_place(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, told: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / f"refused_{tmp_path.name}.py"
    file.write_text(f"from holdfast import Holdfast\napp = Holdfast('memory://')\n{code}\n")
    done = cli("worker", file.stem)
    assert done.code == 2
    assert done.err.startswith(f"error: {file}:{told.replace('MODULE', file.stem)}")
    assert len(done.err.splitlines()) == 1


def test_an_error_of_the_module_itself_shows_its_own_frames_only(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "raises.py").write_text("import os\ndef url():\n    return os.environ['NOT_SET_ANYWHERE']\nurl()\n")
    done = cli("worker", "raises")
    assert done.code == 2
    assert [line.split('"')[1] for line in done.err.splitlines() if "File " in line] == [str(tmp_path / "raises.py")] * 2
    assert done.err.rstrip().endswith("KeyError: 'NOT_SET_ANYWHERE'")


def test_a_worker_of_an_app_without_any_url_says_how_to_give_one(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "nowhere.py").write_text("from holdfast import Holdfast\napp = Holdfast()\n")
    done = cli("worker", "nowhere")
    assert done.code == 2
    for way in ("which store?", "Holdfast(", "HOLDFAST_URL", "holdfast.toml"):
        assert way in done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--concurrency", "0"], "--concurrency: concurrency must be a whole number from 1"),
        (["--concurrency", "many"], "concurrency"),
        (["--prefetch", "-1"], "prefetch must be a whole number from 0"),
        (["--retry-share", "2"], "retry_share must be from 0 to 1"),
        (["--log-format", "xml"], "must be one of console, json"),
        (["--shutdown-timeout", "soon"], "must be a duration"),
        (["--queues", ","], "names no queue"),
    ],
)
def test_wrong_options_of_a_worker_are_told(cli: Cli, shop: Shop, module: str, arguments: list[str], says: str) -> None:
    done = cli("worker", module, *arguments)
    assert done.code == 2
    assert says in done.err


# -- queues, workers, schedules ------------------------------------------------------------------------------------------------


def test_a_queue_is_paused_with_who_and_why_and_resumed(cli: Cli, shop: Shop) -> None:
    shop.enqueue(queue="mail")
    assert cli("queues", "pause", "mail", "--reason", "down").out == "paused: mail\n"
    row = cli("queues", "ls").rows[0]
    assert (row[0], row[3]) == ("mail", "1")
    assert "down" in row[-1]
    assert cli("queues", "ls", "--json").json["queues"][0]["reason"] == "down"
    assert cli("queues", "resume", "mail").out == "resumed: mail\n"
    assert cli("queues", "resume", "mail").out == "mail was not paused\n"


def test_an_unknown_queue_may_be_paused_but_is_doubted(cli: Cli, shop: Shop) -> None:
    done = cli("queues", "pause", "mial")
    assert (done.code, "is the name right?" in done.err) == (0, True)


def test_offline_workers_are_listed_on_demand(cli: Cli, shop: Shop) -> None:
    worker = shop.worker("w1")
    assert cli("workers", "ls").rows[0][:3] == [str(worker), "w1", "idle"]
    shop.do(lambda store: store.retire(worker))
    assert cli("workers", "ls").out == ""
    assert cli("workers", "ls", "--all", "--json").json["workers"][0]["state"] == "offline"


def test_a_worker_is_drained_and_enabled_again(cli: Cli, shop: Shop) -> None:
    worker = shop.worker("w1")
    assert cli("workers", "drain", "w1").out == f"draining: {worker} w1\n"
    assert cli("workers", "ls").rows[0][2] == "idle, draining"
    assert shop.do(lambda store: store.beat(Beat(worker=worker))).drain
    assert cli("workers", "drain", "w1", "--json").json == {"id": str(worker), "name": "w1", "draining": True}
    assert cli("workers", "enable", "w1").code == 0
    assert cli("workers", "ls").rows[0][2] == "idle"
    shop.do(lambda store: store.retire(worker))
    assert "nothing to drain" in cli("workers", "drain", "w1").err
    assert cli("workers", "drain", "w9").code == 3


def test_a_worker_is_revoked_only_when_it_is_surely_meant(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue()
    (claimed,) = shop.claim()
    refused = cli("workers", "revoke", "w1")
    assert (refused.code, "takes 1 running job(s) away" in refused.err, "--yes" in refused.err) == (2, True, True)
    assert [lease.job_id for lease in shop.do(lambda store: store.holding(shop.worker()))] == [job_id]
    done = cli("workers", "revoke", "w1", "--yes")
    assert (done.code, done.out) == (0, f"revoked: {shop.worker()} w1, 1 job(s) wait again\n")
    assert shop.do(lambda store: store.settle([Settlement(claimed.lease, Write(Event.SUCCEED, 0))])) == ["stale"]
    assert cli("workers", "revoke", "w1", "--yes", "--json").json["released"] == []
    assert cli("workers", "revoke", "w9", "--yes").code == 3


def test_the_audit_log_tells_who_did_what(cli: Cli, shop: Shop) -> None:
    assert cli("audit").out == ""
    ids = [shop.enqueue() for _ in range(4)]
    cli("queues", "pause", "mail", "--reason", "provider down")
    cli("queues", "resume", "mail")
    cli("jobs", "cancel", *ids)
    cli("workers", "enable", shop.worker())
    rows = cli("audit").rows
    assert [row[3] for row in rows] == ["enable", "cancel", "resume", "pause"]
    assert {row[2] for row in rows} == {actor()}
    assert (rows[1][4], rows[1][5].count(","), rows[1][5].endswith(" …")) == ("4", 2, True)
    assert (rows[3][5], rows[3][6]) == ("mail", "provider down")
    assert [row[3] for row in cli("audit", "--limit", "1").rows] == ["enable"]
    assert [row[3] for row in cli("audit", "--action", "pause").rows] == ["pause"]
    assert cli("audit", "--actor", "nobody", "--json").json == {"lines": []}
    first = cli("audit", "--json").json["lines"][1]
    assert (first["action"], first["count"], first["targets"]) == ("cancel", 4, [str(job_id) for job_id in ids])
    assert cli("audit", "--limit", "0").code == 2
    assert cli("audit", "--action", "sing").code == 2


def test_schedules_are_listed(cli: Cli, shop: Shop) -> None:
    schedule = Schedule(name="nightly", task="t", cron="0 1 * * *", timezone="UTC", next_at=datetime(2040, 1, 1, tzinfo=UTC))
    shop.do(lambda store: store.schedule([schedule]))
    assert cli("schedules", "ls").rows[0][:3] == ["nightly", "t", "0 1 * * *"]
    assert cli("schedules", "ls", "--json").json["schedules"][0]["schedule"]["name"] == "nightly"


# -- prune -------------------------------------------------------------------------------------------------------------------


def test_prune_deletes_what_is_old_enough_and_a_dry_run_only_counts(cli: Cli, shop: Shop) -> None:
    succeeded, failed = shop.succeed(), shop.fail()
    shop.do(lambda store: store.rewind(8 * 86_400.0))
    young = shop.succeed()
    assert cli("prune", "--dry-run", "--json").json == {"dry_run": True, "count": 1, "states": {"succeeded": 1}}
    assert cli("prune", "--dry-run", "--failed", "1d").out == "would delete 2 job(s): 1 failed, 1 succeeded\n"
    assert cli("prune").out == "deleted 1 job(s)\n"
    assert [shop.state(job_id) for job_id in (succeeded, failed, young)] == [None, "failed", "succeeded"]
    assert cli("prune", "--succeeded", "often").code == 2


# -- doctor ------------------------------------------------------------------------------------------------------------------


def levels(done: Done) -> dict[str, str]:
    return {check["name"]: check["level"] for check in done.json["checks"]}


def test_doctor_finds_nothing_wrong_with_a_healthy_store(cli: Cli, shop: Shop) -> None:
    done = cli("doctor", "--json")
    assert done.code == 0
    found = levels(done)
    assert {
        found[name] for name in ("python", "extra postgres", "extra cli", "settings", "database", "clock", "queues", "workers")
    } == {"ok"}


@pytest.mark.row(33)
def test_doctor_tells_paused_queues_silent_workers_and_unserved_tasks(cli: Cli, shop: Shop) -> None:
    shop.worker("w1", info='{"tasks":["known"]}')
    shop.enqueue(task="unknown")
    shop.do(lambda store: store.pause("mail", by="ann", reason="down"))
    shop.do(lambda store: store.rewind(3600.0))
    done = cli("doctor")
    assert done.code == 0
    for says in ("paused for 1h by ann: down", "no sign of life for 1h", "unknown in default", "has waited for 1h"):
        assert says in done.out
    assert "-> holdfast queues resume mail" in done.out


def test_doctor_fails_where_the_store_cannot_be_used(cli: Cli, tmp_path: Path) -> None:
    missing = cli("doctor", "--url", f"sqlite:///{tmp_path}/none.db", "--json")
    assert (missing.code, levels(missing)["schema"]) == (1, "fail")
    away = cli("doctor", "--url", "postgresql://nobody@127.0.0.1:1/none", "--json")
    assert (away.code, levels(away)["database"]) == (1, "fail")
    (tmp_path / "holdfast.toml").write_text("concurency = 3")
    wrong = cli("doctor", "--json")
    assert (wrong.code, levels(wrong)["settings"]) == (1, "fail")


def test_doctor_measures_the_clock_without_the_time_a_question_takes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.do(doctor._clock).level == "ok"
    monkeypatch.setattr(doctor, "SKEW", (0.0, 30.0))
    assert shop.do(doctor._clock).level == "warn"


# -- everywhere --------------------------------------------------------------------------------------------------------------


def test_without_a_store_the_three_ways_to_name_one_are_told(cli: Cli) -> None:
    done = cli("jobs", "ls")
    assert done.code == 2
    for way in ("--url", "HOLDFAST_URL", "holdfast.toml"):
        assert way in done.err


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("mysql://x", 2),
        ("memory://", 2),
        ("sqlite:///none.db", 1),
        ("postgresql://nobody@127.0.0.1:1/none", 1),
        ("sqlite://x", 2),
    ],
)
def test_a_store_that_cannot_be_used_is_one_message(cli: Cli, url: str, code: int) -> None:
    done = cli("queues", "ls", "--url", url)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")


def test_a_file_that_is_not_there_is_no_reason_to_make_one(cli: Cli, tmp_path: Path) -> None:
    typo = cli("jobs", "ls", "--url", "sqlite:///typo.db")
    assert f"there is no file typo.db (looked in {tmp_path}). Check the path." in typo.err
    assert "a folder that does not exist" in cli("jobs", "ls", "--url", "sqlite:///nowhere/typo.db").err


def test_looking_never_creates_a_store(cli: Cli, tmp_path: Path) -> None:
    cli("jobs", "ls", "--url", f"sqlite:///{tmp_path}/typo.db")
    assert not (tmp_path / "typo.db").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_teaches_by_example(cli: Cli, command: str) -> None:
    done = cli(*command.split(), "--help")
    assert done.code == 0
    assert "Example: holdfast " + command in " ".join(done.out.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(cli: Cli, shell: str) -> None:
    out = cli("completion", shell).out
    assert "holdfast" in out
    assert "pause" in out


def test_only_what_is_named_is_loaded() -> None:
    assert [
        name
        for name in build(["jobs", "ls"])
        if name
        not in {"jobs", "chains", "queues", "limits", "workers", "schedules", "keys", "alerts", "--help", "-h", "--version"}
    ] == []


def test_unknown_commands_and_options_are_wrong_usage(cli: Cli) -> None:
    assert 'Did you mean "jobs"' in cli("job").err
    assert cli("jobs", "ls", "--colour").code == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25s"), (9.999, "10s"), (59.7, "1m"), (200, "3m 20s"), (18_600, "5h 10m"), (187_200, "2d 4h"), (None, "-")],
)
def test_spans_are_short(seconds: float | None, text: str) -> None:
    assert span(seconds) == text


def test_on_postgres_the_same_commands_work(cli: Cli, postgres_shop: Shop) -> None:
    job_id = postgres_shop.fail(queue="mail")
    waiting = postgres_shop.enqueue()
    assert [row[0] for row in cli("jobs", "ls", "state:failed").rows] == [str(job_id)]
    assert cli("jobs", "show", str(job_id)[:18]).code in (0, 2)
    assert "BOOM" in cli("jobs", "show", job_id).out
    assert cli("jobs", "retry", job_id).code == 0
    assert cli("jobs", "cancel", "state:waiting", "--yes").out == "2 canceled\n"
    assert cli("jobs", "why", waiting, "--json").json["reasons"][0]["code"] == "ended"
    assert cli("doctor").code == 0
    assert cli("top", "--json").json["counts"]["canceled"] == 2
    assert cli("prune", "--canceled", "0").out == "deleted 2 job(s)\n"
