"""Programs in the place of functions: real ones, stopped and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from holdfast.core.abort import AbortReason
from holdfast.errors import Aborted, BadArgs, Fatal, Retryable
from holdfast.runtime.executor.command import CommandExecutor
from holdfast.runtime.executor.output import LINE, TAIL
from holdfast.runtime.executor.port import RemoteError
from holdfast.tasks.command import Command, CommandResult
from holdfast.tasks.context import Job  # noqa: TC001  read at run time
from holdfast.tasks.options import Executor
from tests.runtime.executing import WAIT, Attempt, task, until_gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
async def executor() -> AsyncIterator[CommandExecutor]:
    executor = CommandExecutor(2)
    await executor.open()
    yield executor
    await executor.close()


def of(executor: CommandExecutor, *argv: str, **options: Any) -> Attempt:
    """Return an attempt that runs a program."""

    def command() -> Any:
        return Command(argv, **options)

    return Attempt(executor, task(command, executor=Executor.COMMAND))


def shell(executor: CommandExecutor, script: str, **options: Any) -> Attempt:
    return of(executor, "/bin/sh", "-c", script, **options)


def interpreted(executor: CommandExecutor, code: str, **options: Any) -> Attempt:
    return of(executor, sys.executable, "-S", "-c", code, **options)


# -- what it gives ---------------------------------------------------------------------------------------------------------


async def test_output_becomes_the_log_and_the_result(executor: CommandExecutor) -> None:
    attempt = shell(executor, "echo one; echo two >&2; printf three")
    result = await attempt.run()
    assert (result.exit_code, result.stdout, result.stderr) == (0, "one\nthree", "two\n")
    assert result.seconds > 0
    assert attempt.channel.lines("stdout") == ["one", "three"]
    assert attempt.channel.lines("stderr") == ["two"]
    text = attempt.task.results.encode(result)
    assert attempt.task.results.decode(text) == result


async def test_the_function_is_called_with_args_and_job(executor: CommandExecutor) -> None:
    def echo(text: str, job: Job) -> Any:
        return Command(["echo", text, str(job.attempt)])

    async def echo_async(text: str, *, job: Job) -> Any:
        await asyncio.sleep(0)
        return Command(["echo", text, str(job.attempt)])

    for function in (echo, echo_async):
        result = await Attempt(executor, task(function, executor=Executor.COMMAND), '{"text":"a b"}').run()
        assert result.stdout == "a b 1\n"
        with pytest.raises(BadArgs):
            await Attempt(executor, task(function, executor=Executor.COMMAND), '{"text":7}').run()


async def test_folder_environment_and_input_are_as_the_command_says(
    executor: CommandExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHAPE", "round")
    script = 'pwd; echo "$COLOUR $SHAPE"; cat'
    result = await shell(executor, script, cwd=str(tmp_path), env={"COLOUR": "green"}, stdin="x" * 200_000).run()
    assert result.stdout.endswith("x" * 1000)
    result = await shell(executor, script, cwd=str(tmp_path), env={"COLOUR": "green"}).run()
    assert result.stdout == f"{tmp_path}\ngreen round\n"


async def test_a_program_that_reads_no_input_is_not_waited_for(executor: CommandExecutor) -> None:
    assert (await of(executor, "true", stdin="x" * 1_000_000).run()).exit_code == 0


async def test_no_shell_reads_the_arguments(executor: CommandExecutor) -> None:
    assert (await of(executor, "echo", "$HOME; exit 1", "*").run()).stdout == "$HOME; exit 1 *\n"


async def test_only_the_end_of_long_output_is_kept(executor: CommandExecutor) -> None:
    attempt = interpreted(executor, "for i in range(100_000): print(i)")
    result = await attempt.run()
    assert len(result.stdout) == TAIL
    assert result.stdout.endswith("99998\n99999\n")
    assert attempt.channel.lines("stdout")[-1] == "99999"
    assert len(attempt.channel.logged) == 100_000


async def test_over_long_lines_are_cut_and_binary_output_is_replaced(executor: CommandExecutor) -> None:
    attempt = interpreted(
        executor,
        "import os; os.write(1, b'y' * 1_000_000 + b'\\n\\x00\\xff\\xfe\\nlast\\r50%\\r\\n')",
    )
    result = await attempt.run()
    long, binary, *rest = attempt.channel.lines("stdout")
    assert long.startswith("y" * LINE)
    assert long.endswith("cut: a very long line")
    assert len(long) < LINE + 50
    assert binary == "\ufffd" * 3
    assert rest == ["last", "50%"]
    assert "\0" not in result.stdout
    assert attempt.task.results.encode(result)


async def test_a_program_that_closes_its_output_and_lives_on_is_waited_for(executor: CommandExecutor) -> None:
    code = "import os, time; print('bye', flush=True); os.close(1); os.close(2); time.sleep(0.3); os._exit(4)"
    attempt = interpreted(executor, code, accept=frozenset({4}))
    assert (await attempt.run()).exit_code == 4
    assert attempt.channel.lines("stdout") == ["bye"]


async def test_what_a_program_leaves_behind_is_killed_and_not_waited_for(executor: CommandExecutor) -> None:
    result = await shell(executor, "sleep 1000 & echo $!").run()
    await until_gone(int(result.stdout))


async def test_lines_drive_the_progress(executor: CommandExecutor) -> None:
    def percent(line: str) -> float | None:
        return float(line.removeprefix("at ")) if line.startswith("at ") else None

    attempt = shell(executor, "echo at 10; echo hello; echo at 90", progress=percent)
    await attempt.run()
    assert [percent for percent, _, _ in attempt.channel.progressed] == [10.0, 90.0]


async def test_a_progress_function_that_raises_is_asked_once(executor: CommandExecutor) -> None:
    attempt = shell(executor, "echo a; echo b", progress=float)
    assert (await attempt.run()).exit_code == 0
    assert len(attempt.channel.lines("holdfast.command")) == 1
    assert attempt.channel.lines("stdout") == ["a", "b"]


async def test_a_program_gets_the_signals_that_python_keeps_from_itself(executor: CommandExecutor) -> None:
    result = await shell(executor, "yes | head -1; grep SigIgn /proc/self/status").run()
    ignored = int(result.stdout.split()[-1], 16)
    assert ignored & (1 << (signal.SIGPIPE - 1)) == 0


# -- failing ---------------------------------------------------------------------------------------------------------------


async def test_an_exit_code_that_is_not_accepted_fails_the_attempt(executor: CommandExecutor) -> None:
    with pytest.raises(Retryable, match=r"/bin/sh exited with code 3; it last wrote:\nwhy") as raised:
        await shell(executor, "echo why >&2; exit 3").run()
    assert raised.value.code == "EXIT_3"


async def test_a_fatal_exit_code_is_fatal_and_an_accepted_one_is_success(executor: CommandExecutor) -> None:
    with pytest.raises(Fatal) as raised:
        await shell(executor, "exit 3", fatal=frozenset({3})).run()
    assert raised.value.code == "EXIT_3"
    assert (await shell(executor, "exit 3", accept=frozenset({0, 3})).run()).exit_code == 3


async def test_a_program_killed_by_a_signal_names_it(executor: CommandExecutor) -> None:
    with pytest.raises(Retryable) as raised:
        await shell(executor, "kill -SEGV $$").run()
    assert raised.value.code == "SIGNAL_SIGSEGV"


@pytest.mark.parametrize("name", ["no-such-program-anywhere", "/no/such/program"])
async def test_a_program_that_is_not_there_is_fatal_and_named(executor: CommandExecutor, name: str) -> None:
    with pytest.raises(Fatal, match=f"there is no program '{name}' on this machine") as raised:
        await of(executor, name).run()
    assert raised.value.code == "COMMAND_NOT_FOUND"


async def test_an_exit_code_127_of_the_program_itself_is_only_that(executor: CommandExecutor) -> None:
    with pytest.raises(Retryable) as raised:
        await shell(executor, "exit 127").run()
    assert raised.value.code == "EXIT_127"


async def test_a_file_that_may_not_be_run_and_a_folder_that_is_not_there_say_so(
    executor: CommandExecutor, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("no program")
    with pytest.raises(Fatal, match="Permission denied") as raised:
        await of(executor, str(tmp_path / "text")).run()
    assert raised.value.code == "COMMAND_NOT_RUN"
    with pytest.raises(Fatal, match="its folder '/no/such/folder' cannot be entered") as raised:
        await of(executor, "true", cwd="/no/such/folder").run()
    assert raised.value.code == "COMMAND_NOT_RUN"
    with pytest.raises(Fatal, match="null byte"):
        await of(executor, "echo", "a\0b").run()


@pytest.mark.parametrize("given", [None, "ls -l", ["ls"], Command([]), Command("ls"), Command([1])])  # type: ignore[list-item]
async def test_a_function_that_gives_no_command_is_fatal_and_named(executor: CommandExecutor, given: object) -> None:
    def gives_no_command() -> Any:
        return given

    with pytest.raises(Fatal, match="gives_no_command") as raised:
        await Attempt(executor, task(gives_no_command, executor=Executor.COMMAND)).run()
    assert raised.value.code == "BAD_COMMAND"


async def test_what_the_function_raises_is_raised(executor: CommandExecutor) -> None:
    def stops() -> Any:
        raise StopIteration

    async def exits() -> Any:
        raise SystemExit(2)

    def fails() -> Any:
        raise KeyError("no")

    for function in (stops, exits):
        with pytest.raises(RemoteError):
            await Attempt(executor, task(function, executor=Executor.COMMAND)).run()
    with pytest.raises(KeyError):
        await Attempt(executor, task(fails, executor=Executor.COMMAND)).run()


# -- stopping --------------------------------------------------------------------------------------------------------------

PATIENT = "trap 'echo stopping; exit 0' TERM; echo $$; while :; do sleep 0.01; done"
STUBBORN = "trap '' TERM; echo $$; while :; do sleep 0.01; done"


async def begun(attempt: Attempt) -> tuple[asyncio.Task[Any], int]:
    running = attempt.begin()
    await attempt.channel.until(lambda: bool(attempt.channel.lines("stdout")))
    return running, int(attempt.channel.lines("stdout")[0])


async def test_a_cancelled_program_is_asked_to_stop(executor: CommandExecutor) -> None:
    attempt = shell(executor, PATIENT)
    running, pid = await begun(attempt)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert attempt.channel.lines("stdout")[-1] == "stopping"
    await until_gone(pid)


async def test_a_program_that_will_not_stop_is_killed_when_its_grace_is_over(executor: CommandExecutor) -> None:
    running, pid = await begun(shell(executor, STUBBORN, stop_grace=0.05))
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=WAIT / 2)
    assert done
    with pytest.raises(asyncio.CancelledError):
        await running
    await until_gone(pid)


async def test_a_second_cancellation_does_not_wait_for_the_grace(executor: CommandExecutor) -> None:
    running, pid = await begun(shell(executor, STUBBORN, stop_grace=3600))
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=0.05)
    assert not done
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until_gone(pid)


@pytest.mark.parametrize("script", [PATIENT, STUBBORN, "echo $$; exec sleep 1000"])
async def test_a_program_that_was_asked_to_stop_is_aborted_however_it_ends(executor: CommandExecutor, script: str) -> None:
    attempt = shell(executor, script, stop_grace=0.05 if script == STUBBORN else 3600)
    running, _ = await begun(attempt)
    attempt.job.abort.set(AbortReason.SHUTDOWN)
    executor.stop(attempt.job, AbortReason.SHUTDOWN)
    with pytest.raises(Aborted) as raised:
        await running
    assert raised.value.reason == AbortReason.SHUTDOWN


async def test_a_program_is_not_started_for_an_attempt_that_is_to_stop(executor: CommandExecutor, tmp_path: Path) -> None:
    attempt = of(executor, "touch", str(tmp_path / "touched"))
    attempt.job.abort.set(AbortReason.CANCELED)
    with pytest.raises(Aborted):
        await attempt.run()
    assert not (tmp_path / "touched").exists()


async def test_close_kills_what_runs() -> None:
    executor = CommandExecutor(1)
    await executor.open()
    running, pid = await begun(shell(executor, STUBBORN))
    await executor.close()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until_gone(pid)


async def test_a_program_ends_when_its_worker_is_killed() -> None:
    code = (
        "import asyncio\n"
        "from holdfast.runtime.executor.command import CommandExecutor\n"
        "from tests.runtime.test_executor_command import of, shell, begun\n"
        "async def main():\n"
        "    executor = CommandExecutor(1)\n"
        "    await executor.open()\n"
        "    running, pid = await begun(shell(executor, 'echo $$; exec sleep 1000'))\n"
        "    print(pid, flush=True)\n"
        "    await running\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as worker:  # noqa: ASYNC220
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        worker.send_signal(signal.SIGKILL)
    await until_gone(pid)


def test_it_works_on_uvloop() -> None:
    async def main() -> CommandResult:
        executor = CommandExecutor(1)
        await executor.open()
        try:
            result: CommandResult = await shell(executor, "cat; exit 2", stdin="text", accept=frozenset({2})).run()
            return result
        finally:
            await executor.close()

    result = uvloop.run(main())
    assert (result.exit_code, result.stdout) == (2, "text")
