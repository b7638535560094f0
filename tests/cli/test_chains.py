"""Chains, blockers, completion from outside and signals, from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from holdfast.core.job import Unique
from holdfast.core.outcome import Error, Failed, Rescheduled, Suspended
from holdfast.core.retry import Retry
from holdfast.core.settle import Write
from holdfast.core.states import Event
from holdfast.store.port import Checkpoint, Part, PartState, Settlement
from tests.cli.conftest import TASK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast.store.port import Store
    from tests.cli.conftest import Done, Shop

    Cli = Callable[..., Done]

APPROVALS = """
from holdfast import Holdfast
app = Holdfast()

@app.task(name="approve", executor="outside")
def approve(order: int) -> dict[str, bool]:
    raise NotImplementedError
"""


# -- lists -------------------------------------------------------------------------------------------------------------------


def test_ls_lists_chains_by_their_first_step_and_where_they_stand(cli: Cli, shop: Shop) -> None:
    shop.enqueue(task="plain")
    older = shop.chain(3, queue="mail", tags=("vip",))
    newer = shop.chain(1)
    rows = cli("chains", "ls").rows
    assert [row[:4] for row in rows] == [
        [str(newer[0]), "ready", TASK, "1"],
        [str(older[0]), "ready", TASK, "3"],
    ]
    for tokens in (["queue:mail"], ["tag:vip", "state:live"], ["task:mail.send", "tag:vip", "since:1h"]):
        assert [row[0] for row in cli("chains", "ls", *tokens).rows] == [str(older[0])], tokens
    assert cli("chains", "ls", "state:ended").out == ""
    page = cli("chains", "ls", "-n", 1, "--json").json
    assert ([one["id"] for one in page["chains"]], page["after"]) == ([str(newer[0])], str(newer[0]))
    assert f"--after {newer[0]}" in cli("chains", "ls", "-n", 1).err
    assert [row[0] for row in cli("chains", "ls", "--after", newer[0]).rows] == [str(older[0])]
    assert len(cli("chains", "ls", "-n", 1, "--all").rows) == 2
    assert cli("chains", "ls", f"chain:{newer[0]}").code == 2
    assert cli("chains", "ls", "-n", 0).code == 2


def test_show_tells_where_a_chain_stands_from_any_of_its_steps(cli: Cli, shop: Shop) -> None:
    ids = shop.chain(4, unique=Unique(key="order:1", scope=TASK))
    for step in ids:
        shown = cli("chains", "show", step)
        assert f"chain {ids[0]} of {TASK}" in shown.out
        assert f"last step: {ids[-1]}" in shown.out
        assert "ready, 4 step(s)" in shown.out
        assert f"holdfast jobs why {ids[-1]}" in shown.out
        assert "key: order:1" in shown.out
    few = cli("chains", "show", ids[0], "--steps", 2)
    assert str(ids[1]) not in few.out
    assert f"2 earlier one(s): --steps, or holdfast jobs ls chain:{ids[0]} --all" in few.err
    assert [row[0] for row in cli("jobs", "ls", f"chain:{ids[0]}").rows] == [str(step) for step in reversed(ids)]
    assert cli("jobs", "ls", "chain:abc").code == 2
    record = cli("chains", "show", ids[0], "--json").json
    assert (record["steps"], record["state"], len(record["last_steps"])) == (4, "ready", 4)
    assert cli("chains", "show", uuid4()).code == 3
    shop.settle(shop.claim()[0], Suspended(signal="never"))
    assert cli("chains", "show", ids[0], "--json").json["state"] == "scheduled"


def test_show_of_an_ended_chain_has_its_result_or_error(cli: Cli, shop: Shop) -> None:
    ids = shop.chain(2)
    cli("jobs", "complete", ids[-1], '{"total": 1.10}')
    shown = cli("chains", "show", ids[0])
    assert '{"total": 1.10}' in shown.out
    assert "succeeded" in shown.out
    failed = shop.chain(1)
    cli("jobs", "fail", failed[0], "no paper", "--code", "PAPER")
    assert "PAPER: no paper" in cli("chains", "show", failed[0]).out
    assert "PAPER: no paper" in cli("chains", "ls").out


# -- deleting ----------------------------------------------------------------------------------------------------------------


def test_delete_removes_a_chain_with_all_its_steps(cli: Cli, shop: Shop) -> None:
    ids = shop.chain(3)
    refused = cli("jobs", "delete", ids[1])
    assert (refused.code, "one of several steps of a chain" in refused.err) == (1, True)
    later = cli("chains", "delete", ids[1])
    assert (later.code, f"holdfast chains delete {ids[0]}" in later.err) == (1, True)
    assert cli("chains", "delete", ids[0]).out == f"{ids[0]}: deleted\n"
    assert [shop.state(step) for step in ids] == [None] * 3
    assert cli("chains", "delete", ids[0]).code == 3
    assert cli("chains", "delete").code == 2


def test_delete_is_refused_while_somebody_needs_it_and_cascades(cli: Cli, shop: Shop) -> None:
    (blocker,) = shop.chain(1)
    (middle,) = shop.chain(1, after=(blocker,))
    waiter = shop.enqueue(after=(middle,))
    for chain, arguments, by in ((blocker, [], middle), (middle, ["--cascade"], waiter)):
        refused = cli("chains", "delete", chain, *arguments)
        assert refused.code == 1
        assert f"job {by} waits for chain {chain}" in refused.err
    assert cli("chains", "delete", middle, "--json").json["answer"] == "needed"
    done = cli("chains", "delete", waiter, "--cascade", "--json").json
    assert {UUID(one) for one in done["chains"]} == {waiter, middle, blocker}


# -- steering ----------------------------------------------------------------------------------------------------------------


def test_cancel_ends_a_chain_at_the_step_where_it_stands(cli: Cli, shop: Shop) -> None:
    ids = shop.chain(3)
    refused = cli("jobs", "cancel", ids[0])
    assert refused.code == 1
    assert f"refused: it has ended, and its chain goes on. To end that: holdfast chains cancel {ids[0]}" in refused.err
    done = cli("chains", "cancel", ids[1], "--reason", "not needed")
    assert (done.code, done.out) == (0, f"{ids[0]}: canceled at its step 3, {TASK}\n")
    assert shop.state(ids[2]) == "canceled"
    assert cli("chains", "show", ids[0], "--json").json["error"]["message"] == "not needed"
    again = cli("chains", "cancel", ids[0])
    assert (again.code, again.err) == (1, f"error: {ids[0]}: refused: it has ended already, as canceled\n")
    running = shop.chain(1)
    shop.claim()
    record = cli("chains", "cancel", running[0], "--json").json
    assert record["answers"] == {str(running[0]): "requested"}
    assert cli("chains", "cancel", uuid4()).code == 3
    assert cli("chains", "cancel").code == 2


def test_retry_brings_a_chain_back_at_its_last_step(cli: Cli, shop: Shop) -> None:
    ids = shop.chain(2)
    live = cli("chains", "retry", ids[0])
    assert (live.code, live.err) == (1, f"error: {ids[0]}: refused: it has not ended, it is ready at its step 2, {TASK}\n")
    cli("jobs", "fail", ids[1], "no paper")
    refused = cli("jobs", "retry", ids[0])
    assert (refused.code, f"its last one: holdfast chains retry {ids[0]}" in refused.err) == (1, True)
    done = cli("chains", "retry", ids[0])
    assert (done.code, done.out) == (0, f"{ids[0]}: goes on at its step 2, {TASK}\n")
    assert shop.state(ids[1]) == "ready"
    assert cli("chains", "retry", uuid4()).code == 3
    assert cli("chains", "retry").code == 2


# -- one job -----------------------------------------------------------------------------------------------------------------


def test_show_of_a_job_has_its_chain_and_its_blockers(cli: Cli, shop: Shop) -> None:
    plain = shop.succeed("7")
    ids = shop.chain(2)
    waiter = shop.enqueue(after=(plain, ids[0]))
    shown = cli("jobs", "show", waiter).out
    assert f"after: {plain} (succeeded, {TASK})" in shown
    assert f"after: {ids[0]} (ready, {TASK})" in shown
    record = cli("jobs", "show", waiter, "--json").json
    assert [(one["chain_id"], one["result"]) for one in record["blockers"]] == [(str(plain), 7), (str(ids[0]), None)]
    assert record["chain"] is None
    first = cli("jobs", "show", ids[0]).out
    assert f"chain: {ids[0]}, 2 step(s), ready" in first
    assert f"continued by: {ids[1]}" in first
    assert f"holdfast chains show {ids[0]}" in first
    assert cli("jobs", "show", ids[0], "--json").json["chain"]["steps"] == 2


def test_why_names_the_blocker_and_the_step_it_stands_at(cli: Cli, shop: Shop) -> None:
    ids = shop.chain(2)
    waiter = shop.enqueue(after=(ids[0],))
    told = cli("jobs", "why", waiter)
    assert f"it waits for chain {ids[0]} ({TASK}, which is ready at its step 2, {TASK})" in told.out
    assert f"holdfast jobs why {ids[1]}" in told.out


def test_why_of_a_step_that_continued_leads_to_where_its_chain_stands(cli: Cli, shop: Shop) -> None:
    ids = shop.chain(2)
    (told,) = cli("jobs", "why", ids[0], "--json").json["reasons"]
    assert told["code"] == "continued"
    assert told["text"].endswith(f"; its chain {ids[0]} is ready at its step 2, {TASK}")
    assert told["fix"] == f"why it is there: holdfast jobs why {ids[1]}"
    cli("jobs", "fail", ids[1], "no paper")
    (told,) = cli("jobs", "why", ids[0], "--json").json["reasons"]
    assert told["fix"] == f"to have it go on from its last step: holdfast chains retry {ids[0]}"


def test_a_job_with_many_blockers_is_shown_on_one_page(cli: Cli, shop: Shop) -> None:
    done = shop.succeed()
    blockers = [shop.enqueue() for _ in range(15)]
    waiter = shop.enqueue(after=(done, *blockers))
    shown = [line for line in cli("jobs", "show", waiter).out.splitlines() if "after:" in line]
    assert shown[0] == "  after: 16 chains: 15 ready, 1 succeeded"
    assert shown[1:11] == [f"  after: {one} (ready, {TASK})" for one in blockers[:10]]
    assert shown[11:] == ["  after: … 6 more: --json"]
    assert len(cli("jobs", "show", waiter, "--json").json["blockers"]) == 16
    told = cli("jobs", "why", waiter, "--json").json["reasons"]
    assert told[0]["text"] == "it waits for 15 chains: 15 ready"
    assert [one["text"] for one in told if one["code"] == "blocked"][1:11] == [
        f"it waits for chain {one} ({TASK}, which is ready)" for one in blockers[:10]
    ]
    assert [one["fix"] for one in told if "more" in one["text"]] == [f"all of them: holdfast jobs show {waiter} --json"]
    assert sum(one["code"] == "blocked" for one in told) == 12


def suspend(shop: Shop, *, signal: str | None, seconds: float = 3600.0, part: str) -> UUID:
    job_id = shop.enqueue()
    (claimed,) = shop.claim()

    async def work(store: Store) -> None:
        await store.checkpoint([Checkpoint(claimed.lease, Part(part, PartState.IN_PROGRESS))])
        await store.settle([Settlement(claimed.lease, Write(Event.SUSPEND, 0, delay=seconds), signal=signal)])

    shop.do(work)
    return job_id


def test_why_names_the_signal_that_a_job_waits_for(cli: Cli, shop: Shop) -> None:
    waiting = suspend(shop, signal="paid:42", part="wait:paid:42")
    told = cli("jobs", "why", waiting, "--json").json["reasons"][0]
    assert told["code"] == "signal"
    assert "it waits without a slot for the signal 'paid:42', until " in told["text"]
    assert told["fix"] == "emit it: holdfast signal paid:42 '{}'"
    asleep = suspend(shop, signal=None, part="sleep:1")
    told = cli("jobs", "why", asleep, "--json").json["reasons"][0]
    assert (told["code"], "it sleeps without a slot, until " in told["text"]) == ("asleep", True)


def test_why_says_that_a_job_waits_for_somebody(cli: Cli, shop: Shop) -> None:
    waiting = shop.enqueue(task="approve")
    shop.worker("w1", info='{"tasks":["mail.send"],"outside":["approve"]}')
    told = cli("jobs", "why", waiting, "--json").json["reasons"]
    assert [one["code"] for one in told] == ["outside"]
    assert f"holdfast jobs complete {waiting} RESULT" in told[0]["fix"]
    cli("workers", "disable", shop.workers["w1"])
    assert [one["code"] for one in cli("jobs", "why", waiting, "--json").json["reasons"]] == ["outside"]
    cli("workers", "enable", shop.workers["w1"])
    unknown = shop.enqueue(task="other")
    assert f"holdfast jobs complete {unknown} RESULT" in cli("jobs", "why", unknown).out


def test_why_of_a_job_that_is_tried_again_says_how_the_last_attempt_ended(cli: Cli, shop: Shop) -> None:
    unread = shop.enqueue()
    shop.settle(shop.claim()[0], Rescheduled(after=30, error=Error("BAD_ARGS", "their upgrade to 2 raised KeyError")))
    told = cli("jobs", "why", unread, "--json").json["reasons"][0]
    assert told["text"].endswith("; attempt 1 ended with BAD_ARGS: their upgrade to 2 raised KeyError")
    failing = shop.enqueue(retry=Retry(max_attempts=3))
    shop.settle(shop.claim()[0], Failed(Error("PAPER", "no paper")))
    told = cli("jobs", "why", failing, "--json").json["reasons"][0]
    assert (told["code"], told["text"].endswith("; attempt 1 ended with PAPER: no paper")) == ("retrying", True)


def test_why_without_any_worker_says_that_somebody_may_have_to_complete_it(cli: Cli, shop: Shop) -> None:
    waiting = shop.enqueue(task="approve")
    (told,) = cli("jobs", "why", waiting, "--json").json["reasons"]
    assert told["code"] == "no_worker"
    assert told["fix"].endswith(f"; if it waits for somebody: holdfast jobs complete {waiting} RESULT")


# -- from outside ------------------------------------------------------------------------------------------------------------


def test_complete_ends_a_job_once_and_says_who_was_first(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue()
    done = cli("jobs", "complete", job_id, '{"ok": true}', "--by", "anna")
    assert (done.code, done.out) == (0, f"{job_id}: succeeded\n")
    assert cli("jobs", "show", job_id, "--json").json["result"] == {"ok": True}
    again = cli("jobs", "fail", job_id, "no", "--by", "bert")
    assert again.code == 1
    assert f"{job_id} has succeeded already by anna, at " in again.err
    record = cli("jobs", "complete", job_id, "--json").json
    assert (record["applied"], record["state"], record["by"]) == (False, "succeeded", "anna")
    assert cli("jobs", "complete", uuid4()).code == 3
    wrong = cli("jobs", "complete", job_id, "approved")
    assert (wrong.code, "RESULT is not valid JSON" in wrong.err, "quotes of its own" in wrong.err) == (2, True, True)


def test_fail_ends_a_job_for_good_with_a_code(cli: Cli, shop: Shop) -> None:
    job_id = shop.enqueue()
    assert cli("jobs", "fail", job_id, "withdrawn", "--code", "WITHDRAWN").out == f"{job_id}: failed\n"
    record = cli("jobs", "show", job_id, "--json").json
    assert (record["state"], record["error"]["code"], record["error"]["message"]) == ("failed", "WITHDRAWN", "withdrawn")
    assert cli("jobs", "fail", uuid4()).code == 3


def test_complete_with_an_app_has_the_task_check_the_result(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "approvals_app.py").write_text(APPROVALS)
    job_id = shop.enqueue(task="approve", args='{"order":1}')
    bad = cli("jobs", "complete", job_id, '{"ok": "yes"}', "--app", "approvals_app:app")
    assert (bad.code, "result.ok" in bad.err) == (2, True)
    assert shop.state(job_id) == "ready"
    assert cli("jobs", "complete", job_id, '{"ok": true}', "--app", "approvals_app:app").code == 0
    assert shop.state(job_id) == "succeeded"
    other = cli("jobs", "complete", shop.enqueue(), "1", "--app", "approvals_app:app")
    assert (other.code, "does not declare the task 'mail.send'" in other.err) == (2, True)
    assert cli("jobs", "complete", job_id, "1", "--app", "approvals_app:app", "--url", shop.url).code == 2


def test_a_signal_is_emitted_once(cli: Cli, shop: Shop) -> None:
    waiting = suspend(shop, signal="paid:42", part="wait:paid:42")
    assert cli("signal", "paid:42", '{"amount": 1}').out == "emitted: paid:42, 1 job(s) waited for it\n"
    assert shop.state(waiting) == "ready"
    again = cli("signal", "paid:42")
    assert (again.code, again.out) == (0, "paid:42 was emitted before, and stands as it was\n")
    record = cli("signal", "other", "--json").json
    assert (record["first"], record["jobs"]) == (True, [])
    assert shop.do(lambda store: store.signals(["paid:42"])) == {"paid:42": '{"amount": 1}'}
    assert cli("signal", "").code == 2
    assert cli("signal", "a", "{").code == 2


@pytest.mark.parametrize("older", [True, False])
def test_a_dry_run_of_prune_counts_the_steps_of_a_chain_by_its_last(cli: Cli, shop: Shop, *, older: bool) -> None:
    ids = shop.chain(3)
    if older:
        cli("jobs", "complete", ids[-1])
    shop.do(lambda store: store.rewind(100.0))
    counted = cli("prune", "--succeeded", "1m", "--dry-run", "--json").json["count"]
    assert counted == (3 if older else 0)
    assert cli("prune", "--succeeded", "1m", "--signals", "1s", "--json").json["count"] == counted


def test_neither_prune_nor_its_dry_run_takes_what_a_live_job_needs(cli: Cli, shop: Shop) -> None:
    needed, chain = shop.succeed(), shop.chain(2)
    cli("jobs", "complete", chain[-1])
    waiter = shop.enqueue(after=(needed, chain[0]))
    other = shop.succeed(task="other")
    shop.do(lambda store: store.rewind(100.0))

    assert cli("prune", "--succeeded", "1m", "--dry-run", "--json").json["count"] == 1
    assert cli("prune", "--succeeded", "1m", "--json").json["count"] == 1
    assert [shop.state(one) for one in (needed, other)] == ["succeeded", None]
    cli("jobs", "complete", waiter)
    assert cli("prune", "--succeeded", "1m", "--dry-run", "--json").json["count"] == 3
    assert cli("prune", "--succeeded", "1m", "--json").json["count"] == 3


def test_what_is_waited_for_on_the_command_line_is_the_end_of_the_chain(cli: Cli, shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "steps_app.py").write_text(
        "from holdfast import Holdfast, Job\n"
        "app = Holdfast()\n"
        "@app.task(name='first')\n"
        "async def first(*, job: Job) -> str: return job.continue_with(second)\n"
        "@app.task(name='second')\n"
        "async def second() -> str: return 'the end'\n"
    )
    worker = [sys.executable, "-m", "holdfast", "worker", "steps_app:app"]
    with subprocess.Popen(
        worker, cwd=tmp_path, env=os.environ | {"HOLDFAST_URL": shop.url}, stderr=subprocess.DEVNULL
    ) as running:
        try:
            for arguments in ([], ["--app", "steps_app:app"]):
                done = cli("enqueue", "first", *arguments, "--wait", "--timeout", "60s")
                assert (done.code, done.out) == (0, '"the end"\n'), done.err
        finally:
            running.terminate()
