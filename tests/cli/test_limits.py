"""`holdfast limits`, and what other commands say of jobs that a limit holds back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.job import Policy
from holdfast.core.limits import LimitKey, LimitKind, LimitName, LimitRule
from holdfast.notify.port import Hint
from tests.cli.conftest import TASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Done, Shop

    Cli = Callable[..., Done]

OVER_TASK = LimitName(LimitKind.TASK, TASK)
OVER_SCOPE = LimitName(LimitKind.KEY, "tenants")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Hint]:
    """What workers were told."""
    heard: list[Hint] = []

    async def tell(_: Any, hint: Hint) -> None:
        heard.append(hint)

    monkeypatch.setattr("holdfast.cli.limits.tell", tell)
    return heard


def declare(shop: Shop, **rules: Any) -> None:
    name = LimitName(rules.pop("kind", LimitKind.TASK), rules.pop("name", TASK))
    shop.do(lambda store: store.declare({name: LimitRule(**rules)}))


def test_a_limit_is_set_listed_and_cleared(cli: Cli, shop: Shop) -> None:
    declare(shop, most=4)
    for _ in range(3):
        shop.enqueue()
    assert cli("limits", "set", "--task", TASK, "--most", "1").out == f"task {TASK}: at most 1 at once\n"
    assert len(shop.claim(limit=5)) == 1
    (row,) = cli("limits", "ls").rows
    assert row[:6] == [f"task {TASK}", "-", "at most 1 at once", "1/1", "-", "2"]
    assert "by " in row[6]
    assert cli("limits", "clear", "--task", TASK).out == f"task {TASK}: at most 4 at once, as declared\n"
    assert cli("limits", "clear", "--task", TASK).out == f"task {TASK} was not set: at most 4 at once, as declared\n"
    assert cli("limits", "ls").rows[0][6] == "declared"
    assert len(shop.claim(limit=5)) == 2


def test_a_rate_is_said_in_its_own_span_and_shows_its_tokens(cli: Cli, shop: Shop) -> None:
    shop.enqueue()
    done = cli("limits", "set", "--task", TASK, "--rate", "100", "--per", "3600", "--burst", "10")
    assert done.out == f"task {TASK}: 1.66667 a minute, up to 10 at a time\n"
    shop.claim()
    (row,) = cli("limits", "ls").rows
    assert 8.9 < float(row[4]) <= 9.1


def test_one_key_of_a_scope_is_limited_and_weighed(cli: Cli, shop: Shop) -> None:
    declare(shop, kind=LimitKind.KEY, name="tenants", most=2)
    cli("limits", "set", "--scope", "tenants", "--key", "acme", "--weight", "3")
    cli("limits", "set", "--scope", "tenants", "--key", "big", "--most", "9")
    rows = [row[:3] for row in cli("limits", "ls").rows]
    assert rows == [
        ["scope tenants", "-", "at most 2 at once"],
        ["scope tenants", "acme", "at most 2 at once, weight 3"],
        ["scope tenants", "big", "at most 9 at once"],
    ]
    cleared = cli("limits", "clear", "--scope", "tenants", "--key", "big").out
    assert cleared == "key tenants big: at most 2 at once, as its scope has it\n"


def test_a_queue_is_weighed_and_stays_under_what_is_declared(cli: Cli, shop: Shop) -> None:
    declare(shop, kind=LimitKind.QUEUE, name="mail", most=4)
    done = cli("limits", "set", "--queue", "mail", "--weight", "3")
    assert done.out == "queue mail: weight 3\n"
    assert "to keep the rest of it" not in done.err
    (row,) = cli("limits", "ls").rows
    assert row[:3] == ["queue mail", "-", "at most 4 at once, weight 3"]
    assert cli("limits", "clear", "--queue", "mail").out == "queue mail: at most 4 at once, as declared\n"


def test_json_has_what_holds_and_who_said_what(cli: Cli, shop: Shop) -> None:
    declare(shop, most=4)
    shop.enqueue()
    done = cli("limits", "set", "--task", TASK, "--most", "2", "--json").json
    (listed,) = cli("limits", "ls", "--json").json["limits"]
    assert done == listed
    assert (listed["kind"], listed["name"], listed["key"], listed["waiting"]) == ("task", TASK, None, 1)
    assert listed["rule"] == {"most": 2, "rate": None, "burst": None, "weight": None}
    assert listed["declared"]["most"] == 4
    assert "@" in listed["override_by"]
    cleared = cli("limits", "clear", "--task", TASK, "--json").json
    assert (cleared["was_set"], cleared["rule"]["most"], cleared["override"]) == (True, 4, None)


def test_what_is_not_said_again_is_told(cli: Cli, shop: Shop) -> None:
    declare(shop, most=4, rate=10.0)
    shop.enqueue()
    assert "to keep the rest of it, say it too: --rate 10" in cli("limits", "set", "--task", TASK, "--most", "2").err
    assert cli("limits", "set", "--task", TASK, "--most", "3").err == ""


def test_a_name_without_jobs_is_doubted(cli: Cli, shop: Shop) -> None:
    assert "is the name right?" in cli("limits", "set", "--queue", "mial", "--most", "2").err
    assert "is the name right?" in cli("limits", "set", "--task", "mial", "--most", "2").err


def test_workers_are_told_of_a_change(cli: Cli, shop: Shop, told: list[Hint]) -> None:
    cli("limits", "set", "--queue", "mail", "--most", "2")
    cli("limits", "set", "--task", TASK, "--most", "2")
    cli("limits", "clear", "--scope", "tenants")
    assert told == [Hint(frozenset({"mail"})), Hint(anything=True), Hint(anything=True)]


def test_the_audit_log_has_who_changed_a_limit(cli: Cli, shop: Shop) -> None:
    cli("limits", "set", "--task", TASK, "--most", "2")
    cli("limits", "clear", "--task", TASK)
    lines = cli("audit", "--json").json["lines"]
    assert [(line["action"], line["targets"], line["detail"]) for line in lines] == [
        ("set_limit", [f"task {TASK}"], "as declared"),
        ("set_limit", [f"task {TASK}"], "at most 2 at once"),
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["set", "--most", "2"], "which limit? Name one: --queue NAME"),
        (["set", "--queue", "a", "--task", "b", "--most", "2"], "which limit? Name one"),
        (["set", "--queue", "a", "--key", "b", "--most", "2"], "--key is one of a scope"),
        (["set", "--queue", "a"], "say what is to hold: --most, --rate or --weight"),
        (["set", "--queue", "a", "--most", "-1"], "--most: must be a whole number from 0"),
        (["set", "--queue", "a", "--rate", "0"], "--rate: must be a number from"),
        (["set", "--queue", "a", "--rate", "1", "--per", "0"], "--per: must be a number of seconds"),
        (["set", "--queue", "a", "--burst", "2", "--most", "1"], "--burst: says how much of a rate is kept"),
        (["set", "--task", "a", "--weight", "2"], "--weight: queues and single keys have a weight"),
        (["set", "--queue", "", "--most", "2"], "--queue: must"),
        (["clear"], "which limit?"),
        (["clear", "--task", ""], "--task: must"),
    ],
)
def test_a_wrong_limit_is_wrong_usage_and_changes_nothing(cli: Cli, shop: Shop, arguments: list[str], says: str) -> None:
    done = cli("limits", *arguments)
    assert (done.code, says in done.err) == (2, True), done.err
    assert cli("limits", "ls").out == ""


def test_why_the_limit_of_its_queue_holds_a_job_back(cli: Cli, shop: Shop) -> None:
    cli("limits", "set", "--queue", "default", "--most", "1")
    shop.enqueue()
    shop.claim()
    job = shop.enqueue()
    done = cli("jobs", "why", job)
    assert f"{job} is throttled" in done.out
    assert "the limit of its queue 'default' is used up: 1 of 1 run; set " in done.out
    assert "-> wait until one ends, or raise it: holdfast limits set --queue default --most 2" in done.out
    assert [reason["code"] for reason in cli("jobs", "why", job, "--json").json["reasons"]] == ["throttled"]
    assert [row[1] for row in cli("jobs", "ls").rows] == ["throttled", "running"]
    assert "throttled" in cli("jobs", "show", job).out
    cli("limits", "clear", "--queue", "default")
    assert [row[1] for row in cli("jobs", "ls").rows] == ["ready", "running"]


def test_why_the_rate_of_its_key_holds_a_job_back(cli: Cli, shop: Shop) -> None:
    declare(shop, kind=LimitKind.KEY, name="tenants", rate=0.1, burst=4.0)
    key = LimitKey("tenants", "acme co", 2.0)
    policy = Policy(cost=4.0)
    shop.enqueue(limit=key, policy=policy)
    shop.claim()
    job, other = shop.enqueue(limit=key, policy=policy), shop.enqueue(limit=LimitKey("tenants", "free"))
    said = cli("jobs", "why", job).out
    assert "the rate of 6 a minute of its key 'acme co' in 'tenants' is used up: there is room in about" in said
    assert "holdfast limits set --scope tenants --key 'acme co' --rate N" in said
    assert "is ready" in cli("jobs", "why", other).out
    assert "limit: key 'acme co' in 'tenants', weight 2" in cli("jobs", "show", job).out


def test_a_strict_queue_is_not_held_back_by_the_limit_of_a_task(cli: Cli, shop: Shop) -> None:
    shop.do(lambda store: store.set_limit(OVER_TASK, LimitRule(most=0)))
    strict, other = shop.enqueue(queue="ledger", fifo=True), shop.enqueue()
    assert "is ready" in cli("jobs", "why", strict).out
    assert "is used up: it lets none run" in cli("jobs", "why", other).out


def test_a_paused_queue_is_the_reason_before_its_limit(cli: Cli, shop: Shop) -> None:
    cli("limits", "set", "--queue", "default", "--most", "0")
    job = shop.enqueue()
    cli("queues", "pause", "default")
    said = cli("jobs", "why", job).out
    assert "is paused" in said
    assert "used up" not in said


def test_on_postgres_the_same_commands_work(cli: Cli, postgres_shop: Shop) -> None:
    shop = postgres_shop
    assert cli("limits", "set", "--scope", "tenants", "--most", "1").code == 0
    jobs = [shop.enqueue(limit=LimitKey("tenants", "a")) for _ in range(2)]
    shop.claim()
    assert "the limit of its key 'a' in 'tenants' is used up: 1 of 1 run" in cli("jobs", "why", jobs[1]).out
    assert [row[:4] for row in cli("limits", "ls").rows] == [
        ["scope tenants", "-", "at most 1 at once", "1"],
        ["scope tenants", "a", "at most 1 at once", "1/1"],
    ]
    assert [row[1] for row in cli("jobs", "ls").rows] == ["throttled", "running"]


def test_the_advice_keeps_what_else_a_limit_says(cli: Cli, shop: Shop) -> None:
    cli("limits", "set", "--queue", "default", "--most", "1", "--rate", "100", "--burst", "250")
    shop.enqueue()
    shop.claim()
    done = cli("jobs", "why", shop.enqueue())
    assert "raise it: holdfast limits set --queue default --most 2 --rate 100 --burst 250" in done.out
