"""Looking at jobs and steering them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import msgspec
import pytest
from uuid_utils.compat import uuid7

from holdfast.cli import output
from holdfast.core.outcome import Failed
from holdfast.core.retry import Retry
from holdfast.store.port import Checkpoint, LogLine, Part, PartState, Progress
from tests.cli.conftest import BOOM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Done, Shop

    Cli = Callable[..., Done]

BIG = '{"n":123456789012345678901234567890,"x":1.10}'


# -- ls ----------------------------------------------------------------------------------------------------------------------


def test_ls_lists_newest_first_and_filters_by_every_token(cli: Cli, shop: Shop) -> None:
    failed = shop.fail(queue="mail", tags=("vip",))
    waiting = shop.enqueue(task="other")
    assert [row[0] for row in cli("jobs", "ls").rows] == [str(waiting), str(failed)]
    for tokens in (["state:failed"], ["task:mail.send"], ["queue:mail", "state:ended"], ["tag:vip"], ["tag:vip", "since:1h"]):
        assert [row[0] for row in cli("jobs", "ls", *tokens).rows] == [str(failed)], tokens
    assert cli("jobs", "ls", "before:1h").out == ""
    assert [row[1] for row in cli("jobs", "ls", "state:waiting,failed").rows] == ["ready", "failed"]


def test_ls_pages_and_says_how_to_go_on(cli: Cli, shop: Shop) -> None:
    ids = [str(shop.enqueue()) for _ in range(3)][::-1]
    first = cli("jobs", "ls", "--limit", 2)
    assert [row[0] for row in first.rows] == ids[:2]
    assert f"--after {ids[1]}" in first.err
    assert [row[0] for row in cli("jobs", "ls", "--after", ids[1]).rows] == ids[2:]
    assert [row[0] for row in cli("jobs", "ls", "-n", 1, "--all").rows] == ids
    assert cli("jobs", "ls", "-n", 2, "--json").json["after"] == ids[1]
    assert cli("jobs", "ls", "-n", 3, "--json").json["after"] is None


def test_a_search_that_is_given_up_early_says_so(cli: Cli, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.finding.SEARCHES", 0)
    shop.enqueue()
    assert cli("jobs", "ls", "--json").json["searched_all"] is False
    assert cli("jobs", "ls", "--all", "--json").json["searched_all"] is True


def test_json_keeps_args_exact_and_times_iso(cli: Cli, shop: Shop) -> None:
    job_id = shop.succeed(args=BIG, result=BIG)
    done = cli("jobs", "show", job_id, "--json")
    # not decoded: a parser may round
    assert '"n": 123456789012345678901234567890' in done.out
    assert '"x": 1.10' in done.out
    record = msgspec.json.decode(cli("jobs", "ls", "--json").out)["jobs"][0]
    assert record["id"] == str(job_id)
    assert record["created_at"].endswith("Z") or "+00:00" in record["created_at"]
    assert record["policy"]["retry"]["max_attempts"] == 1


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("stat:failed", "do you mean state:"),
        ("failed", "is no filter token"),
        ("state:broken", "none of blocked, scheduled"),
        ("since:yesterday", "is no duration"),
        ("state:", "is no filter token"),
    ],
)
def test_a_wrong_token_is_wrong_usage(cli: Cli, shop: Shop, token: str, says: str) -> None:
    done = cli("jobs", "ls", token)
    assert done.code == 2
    assert says in done.err


def test_control_characters_of_a_job_never_reach_the_terminal(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue(tags=("a\x1b[31m\tb",), args='{"a":"\x1b]0;x\x07"}')
    for arguments in (["jobs", "ls"], ["jobs", "show", job_id], ["jobs", "why", job_id]):
        out = cli(*arguments).out
        assert "\x1b" not in out
        assert "\x07" not in out


# -- ids ---------------------------------------------------------------------------------------------------------------------


def test_a_job_is_found_by_the_beginning_of_its_id(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue()
    assert str(job_id) in cli("jobs", "show", str(job_id)[:20]).out
    assert str(job_id) in cli("jobs", "show", job_id.hex.upper()).out


def test_a_job_is_found_by_its_short_id_among_many_of_the_same_minute(cli: Cli, shop: Shop) -> None:
    ids = [shop.enqueue() for _ in range(8)]
    for job_id in ids:
        short = output.short_id(str(job_id))
        assert len(short) == 16
        for word in (short, short.replace("..", "…"), short.upper()):
            assert cli("jobs", "show", word, "--json").json["id"] == str(job_id)
    assert cli("jobs", "show", f"{ids[0].hex[:8]}..ffffff").code == 3
    assert cli("jobs", "show", f"{ids[0].hex[:8]}..xyz").code == 2


def test_a_beginning_that_several_share_is_refused_with_their_ids(cli: Cli, shop: Shop) -> None:
    base = uuid7()
    twins = [UUID(base.hex[:31] + digit) for digit in "01"]
    for twin in twins:
        shop.enqueue(id=twin)
    done = cli("jobs", "show", base.hex[:20])
    assert done.code == 2
    assert all(str(twin) in done.err for twin in twins)


@pytest.mark.parametrize("command", ["show", "why", "logs", "retry", "cancel", "delete"])
def test_an_unknown_job_is_not_found(cli: Cli, shop: Shop, command: str) -> None:
    assert cli("jobs", command, uuid7()).code == 3
    assert cli("jobs", command, "01890a5d").code == 3
    assert cli("jobs", command, "zebra").code == 2
    assert cli("jobs", command, "0189").code == 2


# -- show --------------------------------------------------------------------------------------------------------------------


def test_show_tells_the_whole_story(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue(retry=Retry(max_attempts=2, initial=0.0), tags=("vip",))
    claimed = shop.claim()[0]
    shop.do(lambda store: store.checkpoint([Checkpoint(claimed.lease, Part("render", PartState.COMPLETED, done=1, total=1))]))
    shop.settle(claimed, Failed(BOOM))
    shop.settle(shop.claim()[0], Failed(BOOM))
    out = cli("jobs", "show", job_id, "--events").out
    for part in ("mail.send", "failed", "attempt 1 on w1", "attempt 2 on w1", "part render: completed", '{"to":"ann"}', "vip"):
        assert part in out
    assert 'File "mail.py", line 7' in out
    assert f"holdfast jobs retry {job_id}" in out
    assert "claimed" in out.split("events")[-1]
    record = cli("jobs", "show", job_id, "--json", "--events").json
    assert [attempt["attempt"] for attempt in record["report"]["attempts"]] == [1, 2]
    assert record["events"][0]["event"] == "enqueued"


# -- logs --------------------------------------------------------------------------------------------------------------------


def test_logs_are_printed_in_order_and_followed_to_the_end(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue()
    assert "nothing" in cli("jobs", "logs", job_id).err
    claimed = shop.claim()[0]
    lines = [LogLine(lease=claimed.lease, message=f"line {n}\x1b[2J", logger="mail", fields='{"n":1}') for n in range(3)]
    shop.do(lambda store: store.log(lines))
    shop.settle(claimed, Failed(BOOM, fatal=True))
    done = cli("jobs", "logs", job_id, "--follow")
    assert [line.split("mail: ")[1].split("\\")[0] for line in done.out.splitlines()] == ["line 0", "line 1", "line 2"]
    records = [msgspec.json.decode(line) for line in cli("jobs", "logs", job_id, "--json").out.splitlines()]
    assert [record["fields"] for record in records] == [{"n": 1}] * 3


# -- steering ----------------------------------------------------------------------------------------------------------------


def test_retry_cancel_and_delete_by_id(cli: Cli, shop: Shop) -> None:
    job_id = shop.fail()
    assert "to run again" in cli("jobs", "retry", job_id).out
    assert shop.state(job_id) == "ready"
    refused = cli("jobs", "retry", job_id)
    assert (refused.code, "has not ended" in refused.err) == (1, True)
    assert cli("jobs", "cancel", job_id, "--reason", "enough").code == 0
    assert "enough" in cli("jobs", "show", job_id, "--events").out
    assert cli("jobs", "delete", job_id, "--json").json["counts"] == {"done": 1}
    assert shop.state(job_id) is None


def test_a_running_job_is_asked_to_stop(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue()
    shop.claim()
    assert "asked to stop" in cli("jobs", "cancel", job_id).out
    assert "asked to stop" in cli("jobs", "why", job_id).out


def test_bulk_needs_yes_and_a_dry_run_changes_nothing(cli: Cli, shop: Shop) -> None:
    ids = [shop.fail() for _ in range(3)]
    kept = shop.succeed()
    refused = cli("jobs", "retry", "task:mail.send")
    assert (refused.code, "3 job(s)" in refused.err, "--yes" in refused.err) == (2, True, True)
    dry = cli("jobs", "retry", "task:mail.send", "--dry-run")
    assert (dry.code, set(dry.out.split())) == (0, set(map(str, ids)))
    assert {shop.state(job_id) for job_id in ids} == {"failed"}
    assert cli("jobs", "retry", "task:mail.send", "--yes").out == "3 to run again\n"
    assert {shop.state(job_id) for job_id in ids} == {"ready"}
    assert shop.state(kept) == "succeeded"


def test_bulk_stops_at_its_cap_and_says_so(cli: Cli, shop: Shop) -> None:
    ids = [shop.enqueue() for _ in range(3)]
    done = cli("jobs", "cancel", "queue:default", "--limit", 2, "--yes")
    assert done.out == "2 canceled\n"
    assert "there are more" in done.err
    assert [shop.state(job_id) for job_id in ids] == ["ready", "canceled", "canceled"]


def test_ids_and_tokens_do_not_mix_and_nothing_is_not_everything(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue()
    assert cli("jobs", "delete", job_id, "state:failed", "--yes").code == 2
    assert cli("jobs", "delete", "--yes").code == 2
    assert shop.state(job_id) == "ready"


# -- why ---------------------------------------------------------------------------------------------------------------------


def why(cli: Cli, job_id: UUID) -> list[str]:
    assert cli("jobs", "why", job_id).code == 0
    return [reason["code"] for reason in cli("jobs", "why", job_id, "--json").json["reasons"]]


def test_why_no_worker_is_there(cli: Cli, shop: Shop) -> None:
    assert why(cli, shop.enqueue()) == ["no_worker"]


@pytest.mark.row(33)
def test_why_no_worker_knows_the_task_or_serves_the_queue_or_can(cli: Cli, shop: Shop) -> None:
    shop.worker(info='{"tasks":["mail.send"],"queues":["mail"]}')
    assert why(cli, shop.enqueue(task="other")) == ["unknown_task"]
    assert why(cli, shop.enqueue(queue="video")) == ["unserved_queue"]
    assert why(cli, shop.enqueue(queue="mail", requires=("gpu",))) == ["missing_capability"]
    assert why(cli, shop.enqueue(queue="mail")) == ["next"]


def test_why_it_is_left_to_a_worker_that_it_prefers(cli: Cli, shop: Shop) -> None:
    shop.worker(slots=2)
    job_id = shop.enqueue(prefers=("gpu",), prefer_for=600.0)
    assert why(cli, job_id) == ["next"]
    shop.worker("strong", capabilities=("gpu",))
    assert why(cli, job_id) == ["preferred"]
    assert "a worker with gpu" in cli("jobs", "why", job_id).out
    waits_no_longer = shop.enqueue(prefers=("gpu",), prefer_for=0.001)
    assert why(cli, waits_no_longer) == ["next"]


def test_why_all_who_could_run_it_drain(cli: Cli, shop: Shop) -> None:
    shop.worker("w7")
    job_id = shop.enqueue()
    assert cli("workers", "drain", "w7").code == 0
    assert why(cli, job_id) == ["draining"]
    shop.worker("w8")
    assert why(cli, job_id) == ["next"]
    assert "idle, draining" in cli("top", "--once").out


def test_why_it_is_paused(cli: Cli, shop: Shop) -> None:
    shop.worker()
    job_id = shop.enqueue()
    cli("queues", "pause", "default", "--reason", "provider down")
    assert why(cli, job_id) == ["paused"]
    out = cli("jobs", "why", job_id).out
    assert "provider down" in out
    assert "holdfast queues resume default" in out


def test_why_it_is_scheduled_or_retrying_or_will_expire(cli: Cli, shop: Shop) -> None:
    shop.worker()
    assert why(cli, shop.enqueue(delay=3600.0, expires_in=7200.0)) == ["scheduled", "expires"]
    retrying = shop.enqueue(retry=Retry(max_attempts=3, initial=600.0))
    shop.settle(shop.claim()[0], Failed(BOOM))
    assert why(cli, retrying) == ["retrying"]
    assert "1 time of 3" in cli("jobs", "why", retrying).out


def test_why_it_is_blocked(cli: Cli, shop: Shop) -> None:
    shop.worker()
    blocker = shop.enqueue()
    waiter = shop.enqueue(after=(blocker,))
    assert why(cli, waiter) == ["blocked"]
    assert f"{blocker} (mail.send, which is ready)" in cli("jobs", "why", waiter).out


def test_why_all_slots_are_busy_and_how_it_runs(cli: Cli, shop: Shop) -> None:
    running, waiting = shop.enqueue(), shop.enqueue()
    shop.claim()
    assert why(cli, waiting) == ["busy"]
    assert why(cli, running) == ["running"]
    assert "; its lease holds for " in cli("jobs", "why", running).out


def test_why_its_holder_is_gone_or_its_lease_has_lapsed(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue(lease=300.0)
    shop.claim()
    shop.do(lambda store: store.retire(shop.worker()))
    assert why(cli, job_id) == ["holder_gone"]
    shop.do(lambda store: store.rewind(400.0))
    assert why(cli, job_id) == ["lapsed"]


def test_why_it_has_ended(cli: Cli, shop: Shop) -> None:
    job_id = shop.fail()
    assert why(cli, job_id) == ["ended"]
    assert "BOOM: it broke" in cli("jobs", "why", job_id).out


def test_a_disabled_worker_counts_for_nothing(cli: Cli, shop: Shop) -> None:
    worker = shop.worker("w7")
    job_id = shop.enqueue()
    assert cli("workers", "disable", "w7").code == 0
    assert why(cli, job_id) == ["no_worker"]
    assert cli("workers", "ls").rows[0][2] == "disabled"
    assert cli("workers", "enable", worker).code == 0
    assert why(cli, job_id) == ["next"]
    assert cli("workers", "enable", uuid4()).code == 3


# -- top ---------------------------------------------------------------------------------------------------------------------


def test_top_prints_once_in_a_pipe(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    job_id = shop.enqueue(queue="video")
    shop.enqueue(queue="video")
    claimed = shop.claim()[0]
    shop.do(lambda store: store.progress([Progress(claimed.lease, 40.0, "encode")]))
    rows = cli("top").rows
    assert ["count", "running", "1"] in rows
    assert [row[:3] for row in rows if row[0] == "queue"] == [["queue", "video", "1"]]
    assert [(row[1], row[4], row[5]) for row in rows if row[0] == "running"] == [(str(job_id), "40.0", "encode")]
    snapshot = cli("top", "--json").json
    assert snapshot["counts"]["ready"] == 1
    assert snapshot["running"][0]["progress"] == 40.0
    assert snapshot["workers"][0]["state"] == "busy"
    assert cli("top", "--interval", "0").code == 2
