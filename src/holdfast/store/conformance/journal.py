"""What running jobs tell of themselves: log lines, and stages entered and left."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from uuid_utils.compat import uuid7

from holdfast.core.outcome import Released
from holdfast.core.states import Event, State
from holdfast.store.conformance.records import HOSTILE, hostile
from holdfast.store.conformance.world import HOUR, LEASE, Subject, World, steps
from holdfast.store.port import LogLine, Retention, Settled, StageMark

ENTER, LEAVE, FAIL = Event.STAGE_ENTER, Event.STAGE_LEAVE, Event.STAGE_FAIL


class Journal(Subject):
    """Logs and stages. That dead tokens write neither is in `fencing`."""

    # logs

    async def test_line_that_is_sent_again_by_its_name_is_there_once(self, world: World) -> None:
        claimed, other = await world.claimed(), await world.claimed()
        name = uuid4()
        line = LogLine(lease=claimed.lease, message="once", id=name)

        first = await world.store.log([line, line])
        again = await world.store.log([line, LogLine(lease=claimed.lease, message="twice")])
        unnamed = await world.store.log([LogLine(lease=claimed.lease, message="twice")])
        elsewhere = await world.store.log([LogLine(lease=other.lease, message="another job's", id=name)])

        assert {*first, *again, *unnamed, *elsewhere} == {Settled.APPLIED}
        assert [one.message for one in await world.store.logs(claimed.job_id, limit=10)] == ["once", "twice", "twice"]
        assert len(await world.store.logs(other.job_id, limit=10)) == 1

    async def test_log_keeps_its_lines_in_order(self, world: World) -> None:
        claimed = await world.claimed()

        assert await world.log(claimed, "one", "two") == [Settled.APPLIED] * 2
        assert await world.log(claimed, "three") == [Settled.APPLIED]

        lines = await world.store.logs(claimed.job_id, limit=100)
        assert [line.message for line in lines] == ["one", "two", "three"]
        numbers = [line.no for line in lines]
        assert numbers == sorted(set(numbers)), f"the numbers must grow from line to line: {numbers}"
        assert numbers[0] > 0, "0 is the cursor of who has seen nothing"

    async def test_every_field_of_a_line_is_kept(self, world: World) -> None:
        claimed = await world.claimed()
        before = await world.store.now()
        fields = '{"n":  1.0, "b": [1, 2]}'
        await world.log(claimed, "text", level="warning", logger="app.mail", fields=fields, age=HOUR)
        after = await world.store.now()

        (line,) = await world.store.logs(claimed.job_id, limit=1)

        assert (line.attempt, line.level, line.logger, line.fields) == (1, "warning", "app.mail", fields)
        assert before <= line.at + timedelta(seconds=HOUR) <= after, "its time is the store's clock minus its age"

    @hostile
    async def test_log_keeps_hostile_text(self, world: World, text: str) -> None:
        claimed = await world.claimed()
        await world.log(claimed, text, level=text, logger=text, fields=text)

        (line,) = await world.store.logs(claimed.job_id, limit=1)

        assert (line.message, line.level, line.logger, line.fields) == (text,) * 4

    async def test_lines_of_any_text_can_be_stored(self, world: World) -> None:
        claimed = await world.claimed()
        line = LogLine(lease=claimed.lease, message="nul \0 lone \ud800" + "m" * 100_000, fields="\0", age=math.nan)

        assert await world.store.log([line]) == [Settled.APPLIED]

        (shown,) = await world.store.logs(claimed.job_id, limit=1)
        assert (shown.message, shown.fields) == (line.message, "{}")

    async def test_log_is_read_page_by_page(self, world: World) -> None:
        claimed = await world.claimed()
        await world.log(claimed, *(f"{number}" for number in range(7)))
        seen: list[str] = []
        after = 0
        while page := await world.store.logs(claimed.job_id, limit=3, after=after):
            assert len(page) <= 3
            seen += [line.message for line in page]
            after = page[-1].no

        assert seen == [f"{number}" for number in range(7)]
        assert await world.store.logs(claimed.job_id, limit=0) == []
        assert await world.store.logs(claimed.job_id, limit=-1) == []

    async def test_follower_of_a_log_misses_no_line_of_another_handle(self, world: World) -> None:
        other = await world.handle()
        claimed = await world.claimed()
        await world.log(claimed, "one")
        (first,) = await world.store.logs(claimed.job_id, limit=10)
        await other.log([LogLine(lease=claimed.lease, message="two")])

        (second,) = await world.store.logs(claimed.job_id, limit=10, after=first.no)

        assert (second.message, second.no > first.no) == ("two", True)

    async def test_lines_of_several_jobs_in_one_call_go_to_their_jobs(self, world: World) -> None:
        await world.enqueue(*world.jobs(2))
        one, two = await world.claim(2)
        lines = [LogLine(lease=claim.lease, message=f"{number}") for number, claim in enumerate((one, two, one, two))]

        assert await world.store.log(lines) == [Settled.APPLIED] * 4

        logs = [await world.store.logs(claim.job_id, limit=10) for claim in (one, two)]
        assert [[line.message for line in log] for log in logs] == [["0", "2"], ["1", "3"]]
        numbers = [line.no for pair in zip(*logs, strict=True) for line in pair]
        assert numbers == sorted(set(numbers)), "numbers grow with every line of the store"

    async def test_concurrent_writers_draw_different_numbers(self, world: World) -> None:
        other = await world.handle()
        await world.enqueue(*world.jobs(2))
        claims = await world.claim(2)
        batches = [
            store.log([LogLine(lease=claim.lease, message=f"{number}.{line}") for line in range(5)])
            for number in range(10)
            for store, claim in zip((world.store, other), claims, strict=True)
        ]

        answers = await asyncio.gather(*batches)

        assert all(answer is Settled.APPLIED for batch in answers for answer in batch)
        lines = [line for claim in claims for line in await world.store.logs(claim.job_id, limit=1_000)]
        assert len(lines) == len({line.no for line in lines}) == 100

    async def test_log_survives_retries_the_end_and_reopening(self, world: World) -> None:
        claimed = await world.claimed()
        await world.log(claimed, "first")
        await world.fail(claimed)
        second = await world.claim_only(claimed.job_id)
        await world.log(second, "second")
        await world.succeed(second)
        ended = await world.store.logs(claimed.job_id, limit=10)
        await world.store.reopen([claimed.job_id])

        assert [(line.message, line.attempt) for line in ended] == [("first", 1), ("second", 2)]
        assert await world.store.logs(claimed.job_id, limit=10) == ended

    @pytest.mark.parametrize("prune", [True, False])
    async def test_log_goes_with_its_job(self, world: World, *, prune: bool) -> None:
        claimed = await world.claimed()
        kept = await world.claimed(lease=9 * HOUR)
        await world.log(claimed, "gone")
        await world.log(kept, "kept")
        await world.succeed(claimed)

        if prune:
            await world.store.rewind(HOUR)
            assert (await world.store.prune(Retention(succeeded=60), limit=10)).count == 1
        else:
            await world.store.delete([claimed.job_id])

        assert await world.logged(claimed.job_id) == []
        assert await world.logged(kept.job_id) == ["kept"]
        again = world.job(id=claimed.job_id)
        await world.enqueue(again)
        assert await world.logged(again.id) == [], "a new job under the old id begins with an empty log"

    async def test_numbers_are_not_given_again_after_a_deletion(self, world: World) -> None:
        first = await world.claimed()
        await world.log(first, "one", "two")
        last = (await world.store.logs(first.job_id, limit=10))[-1].no
        await world.store.delete([first.job_id])
        second = await world.claimed()
        await world.log(second, "three")

        (line,) = await world.store.logs(second.job_id, limit=10)

        assert line.no > last, "who follows the logs would miss a line whose number was given before"

    async def test_unknown_job_has_no_log(self, world: World) -> None:
        assert await world.store.logs(uuid7(), limit=10) == []

    async def test_log_does_not_extend_the_lease(self, world: World) -> None:
        claimed = await world.claimed()
        await world.store.rewind(LEASE / 2)
        before = await world.view(claimed.job_id)
        await world.log(claimed, "still here")
        await world.mark(claimed, (ENTER, "encode"))

        view = await world.view(claimed.job_id)

        assert (view.expires_at, view.heartbeat_at) == (before.expires_at, before.heartbeat_at)

    async def test_late_lines_of_an_unreaped_lease_are_written(self, world: World) -> None:
        claimed = await world.claimed()
        await world.lapse()

        assert await world.log(claimed, "late") == [Settled.LATE]
        assert await world.mark(claimed, (ENTER, "late")) == [Settled.LATE]

        assert await world.logged(claimed.job_id) == ["late"]
        assert (await world.events(claimed.job_id))[-1] is ENTER
        assert [one.job_id for one in await world.store.reap(10)] == [claimed.job_id], "neither extends a lease"

    async def test_log_lines_are_not_in_the_event_log(self, world: World) -> None:
        claimed = await world.claimed()
        await world.log(claimed, "one", "two")

        assert await world.events(claimed.job_id) == [Event.ENQUEUE, Event.CLAIM]

    # stages

    async def test_stages_are_lines_of_the_event_log(self, world: World) -> None:
        claimed = await world.claimed()
        marks = ((ENTER, "download"), (LEAVE, "download"), (ENTER, "encode"), (FAIL, "encode"))

        assert await world.mark(claimed, *marks) == [Settled.APPLIED] * 4
        await world.fail(claimed)

        log = await world.store.events(claimed.job_id)
        assert steps(log) == [
            (Event.ENQUEUE, State.READY, 0),
            (Event.CLAIM, State.RUNNING, 1),
            *((event, State.RUNNING, 1) for event, _ in marks),
            (Event.RETRY, State.READY, 1),
        ]
        assert [(line.actor, line.detail) for line in log[2:6]] == [("one", name) for _, name in marks]
        await world.check_log(claimed.job_id)

    async def test_stage_has_the_time_it_happened_at(self, world: World) -> None:
        claimed = await world.claimed()
        before = await world.store.now()
        await world.mark(claimed, (ENTER, "encode"), age=HOUR)
        after = await world.store.now()

        line = (await world.store.events(claimed.job_id))[-1]

        assert before <= line.at + timedelta(seconds=HOUR) <= after, "its time is the store's clock minus its age"

    async def test_stages_stand_in_the_order_they_were_written(self, world: World) -> None:
        claimed = await world.claimed()
        await world.mark(claimed, (ENTER, "new"))
        await world.mark(claimed, (ENTER, "old"), age=HOUR)
        await world.settle(claimed, Released())
        second = await world.claim_only(claimed.job_id)
        await world.mark(second, (ENTER, "second"), age=HOUR)
        await world.succeed(second)

        log = await world.store.events(claimed.job_id)

        assert [line.detail for line in log if line.event is ENTER] == ["new", "old", "second"]
        assert [line.event for line in log] == [
            Event.ENQUEUE,
            Event.CLAIM,
            ENTER,
            ENTER,
            Event.RELEASE,
            Event.CLAIM,
            ENTER,
            Event.SUCCEED,
        ]
        await world.check_log(claimed.job_id)

    async def test_stages_of_several_jobs_in_one_call_go_to_their_jobs(self, world: World) -> None:
        await world.enqueue(*world.jobs(2))
        claims = await world.claim(2)
        marks = [StageMark(lease=claim.lease, name=str(claim.job_id), event=ENTER) for claim in claims]

        assert await world.store.mark(marks) == [Settled.APPLIED] * 2

        for claim in claims:
            assert [line.detail for line in await world.store.events(claim.job_id)][-1] == str(claim.job_id)

    async def test_stage_keeps_hostile_text(self, world: World) -> None:
        claimed = await world.claimed()
        await world.mark(claimed, *((ENTER, text) for text in HOSTILE.values()))

        details = [line.detail for line in await world.store.events(claimed.job_id)]

        assert details[2:] == list(HOSTILE.values())

    async def test_log_and_stages_age_with_the_store(self, world: World) -> None:
        claimed = await world.claimed()
        await world.log(claimed, "line")
        await world.mark(claimed, (ENTER, "stage"))

        async def times() -> list[datetime]:
            lines = await world.store.logs(claimed.job_id, limit=10)
            return [lines[0].at, (await world.store.events(claimed.job_id))[-1].at]

        before = await times()
        await world.store.rewind(HOUR)

        assert [at + timedelta(seconds=HOUR) for at in await times()] == before
