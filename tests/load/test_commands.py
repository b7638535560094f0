"""`holdfast load` as a person meets it, and the app that others run the kinds with."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from holdfast import State
from holdfast.connect import connect
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Done

PATIENCE = 60.0
CATALOG = """
[kinds.quick]
duration = "1ms"
[kinds.bad]
duration = "1ms"
outcomes = { fail = 1 }
retryable = false
"""
ENDLESS = """
[kinds.long]
duration = "1h"
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Path:
    file = tmp_path / "kinds.toml"
    file.write_text(CATALOG)
    return file


def own_environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return os.environ | {"HOLDFAST_URL": f"sqlite:///{tmp_path}/jobs.db", "NO_COLOR": "1", **more}


def test_it_needs_no_store_and_ends_with_a_report_and_a_chart(cli: Callable[..., Done], catalog: Path, tmp_path: Path) -> None:
    done = cli("load", catalog, "--rate", 100, "--jobs", 40, "--chart", tmp_path / "load.svg")
    assert done.code == 0, done.err
    facts = {row[0]: row[1:] for row in done.rows}
    assert facts["enqueued"] == ["40 of 40 planned"]
    assert facts["ended"] == ["40"]
    assert "100.00/s asked for (steady)" in facts["rate"][0]
    assert facts["jobs"] == ["gone with the store that was made for them; with --url they are kept there"]
    quick, bad = ([int(cell) for cell in facts[name][:6]] for name in ("quick", "bad"))
    assert quick[0] + bad[0] == 40
    assert (quick[1], bad[2]) == (quick[0], bad[0])
    assert ET.fromstring((tmp_path / "load.svg").read_text()).tag.endswith("svg")


def test_what_it_says_lists_the_jobs_lists_them(cli: Callable[..., Done], catalog: Path, tmp_path: Path) -> None:
    done = cli("load", catalog, "--rate", 100, "--jobs", 4, "--url", f"sqlite:///{tmp_path}/jobs.db")
    (said,) = [row[1] for row in done.rows if row[0] == "jobs"]
    program, *words = shlex.split(said)
    assert program == "holdfast"
    assert len(cli(*words).rows) == 4


def test_json_is_the_whole_report_and_nothing_else(cli: Callable[..., Done], catalog: Path) -> None:
    done = cli("load", catalog, "--rate", 100, "--seconds", 0.2, "--pattern", "spike", "--json")
    told = done.json
    assert (told["pattern"], told["planned"], told["enqueued"], told["ended"]) == ("spike", 20, 20, 20)
    assert (told["interrupted"], told["scaling"], told["most_workers"]) == (False, [], 2)
    assert set(told["kinds"]) == {"quick", "bad"}


def test_the_same_seed_makes_the_same_jobs(cli: Callable[..., Done], catalog: Path) -> None:
    def mix(seed: int) -> dict[str, int]:
        told = cli("load", catalog, "--rate", 1000, "--jobs", 60, "--seed", seed, "--json").json
        return {name: kind["enqueued"] for name, kind in told["kinds"].items()}

    assert mix(3) == mix(3)
    assert mix(3) != mix(4)


def test_mistakes_are_told_in_one_message(cli: Callable[..., Done], catalog: Path, tmp_path: Path) -> None:
    for options, expected in (
        (["--pattern", "zigzag"], "--pattern: 'zigzag' is none of steady, burst, wave, spike"),
        (["--rate", 0], "--rate must be more than 0"),
        (["--rate", "nan"], "--rate must be more than 0"),
        (["--jobs", 5, "--seconds", 5], "give --jobs, or a time"),
        (["--jobs", 0], "--jobs must be 1 to"),
        (["--seconds", -1], "must be more than 0"),
        (["--minutes", 0, "--seconds", 0], "must be more than 0"),
        (["--rate", 0.1, "--seconds", 1], "are 0 jobs"),
        (["--workers", -1], "--workers must be 0 to 100"),
        (["--workers", 0], "name it with --url or HOLDFAST_URL"),
        (["--drain", "soon"], "--drain: 'soon' is no duration"),
        (["--chart", "load.png"], "charts are written as SVG only: name a file that ends with .svg, not load.png"),
        (["--chart", tmp_path / "none" / "load.svg"], "there is no folder"),
    ):
        done = cli("load", catalog, *options)
        assert (done.code, done.out) == (2, ""), options
        assert done.err.startswith("error: ")
        assert expected in done.err
    catalog.write_text("[kinds.a]\nduration = 1\ncpu = 7")
    done = cli("load", catalog)
    assert (done.code, done.err) == (2, f"error: {catalog}: kinds.a.cpu: must be a number from 0 to 1, not 7\n")


def test_workers_elsewhere_run_the_kinds_with_the_app_that_comes_with_it(catalog: Path, tmp_path: Path) -> None:
    environment = own_environment(tmp_path, HOLDFAST_LOAD_CATALOG=str(catalog))
    command = [sys.executable, "-m", "holdfast"]
    subprocess.run([*command, "migrate"], env=environment, check=True, capture_output=True)
    with subprocess.Popen([*command, "worker", "holdfast.load:app"], env=environment, stderr=subprocess.DEVNULL) as worker:
        try:
            load = [*command, "load", str(catalog), "--rate", "200", "--jobs", "50", "--workers", "0", "--json"]
            done = subprocess.run(load, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE)
        finally:
            worker.terminate()
    told = json.loads(done.stdout)
    assert (told["ended"], told["most_workers"]) == (50, 1)


async def until_one_runs(url: str) -> None:
    store = connect(url)
    await store.open()

    async def one_runs() -> bool:
        return (await store.stats()).count(State.RUNNING) > 0

    try:
        await until(one_runs, PATIENCE)
    finally:
        await store.close()


def test_ctrl_c_ends_the_load_and_the_report_still_comes(catalog: Path, tmp_path: Path) -> None:
    catalog.write_text(ENDLESS)
    load = [
        sys.executable,
        "-m",
        "holdfast",
        "load",
        str(catalog),
        "--rate",
        "100",
        "--minutes",
        "60",
        "--workers",
        "1",
        "--json",
    ]
    environment = own_environment(tmp_path)
    with subprocess.Popen(load, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            asyncio.run(until_one_runs(environment["HOLDFAST_URL"]))
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    told = json.loads(out)
    assert told["interrupted"]
    assert 0 < told["enqueued"] == told["unfinished"] < told["planned"]


def test_on_a_terminal_it_shows_how_it_stands(catalog: Path, tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    load = [sys.executable, "-m", "holdfast", "load", str(catalog), "--rate", "100", "--jobs", "40"]
    environment = own_environment(tmp_path, COLUMNS="120", TERM="xterm")
    shown = b""
    with subprocess.Popen(load, env=environment, stdout=terminal, stderr=subprocess.DEVNULL) as process:
        os.close(terminal)
        while select.select([master], [], [], PATIENCE)[0]:
            try:
                shown += os.read(master, 65536)
            except OSError:  # the other end is closed
                break
    os.close(master)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    for words in ("Ctrl-C ends it", "of 40", "worker(s)", "oldest", "40 of 40 planned", "throughput"):
        assert words in text
