"""`holdfast media clip` as people use it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from holdfast import Holdfast, State
from holdfast.__main__ import main
from holdfast.connect import connect
from holdfast.store.port import JobFilter
from holdfast_media import Media
from holdfast_media.cli.common import Common, opened
from holdfast_media.clip.command import _own_queue, seconds
from holdfast_media.clip.wiring import settings_for
from tests.media.clip import films

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast import JobView


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0),
        ("62.5", 62.5),
        ("1:02.5", 62.5),
        ("01:02:03.250", 3723.25),
        ("90:00", 5400.0),
        ("100:59:59.5", 363_599.5),
        ("1m2s", 62.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("2s500ms", 2.5),
        (" 3.3 ", 3.3),
    ],
)
def test_times_are_read_as_people_write_them(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "1:99", "1:60:00", "90:", "abc", "1:2:3:4", "1e3", "nan", "10 20", "5x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no time"):
        seconds(text)


@dataclass
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Done]:
    """Run the command in this process, in an empty folder and with no settings but those of the test."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_MEDIA_SCRATCH", str(tmp_path / "scratch"))

    def command(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["holdfast", "media", "clip", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Done(int(ended.value.code or 0), printed.out, printed.err)

    return command


def test_a_clip_is_cut_kept_and_found_again(run: Callable[..., Done], tmp_path: Path, film: Path) -> None:
    out = tmp_path / "cut" / "scene.mp4"
    first = run(film, "--start", "1.3", "--end", "0:03.3", "--out", out)
    assert (first.code, first.err) == (0, "")
    assert films.numbers(out) == list(range(39, 99))
    assert "1.300 s to 3.300 s, 60 frames" in first.out
    again = run(film, "--start", "1300ms", "--end", "3.3", "--json")
    told = msgspec.json.decode(again.out)
    assert (told["reused"], told["frames"], told["start"], told["end"]) == (True, 60, 1.3, 3.3)
    assert not list((tmp_path / "scratch").iterdir())


def test_a_fast_clip_says_where_it_begins(run: Callable[..., Done], tmp_path: Path, film: Path) -> None:
    done = run(film, "--start", "3", "--end", "4", "--fast", "--out", "fast.mp4")
    assert "begins with the key frame at 2.500 s, 0.500 s before what was asked for" in done.out
    assert films.numbers(tmp_path / "fast.mp4")[0] == 75


def test_mistakes_end_with_two_and_failures_with_one(run: Callable[..., Done], film: Path) -> None:
    missing = run("nowhere.mp4")
    assert (missing.code, missing.out) == (2, "")
    assert "does not exist" in missing.err
    assert run(film, "--start", "2", "--end", "1").code == 2
    assert run(film, "--start", "soon").code == 2
    beyond = run(film, "--start", "100")
    assert beyond.code == 1
    assert "BAD_RANGE" in beyond.err


def test_a_folder_gets_the_clip_under_a_name_of_its_own(run: Callable[..., Done], tmp_path: Path, film: Path) -> None:
    (tmp_path / "scenes").mkdir()
    done = run(film, "--start", "0:01.300", "--end", "3.3", "--out", "scenes")
    assert (done.code, done.err) == (0, "")
    assert [path.name for path in (tmp_path / "scenes").iterdir()] == ["film-1.3-3.3.mp4"]
    assert films.numbers(tmp_path / "scenes" / "film-1.3-3.3.mp4") == list(range(39, 99))
    assert done.out.startswith("scenes/film-1.3-3.3.mp4: 1.300 s to 3.300 s")
    told = run(film, "--start", "5", "--fast", "--out", "scenes", "--json")
    assert msgspec.json.decode(told.out)["out"] == "scenes/film-5.mp4"
    assert (tmp_path / "scenes" / "film-5.mp4").is_file()


@pytest.mark.parametrize(
    ("out", "said"), [("afile/x.mp4", "afile is a file"), ("/proc/nope/x.mp4", "No such file"), ("pipe", "no plain file")]
)
def test_where_it_cannot_be_written_nothing_is_cut(
    run: Callable[..., Done], tmp_path: Path, film: Path, out: str, said: str
) -> None:
    (tmp_path / "afile").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    refused = run(film, "--end", "1", "--out", out)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: --out")
    assert said in refused.err
    assert "Fix: " in refused.err
    assert not (tmp_path / "media").exists()


def test_a_clip_that_could_not_be_copied_in_the_end_is_in_the_storage(
    run: Callable[..., Done], tmp_path: Path, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "here")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", full)
        done = run(film, "--end", "1", "--out", "x.mp4")
    assert done.code == 1
    assert "x.mp4 could not be written: No space left on device" in done.err
    kept = done.err.partition("file://")[2].split()[0].rstrip(".")
    assert films.numbers(Path(kept)) == list(range(30))
    assert not [path for path in tmp_path.iterdir() if "x.mp4" in path.name]


def test_the_settings_of_the_application_hold_for_clips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_MEDIA_STALL_AFTER", "7s")
    monkeypatch.setenv("HOLDFAST_MEDIA_RESERVE", "1GB")
    settings = settings_for(Media(Holdfast("memory://"), root=tmp_path))
    assert (settings.stall_after, settings.reserve) == (7.0, 10**9)


def test_detached_it_only_enqueues(run: Callable[..., Done], tmp_path: Path, film: Path) -> None:
    done = run(film, "--end", "1", "--detach", "--url", f"sqlite:///{tmp_path}/jobs.db", "--storage", "kept")
    assert done.code == 0
    assert len(done.out.strip()) == 36
    assert not list((tmp_path / "kept").glob("clips/**/*.mp4"))
    assert run(film, "--detach", "--out", "x.mp4").code == 2


def test_what_others_have_asked_for_is_left_to_their_workers(run: Callable[..., Done], tmp_path: Path, film: Path) -> None:
    """Theirs goes to another storage: done here it would be lost to them, or fail."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    theirs = run(film, "--end", "1", "--detach", "--url", url, "--storage", "theirs").out.strip()
    done = run(film, "--end", "1", "--url", url, "--storage", "ours", "--json")
    assert done.code == 0
    assert (tmp_path / "ours" / msgspec.json.decode(done.out)["key"]).exists()
    assert {str(job.id): job.state for job in jobs_of(url)}[theirs] is State.READY
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("first", [True, False])
def test_ctrl_c_cancels_what_nobody_else_has_asked_for(
    run: Callable[..., Done], tmp_path: Path, film: Path, monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    begun, url = tmp_path / "begun", f"sqlite:///{tmp_path}/jobs.db"
    program = tmp_path / "ffmpeg"
    hangs = f'case "$*" in *clip.mp4*) : > "{begun}"; exec sleep 60;; esac'  # and says what it can do
    program.write_text(f'#!/bin/sh\n{hangs}\nexec "{films.program()}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("HOLDFAST_MEDIA_FFMPEG", str(program))

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    words = (film, "--end", "1", "--url", url)
    job_id = "" if first else asked_by_another_command(url, film)
    thread = threading.Thread(target=interrupt)
    thread.start()
    done = run(*words)
    thread.join()
    assert done.code == 130
    if first:
        assert [job.state for job in jobs_of(url)] == [State.CANCELED]
    else:
        assert f"job {job_id} goes on" in done.err
        assert [(str(job.id), job.state) for job in jobs_of(url)] == [(job_id, State.READY)]


def asked_by_another_command(url: str, film: Path) -> str:
    """Ask as a second `holdfast media clip` would that was started a moment earlier."""

    async def ask() -> str:
        media = opened(Common(url=url), create=True)
        own = _own_queue(media, None)
        handle = await media.clip.options(queue=own, key_scope=own).enqueue(str(film), 0.0, 1.0)
        await media.close()
        await media.app.close()
        return str(handle.id)

    return asyncio.run(ask())


def jobs_of(url: str) -> Sequence[JobView]:
    async def ask() -> Sequence[JobView]:
        store = connect(url, create=False)
        await store.open()
        try:
            return (await store.find(JobFilter(), limit=10)).jobs
        finally:
            await store.close()

    return asyncio.run(ask())
