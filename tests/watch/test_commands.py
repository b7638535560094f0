"""`holdfast watch` as a person meets it: real processes, several at once, killed in the midst."""

from __future__ import annotations

import asyncio
import json
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.connect import connect
from holdfast.notify.redis.line import Line
from holdfast.store.port import JobFilter, JobView
from tests.support.redis import RedisServer
from tests.support.until import until
from tests.watch.conftest import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Done

PATIENCE = 60.0
APP = """
from holdfast import Holdfast
app = Holdfast({url!r})

@app.task(name="transcode", queue="media", retry=7)
async def transcode(film: str) -> None: ...
"""


def watch(folder: Path, *options: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run it to its end, optionally as if a package were not installed."""
    block = f"import sys; sys.modules[{without!r}] = None; " if without else ""
    program = f"{block}from holdfast.__main__ import main; main()"
    command = [sys.executable, "-c", program, "watch", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE, cwd=folder.parent)


@contextmanager
def watching(folder: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    """Run it until the test is over; it is up when it says so."""
    command = [sys.executable, "-m", "holdfast", "watch", str(folder), "--task", "transcode", "--url", url, "--settle", "0.2s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "watching" in process.stderr.readline()
            yield process
        finally:
            process.kill()


def write(folder: Path, numbers: range) -> list[str]:
    for number in numbers:
        (folder / f"{number:04}.mov").write_text("x" * number)
    return [str(folder / f"{number:04}.mov") for number in numbers]


async def test_three_watchers_at_once_take_two_hundred_files_once_each(folder: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = connect(url)
    await store.open()
    expected = write(folder, range(100))

    async def all_there() -> bool:
        return len(await paths(store)) >= 200

    with watching(folder, url) as first, watching(folder, url) as second, watching(folder, url) as third:
        expected += write(folder, range(100, 200))
        await until(all_there, PATIENCE)
        printed = []
        for process in (first, second, third):
            process.terminate()  # finishes what it does
            out, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0
            printed += [line.split("\t")[1] for line in out.splitlines()]
    taken = await paths(store)
    await store.close()
    assert sorted(taken) == expected
    assert sorted(printed) == expected


async def test_a_watcher_that_is_killed_in_the_midst_leaves_nothing_out_and_takes_nothing_twice(
    folder: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    store = connect(url)
    await store.open()
    expected = write(folder, range(1000))
    with watching(folder, url) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], PATIENCE)[0]  # the first transaction of ten is committed
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    before = len(await paths(store))
    done = watch(folder, "--task", "transcode", "--url", url, "--settle", "0.1s", "--once", without="watchfiles")
    taken = await paths(store)
    await store.close()
    assert done.returncode == 0, done.stderr
    assert before > 0
    assert sorted(taken) == expected
    assert len(done.stdout.splitlines()) == 1000 - before


def test_with_an_app_the_task_says_what_else_holds(folder: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    (tmp_path / "films.py").write_text(APP.format(url=url))
    options = ("--task", "transcode", "--app", "films:app", "--settle", "0.1s", "--once")
    wrong = watch(folder, *options)  # told before any file is there
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "film" in wrong.stderr
    (folder / "a.mov").write_text("a")
    done = watch(folder, *options, "--arg-name", "film", "--json")
    taken = json.loads(done.stdout)
    assert taken["path"] == str(folder / "a.mov")

    async def job() -> JobView:
        store = connect(url)
        await store.open()
        try:
            return (await store.find(JobFilter(), limit=1)).jobs[0]
        finally:
            await store.close()

    view = asyncio.run(job())
    assert (view.queue, view.policy.retry.max_attempts) == ("media", 7)
    assert str(view.id) == taken["job_id"]


def test_with_an_app_the_depth_of_its_queue_is_heeded(folder: Path, tmp_path: Path) -> None:
    app = APP.format(url=f"sqlite:///{tmp_path}/jobs.db") + '\napp.queue("media", max_depth=2)\n'
    (tmp_path / "films.py").write_text(app)
    for name in "abcde":
        (folder / f"{name}.mov").write_text(name)
    options = ("--task", "transcode", "--app", "films:app", "--settle", "0.1s", "--once", "--arg-name", "film")
    done = watch(folder, *options)
    assert len(done.stdout.splitlines()) == 2, "what has room is taken"
    full = "queue 'media' is full: it takes 2 jobs that wait."
    assert done.stderr == f"{full} 2 file(s) were taken; 3 wait where they are, for the next time\n"
    assert done.returncode == 1, "not all of what is complete was taken"
    again = watch(folder, *options)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"{full} 0 file(s) were taken; 3 wait where they are, for the next time\n"


def test_files_that_still_change_are_said_to_be_left(folder: Path, tmp_path: Path) -> None:
    (folder / "a.mov").write_text("a")
    program = (
        "import sys, os; from holdfast.watch import watcher as w; scan = w.scan\n"
        "def growing(folder, rules):\n"
        f"    open({str(folder / 'a.mov')!r}, 'a').write('more')\n"
        "    return scan(folder, rules)\n"
        "w.scan = growing\n"
        "from holdfast.__main__ import main; main()"
    )
    options = ["--task", "t", "--url", f"sqlite:///{tmp_path}/jobs.db", "--settle", "0.1s", "--once"]
    command = [sys.executable, "-c", program, "watch", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    unchecked, left = done.stderr.splitlines()
    assert (done.returncode, done.stdout, left) == (0, "", "1 file(s) still change, and were left alone")
    assert unchecked.startswith("whether there is a task 't' and it takes 'path' is unchecked, and each file is taken once")


def test_mistakes_are_told_in_one_message(cli: Callable[..., Done], folder: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    file = tmp_path / "file"
    file.write_text("")
    common = ("--task", "t", "--url", url)
    for where, options, expected in (
        (folder / "none", common, "does not exist. Make it first: mkdir -p"),
        (file, common, "is no folder"),
        (folder, (*common, "--settle", "0s"), "--settle must be 0.1 s or more"),
        (folder, (*common, "--settle", "soon"), "--settle: 'soon' is no duration"),
        (folder, (*common, "--arg-name", "a b"), "--arg-name: 'a b' is no name of a parameter"),
        (folder, ("--task", "", "--url", url), "--task"),
        (folder, ("--task", "t", "--url", "https://jobs.example.com"), "needs the database itself"),
        (folder, ("--task", "t", "--url", url, "--app", "x:app"), "give --app or --url, not both"),
    ):
        done = cli("watch", where, *options)
        assert (done.code, done.out) == (2, ""), done.err
        assert done.err.startswith("error: ")
        assert expected in done.err


def test_a_missing_package_is_named_with_the_line_that_installs_it(folder: Path, tmp_path: Path) -> None:
    done = watch(folder, "--task", "t", "--url", f"sqlite:///{tmp_path}/jobs.db", without="watchfiles")
    assert done.returncode == 1
    assert "pip install 'holdfast[watch]'" in done.stderr


async def test_with_an_app_workers_are_told_as_the_app_says(folder: Path, tmp_path: Path, new_postgres: str) -> None:
    """An app that dispatches through Redis alone: nobody listens elsewhere."""
    with RedisServer("redis") as redis_server:
        app = APP.format(url=new_postgres).replace(
            f"{new_postgres!r}", f"{new_postgres!r}, redis_url={redis_server.url!r}, dispatch='redis'"
        )
        (tmp_path / "films.py").write_text(app)
        (folder / "a.mov").write_text("a")
        options = ("--task", "transcode", "--app", "films:app", "--settle", "0.1s", "--once", "--arg-name", "film")
        done = watch(folder, *options)
        assert done.returncode == 0, done.stderr
        job_id = done.stdout.split("\t")[0]
        async with await Line.open(redis_server.url, 5.0) as line:
            (streams,) = await line.call(("KEYS", "*:normal"), timeout=5.0)
            told = [(await line.call(("XRANGE", stream, "-", "+"), timeout=5.0))[0] for stream in streams]
        assert "media" in str(told), job_id
