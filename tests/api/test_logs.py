"""What jobs log is kept with them: from any logger, in any executor, whatever is logged."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast, Job  # noqa: TC001  the worker reads annotations
from holdfast.runtime import reporter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast import Handle
    from holdfast.store.port import LogView

WAIT = 20.0
log = logging.getLogger("shop.mail")


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """Loggers as an application would set them."""
    log.setLevel(logging.DEBUG)
    yield
    log.setLevel(logging.NOTSET)


async def lines_of(app: Holdfast, handle: Handle[object]) -> Sequence[LogView]:
    async with app.worker():
        await handle.result(timeout=WAIT)
    return await handle.logs(limit=20_000)


async def test_standard_logging_is_kept_with_the_job_that_called_it(app: Holdfast) -> None:
    @app.task(name="await")
    async def awaits() -> None:
        log.info("from a coroutine: %s", 1)

    @app.task(name="thread")
    def thread() -> None:
        log.warning("from a thread: %s", 2)

    first, second = await awaits.enqueue(), await thread.enqueue()
    (line,) = await lines_of(app, first)
    assert (line.message, line.level, line.logger, line.attempt) == ("from a coroutine: 1", "info", "shop.mail", 1)
    (line,) = await lines_of(app, second)
    assert (line.message, line.level) == ("from a thread: 2", "warning")


async def test_levels_below_info_are_not_kept_and_tracebacks_are(memory: Holdfast) -> None:
    @memory.task()
    async def note(*, job: Job) -> None:
        log.debug("too small")
        job.log.debug("too small")
        job.log.info("info %s", "and args", colour="red")
        job.log.warning("warning")
        job.log.error("error")
        log.critical("critical", extra={"order": 7})
        try:
            int("inside")
        except ValueError:
            log.exception("caught")

    lines = await lines_of(memory, await note.enqueue())
    assert [line.level for line in lines] == ["info", "warning", "error", "critical", "error"]
    assert (lines[0].message, json.loads(lines[0].fields)) == ("info and args", {"colour": "red"})
    assert json.loads(lines[3].fields) == {"order": 7}
    assert lines[4].message.startswith("caught\nTraceback")
    assert "ValueError: invalid literal" in lines[4].message


async def test_strange_and_huge_things_are_logged_without_hurting_the_job(app: Holdfast) -> None:
    class Strange:
        def __repr__(self) -> str:
            return "<strange>"

    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    @app.task()
    async def note(*, job: Job) -> str:
        job.log.info("strange", thing=Strange(), number=float("nan"), text="a\0b")
        job.log.info("hostile", thing=Hostile())
        job.log.info("huge field", thing="x" * 100_000)
        job.log.info("huge message %s", "x" * 100_000)
        job.log.info("NUL \0 in the middle")
        return "done"

    handle = await note.enqueue()
    lines = await lines_of(app, handle)
    assert await handle.result(timeout=WAIT) == "done"
    assert [line.message.split(" ")[0] for line in lines] == ["strange", "hostile", "huge", "huge", "NUL"]
    assert all(json.loads(line.fields) is not None for line in lines)
    assert json.loads(lines[0].fields)["thing"] == "<strange>"
    assert len(lines[3].message) <= 10_000
    assert "cut: 100013 characters" in lines[3].message


async def test_a_line_with_wrong_arguments_does_not_fail_the_job(
    memory: Holdfast, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)

    @memory.task()
    async def note() -> str:
        log.info("%d", "no number")
        log.info("fine")
        return "done"

    handle = await note.enqueue()
    assert [line.message for line in await lines_of(memory, handle)] == ["fine"]


async def test_endless_logging_is_cut_with_a_note(memory: Holdfast) -> None:
    @memory.task()
    async def chatty(*, job: Job) -> None:
        for number in range(reporter.MOST_LINES + 50):
            job.log.info("line %d", number)

    lines = await lines_of(memory, await chatty.enqueue())
    assert len(lines) == reporter.MOST_LINES == 10_000
    assert lines[-2].message == "line 9998"
    assert (lines[-1].level, lines[-1].message) == (
        "warning",
        "more than 10,000 lines: the rest of this attempt is not kept",
    )


async def test_lines_outside_of_jobs_are_nobodys(memory: Holdfast) -> None:
    @memory.task()
    async def note() -> None: ...

    handle = await note.enqueue()
    async with memory.worker():
        log.warning("from outside")
        await handle.result(timeout=WAIT)
    assert await handle.logs() == []


async def test_log_lines_of_two_jobs_do_not_mix(memory: Holdfast) -> None:
    @memory.task()
    def note(number: int) -> None:
        for _ in range(20):
            log.info("%d", number)

    handles = await memory.enqueue_many([note.call(number) for number in range(4)])
    async with memory.worker(concurrency=4):
        for handle in handles:
            await handle.result(timeout=WAIT)
    for number, handle in enumerate(handles):
        assert [line.message for line in await handle.logs()] == [str(number)] * 20
