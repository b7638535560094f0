"""Tasks in child processes: real ones, killed, crashed and orphaned."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from holdfast.core.abort import AbortReason
from holdfast.core.outcome import Error, Failed, Rescheduled, Stopped
from holdfast.core.states import Event
from holdfast.errors import Aborted, BadArgs, BadResult, BadTask, StaleLease, StoreUnavailable
from holdfast.runtime.executor import loading, spawning, wire
from holdfast.runtime.executor.port import Encoded, ProcessDied, RemoteError
from holdfast.runtime.executor.process import Child, ProcessExecutor, ProcessNotStarted
from holdfast.store.port import Part, PartState
from tests.runtime import tasks_for_children as tasks
from tests.runtime.executing import NO_TOKEN, WAIT, Attempt, task, until_gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
async def executor() -> AsyncIterator[ProcessExecutor]:
    executor = ProcessExecutor(2, backoff=0.01)
    await executor.open()
    yield executor
    await executor.close()


async def outcome(attempt: Attempt) -> Any:
    with pytest.raises(RemoteError) as raised:
        await attempt.run()
    return raised.value.outcome


# -- what goes in and what comes back --------------------------------------------------------------------------------------


async def test_a_result_arrives_as_text_and_a_child_serves_many_attempts(executor: ProcessExecutor) -> None:
    first = await Attempt(executor, tasks.pid).run()
    assert await Attempt(executor, tasks.add, '{"left":2}').run() == Encoded("3")
    assert await Attempt(executor, tasks.pid).run() == first
    assert int(first.text) != os.getpid()


async def test_a_function_that_awaits_gets_a_loop_in_the_child(executor: ProcessExecutor) -> None:
    assert await Attempt(executor, tasks.add_slowly, '{"left":2,"right":3}').run() == Encoded("5")


async def test_slots_run_side_by_side(executor: ProcessExecutor) -> None:
    waiting = [Attempt(executor, tasks.loops_until_abort) for _ in range(2)]
    running = [await attempt.begun() for attempt in waiting]
    for attempt in waiting:
        attempt.job.abort.set(AbortReason.CANCELED)
        executor.stop(attempt.job, AbortReason.CANCELED)
    assert await asyncio.gather(*running) == [Encoded('"canceled"')] * 2


async def test_the_child_knows_the_job_but_not_its_token(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.who)
    assert await attempt.run() == Encoded(f'["{attempt.job.id}",1,true,"{NO_TOKEN}"]')


async def test_ten_megabytes_go_there_and_back(executor: ProcessExecutor) -> None:
    text = "ä" * 5_000_000
    result = await Attempt(executor, tasks.sized, f'{{"text":"{text}"}}').run()
    assert result == Encoded(f'"{text}{text}"')


async def test_args_that_do_not_decode_are_bad_args(executor: ProcessExecutor) -> None:
    with pytest.raises(BadArgs) as raised:
        await Attempt(executor, tasks.add, '{"left":"two"}').run()
    assert raised.value.path == "left"
    assert raised.value.task == tasks.add.name


@pytest.mark.parametrize("name", ["huge", "unstorable"])
@pytest.mark.row(32)
async def test_a_result_that_cannot_be_stored_is_refused_in_the_child(executor: ProcessExecutor, name: str) -> None:
    with pytest.raises(BadResult):
        await Attempt(executor, getattr(tasks, name)).run()
    assert await Attempt(executor, tasks.add, '{"left":1}').run() == Encoded("2")


async def test_a_message_beyond_the_cap_is_refused(executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LARGEST", 1000)
    with pytest.raises(wire.TooLarge, match="more than a child process and its worker may exchange"):
        await Attempt(executor, tasks.sized, f'{{"text":"{"x" * 1000}"}}').run()


async def test_a_child_that_sends_more_than_the_cap_is_killed(
    executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "LARGEST", 1600)  # here; the child has the real one
    with pytest.raises(ProcessDied, match="sent what is no message"):
        await Attempt(executor, tasks.sized, f'{{"text":"{"x" * 900}"}}').run()


# -- errors ----------------------------------------------------------------------------------------------------------------


async def test_an_error_comes_back_with_code_message_and_a_traceback_of_the_users_frames(executor: ProcessExecutor) -> None:
    match await outcome(Attempt(executor, tasks.raises, '{"kind":"other"}')):
        case Failed(Error("KeyError", "'other'", traceback), fatal=False):
            assert "in raises" in traceback
            assert "holdfast/runtime" not in traceback
        case other:
            pytest.fail(repr(other))


@pytest.mark.parametrize(
    ("kind", "code", "fatal"),
    [
        ("stop", "StopIteration", False),
        ("fatal", "NO_USE", True),
        ("retryable", "AGAIN", False),
        ("cancelled", "CancelledError", False),
        ("huge", "ValueError", False),
        ("unprintable", "UnprintableError", False),
    ],
)
async def test_errors_keep_their_verdict(executor: ProcessExecutor, kind: str, code: str, fatal: bool) -> None:  # noqa: FBT001
    result = await outcome(Attempt(executor, tasks.raises, f'{{"kind":"{kind}"}}'))
    assert (result.error.code, result.fatal) == (code, fatal)


async def test_reschedule_and_cancel_are_outcomes_of_their_own(executor: ProcessExecutor) -> None:
    assert await outcome(Attempt(executor, tasks.raises, '{"kind":"reschedule"}')) == Rescheduled(after=90)
    assert await outcome(Attempt(executor, tasks.raises, '{"kind":"cancel"}')) == Stopped("not needed")


async def test_the_rules_of_the_task_decide_in_the_child(executor: ProcessExecutor) -> None:
    assert (await outcome(Attempt(executor, tasks.classified))).fatal


async def test_sys_exit_fails_the_attempt_and_spares_the_child(executor: ProcessExecutor) -> None:
    before = await Attempt(executor, tasks.pid).run()
    assert (await outcome(Attempt(executor, tasks.exits_softly))).error.code == "SystemExit"
    assert await Attempt(executor, tasks.pid).run() == before


# -- what a job says -------------------------------------------------------------------------------------------------------


async def test_what_is_printed_becomes_the_log_and_harms_no_message(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.prints)
    assert await attempt.run() == Encoded("null")
    assert attempt.channel.lines("stdout") == ["to stdout", "\ufffd\ufffd raw", "no newline"]
    assert attempt.channel.lines("stderr") == ["to stderr"]


async def test_progress_stages_and_logs_reach_the_channel(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.reports)
    await attempt.run()
    assert attempt.channel.progressed == [(50.0, "fetch", "half ?")]
    assert attempt.channel.staged == [("fetch", Event.STAGE_ENTER), ("fetch", Event.STAGE_LEAVE)]
    by_job, by_library, by_thread, with_traceback = attempt.channel.logged
    assert by_job == ("info", "holdfast.job", "by the job", '{"width":1920}')
    assert by_library == ("warning", "library", "by a library", "{}")
    assert by_thread == ("info", "thread", "by a thread", "{}")
    assert "ValueError: invalid literal" in with_traceback[2]


async def test_a_checkpoint_is_stored_when_it_returns_and_earlier_parts_are_known(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.checkpoints, parts=(Part("first", PartState.COMPLETED, data="[1]"),))
    assert await attempt.run() == Encoded("[true,[1],true]")
    assert [(part.name, part.data) for part in attempt.channel.parts] == [("second", '{"n":2}')]


async def test_a_checkpoint_can_be_awaited_in_the_child(executor: ProcessExecutor) -> None:
    assert await Attempt(executor, tasks.checkpoints_async).run() == Encoded("true")


async def test_a_refused_checkpoint_raises_stale_lease_in_the_child(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.checkpoints)
    attempt.channel.refusal = StaleLease("the lease is lost")
    with pytest.raises(StaleLease, match="the lease is lost"):
        await attempt.run()


async def test_a_checkpoint_that_fails_otherwise_fails_the_attempt_with_its_code(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.checkpoints)
    attempt.channel.refusal = StoreUnavailable("db", 1.0, "gone")
    assert (await outcome(attempt)).error.code == "StoreUnavailable"


# -- stopping --------------------------------------------------------------------------------------------------------------


async def test_an_abort_is_seen_in_the_child(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.waits_for_abort)
    running = await attempt.begun()
    attempt.job.abort.set(AbortReason.EXPIRED)
    heartbeat = threading.Thread(target=executor.stop, args=(attempt.job, AbortReason.EXPIRED))
    heartbeat.start()
    heartbeat.join()
    with pytest.raises(Aborted) as raised:
        await running
    assert raised.value.reason == AbortReason.EXPIRED


async def test_an_abort_that_comes_before_the_child_has_begun_is_not_lost(executor: ProcessExecutor) -> None:
    for _ in range(20):
        attempt = Attempt(executor, tasks.waits_for_abort)
        running = attempt.begin()
        while not executor._running:  # noqa: ASYNC110  a matter of a few turns of the loop
            await asyncio.sleep(0)
        executor.stop(attempt.job, AbortReason.TIMEOUT)
        with pytest.raises(Aborted):
            await running


async def test_an_attempt_that_was_asked_to_stop_before_it_began_is_not_run(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.prints)
    attempt.job.abort.set(AbortReason.CANCELED)
    with pytest.raises(Aborted):
        await attempt.run()
    assert attempt.channel.logged == []


@pytest.mark.row(7)
async def test_an_endless_loop_is_killed_and_its_neighbour_finishes(executor: ProcessExecutor) -> None:
    endless, neighbour = Attempt(executor, tasks.loops_for_ever), Attempt(executor, tasks.loops_until_abort)
    killed, finishing = await endless.begun(), await neighbour.begun()
    killed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killed
    with pytest.raises(ProcessLookupError):
        os.kill(int(endless.channel.progressed[0][0]), 0)
    executor.stop(neighbour.job, AbortReason.SHUTDOWN)
    assert await finishing == Encoded('"shutdown"')
    assert await Attempt(executor, tasks.add, '{"left":1}').run() == Encoded("2")


async def test_what_a_job_started_is_killed_with_it(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.starts_a_program_and_waits)
    running = await attempt.begun()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until_gone(int(attempt.channel.progressed[0][2]))


async def test_children_pass_over_signals_but_programs_they_start_do_not(executor: ProcessExecutor) -> None:
    assert await Attempt(executor, tasks.ignores_signals).run() == Encoded("[-15]")


async def test_close_kills_what_runs() -> None:
    executor = ProcessExecutor(1)
    await executor.open()
    attempt = Attempt(executor, tasks.loops_for_ever)
    running = await attempt.begun()
    await executor.close()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until_gone(int(attempt.channel.progressed[0][0]))
    with pytest.raises(asyncio.CancelledError):
        await Attempt(executor, tasks.pid).run()


async def test_close_does_not_leave_a_child_that_is_just_starting() -> None:
    executor = ProcessExecutor(1)
    await executor.open()
    running = Attempt(executor, tasks.prints).begin()
    await asyncio.sleep(0)
    await executor.close()
    with pytest.raises(asyncio.CancelledError):
        await running


# -- dying -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "exit_code", "says"),
    [
        ("segfaults", -signal.SIGSEGV, r"SIGSEGV[\s\S]*Segmentation fault[\s\S]*in segfaults"),
        ("kills_itself", -signal.SIGKILL, r"SIGKILL[\s\S]*out of memory[\s\S]*about to go"),
        ("exits_hard", 7, "exited with code 7"),
        ("closes_everything", 1, "exited with code 1"),
    ],
)
@pytest.mark.row(30)
async def test_a_child_that_dies_costs_one_attempt(executor: ProcessExecutor, name: str, exit_code: int, says: str) -> None:
    neighbour = Attempt(executor, tasks.loops_until_abort)
    running = await neighbour.begun()
    with pytest.raises(ProcessDied, match=says) as raised:
        await Attempt(executor, getattr(tasks, name)).run()
    assert (raised.value.code, raised.value.exit_code) == ("PROCESS_DIED", exit_code)
    assert await Attempt(executor, tasks.add, '{"left":1}').run() == Encoded("2")
    executor.stop(neighbour.job, AbortReason.CANCELED)
    assert await running == Encoded('"canceled"')


async def test_a_death_is_seen_although_something_keeps_the_socket_open(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.leaves_a_process_with_the_socket)
    running = attempt.begin()
    await attempt.channel.until(lambda: bool(attempt.channel.lines("stderr")))
    done, _ = await asyncio.wait([running], timeout=WAIT / 2)
    os.kill(int(attempt.channel.lines("stderr")[0]), signal.SIGKILL)
    assert done
    with pytest.raises(ProcessDied, match="exited with code 9"):
        await running


@pytest.mark.row(30)
async def test_running_out_of_memory_fails_the_attempt(executor: ProcessExecutor) -> None:
    assert (await outcome(Attempt(executor, tasks.eats_memory))).error.code == "MemoryError"


async def test_what_a_dying_job_said_is_kept(executor: ProcessExecutor) -> None:
    attempt = Attempt(executor, tasks.segfaults)
    with pytest.raises(ProcessDied):
        await attempt.run()
    assert attempt.channel.lines("holdfast.job") == ["last words"]


async def test_a_child_that_died_while_idle_costs_nothing(executor: ProcessExecutor) -> None:
    first = int((await Attempt(executor, tasks.pid).run()).text)
    os.kill(first, signal.SIGKILL)  # not awaited: the executor may or may not have noticed
    assert int((await Attempt(executor, tasks.pid).run()).text) != first


@pytest.mark.row(4)
async def test_children_end_when_their_worker_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(
        textwrap.dedent("""
        import asyncio
        from holdfast.runtime.executor.process import ProcessExecutor
        from tests.runtime import tasks_for_children as tasks
        from tests.runtime.executing import Attempt

        async def main():
            executor = ProcessExecutor(2)
            await executor.open()
            idle, busy = Attempt(executor, tasks.pid), Attempt(executor, tasks.loops_for_ever)
            running = await busy.begun()
            print((await idle.run()).text, int(busy.channel.progressed[0][0]), flush=True)
            await running

        asyncio.run(main())
        """)
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment) as worker:  # noqa: ASYNC220
        assert worker.stdout is not None
        pids = [int(pid) for pid in worker.stdout.readline().split()]
        worker.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    for pid in pids:
        await until_gone(pid)


# -- finding the task ------------------------------------------------------------------------------------------------------

SCRIPT = """
import asyncio, sys
from holdfast.runtime.executor.process import ProcessExecutor
from tests.runtime.executing import Attempt, task

@task
def double(number: int) -> int:
    print("in", __name__)
    return 2 * number

async def main():
    executor = ProcessExecutor(1, backoff=0.01)
    await executor.open()
    attempt = Attempt(executor, double, '{"number": 21}')
    try:
        print((await attempt.run()).text, double.name, attempt.channel.lines("stdout"))
    finally:
        await executor.close()

if GUARD:
    asyncio.run(main())
"""


def run_script(path: Path, *how: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    return subprocess.run(
        [sys.executable, *how], cwd=path, env=environment, capture_output=True, text=True, timeout=WAIT, check=False
    )


@pytest.mark.parametrize(("name", "loaded"), [("myscript", "myscript"), ("json", "holdfast_script_json")])
def test_a_script_that_was_run_is_loaded_from_its_file(tmp_path: Path, name: str, loaded: str) -> None:
    (tmp_path / f"{name}.py").write_text(SCRIPT.replace("GUARD", "__name__ == '__main__'"))
    done = run_script(tmp_path, "-P", f"{name}.py")  # -P: its folder is not on the path, so that it cannot be imported
    assert done.stdout == f"42 {name}.double ['in {loaded}']\n", done.stderr


def test_a_module_run_with_dash_m_is_imported_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(SCRIPT.replace("GUARD", "__name__ == '__main__'"))
    done = run_script(tmp_path, "-m", "package")
    assert done.stdout == "42 package.double ['in package.__main__']\n", done.stderr


def test_a_script_without_a_guard_is_told_so_and_does_not_multiply(tmp_path: Path) -> None:
    (tmp_path / "unguarded.py").write_text(SCRIPT.replace("GUARD", "True"))
    done = run_script(tmp_path, "unguarded.py")
    assert done.returncode == 1
    assert "TASK_NOT_IMPORTABLE" in done.stderr
    assert "starts a worker when it is imported. Put what starts it under: if __name__ == '__main__':" in done.stderr


def test_no_children_are_started_while_a_module_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_loading", ["some.py"])
    with pytest.raises(BadTask, match=r"some\.py starts a worker"):
        loading.refuse_while_loading()


def in_module(name: str, **attributes: Any) -> Any:
    """Return a task that claims to be at home in another module."""

    def function() -> None: ...

    function.__module__ = name
    function.__qualname__ = attributes.get("qualname", "function")
    return task(function)


async def test_a_module_that_cannot_be_imported_fails_the_attempt_and_says_why(executor: ProcessExecutor) -> None:
    result = await outcome(Attempt(executor, in_module("no_such_module_anywhere")))
    assert result.error.code == "TASK_NOT_IMPORTABLE"
    assert not result.fatal
    assert "importing no_such_module_anywhere there raised ModuleNotFoundError" in result.error.message
    before = await Attempt(executor, tasks.pid).run()
    await outcome(Attempt(executor, in_module("no_such_module_anywhere")))
    assert await Attempt(executor, tasks.pid).run() == before


async def test_a_task_that_is_not_in_its_module_fails_the_attempt_and_says_so(executor: ProcessExecutor) -> None:
    result = await outcome(Attempt(executor, in_module("tests.runtime.tasks_for_children", qualname="nowhere")))
    assert result.error.code == "TASK_NOT_IMPORTABLE"
    assert "has no task 'nowhere'" in result.error.message


async def test_a_task_under_another_name_than_its_function_is_found(executor: ProcessExecutor) -> None:
    assert tasks.sized.function.__qualname__ == "_sized"
    assert await Attempt(executor, tasks.sized, '{"text":"a"}').run() == Encoded('"aa"')


async def test_a_task_typed_into_a_session_is_refused(executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = in_module("__main__")
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    with pytest.raises(loading.TaskNotImportable, match="interactive session"):
        await Attempt(executor, typed).run()


# -- starting --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("boot", "says"),
    [("raise SystemExit('no good')", "exited with code 1; it last wrote:\nno good"), ("import os; os._exit(5)", "code 5")],
)
async def test_children_that_do_not_start_fail_the_attempt_more_and_more_slowly(
    executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, boot: str, says: str
) -> None:
    delays: list[float] = []
    (tmp_path / "boot.py").write_text(boot)
    monkeypatch.setattr(spawning, "BOOT", str(tmp_path / "boot.py"))
    sleep = asyncio.sleep

    async def noted(delay: float) -> None:
        delays.append(delay)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    for _ in range(3):
        with pytest.raises(ProcessNotStarted, match=says):
            await Attempt(executor, tasks.pid).run()
    assert delays == [0.01, 0.02, 0.04]
    monkeypatch.undo()
    assert await Attempt(executor, tasks.add, '{"left":1}').run() == Encoded("2")


async def test_what_a_child_wrote_that_died_before_it_was_used_is_told(
    executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "boot.py").write_text("raise SystemExit('no good')")
    monkeypatch.setattr(spawning, "BOOT", str(tmp_path / "boot.py"))
    start = executor._child

    async def started_and_dead() -> Child:
        child = await start()
        await asyncio.shield(child._spawned.ended)
        return child

    monkeypatch.setattr(executor, "_child", started_and_dead)
    with pytest.raises(ProcessNotStarted, match="it last wrote:\nno good"):
        await Attempt(executor, tasks.pid).run()


async def test_an_interpreter_that_is_not_there_is_named(executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ProcessNotStarted, match="/no/such/python"):
        await Attempt(executor, tasks.pid).run()


def test_a_child_loads_nothing_that_it_does_not_need() -> None:
    heavy = ("asyncpg", "rich", "cyclopts", "pydantic", "structlog", "redis", "holdfast.cli", "holdfast.store.postgres")
    code = f"import sys, holdfast.runtime.executor.child; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_it_works_on_uvloop() -> None:
    async def main() -> list[Any]:
        executor = ProcessExecutor(1)
        await executor.open()
        try:
            attempt = Attempt(executor, tasks.prints)
            with pytest.raises(ProcessDied):
                await Attempt(executor, tasks.exits_hard).run()
            return [await attempt.run(), attempt.channel.lines("stderr")]
        finally:
            await executor.close()

    assert uvloop.run(main()) == [Encoded("null"), ["to stderr"]]
