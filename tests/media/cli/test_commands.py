"""`holdfast media …` as people type it: what it prints, and its exit codes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import connect
from holdfast_media.cli import working
from holdfast_media.tasks import context
from tests.media.tasks.films import film, frames, ladder

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tests.media.cli.commanding import Done

ROOT = Path(__file__).parents[3]


def test_a_file_is_transcoded_shown_and_found_done_the_second_time(cli: Callable[..., Done], here: Path) -> None:
    film(here / "film.mp4", seconds=4)
    words = ("transcode", "film.mp4", "--ladder", "small.toml", "--chunk-seconds", "2")
    done = cli(*words)
    assert done.code == 0, done.err
    assert "ready  film: 90p; 0:04, 2 chunks (0 redone), 2 encodes (0 reused), 40 frames" in done.out
    master = Path(done.out.splitlines()[1].strip().removeprefix("file://"))
    assert len(frames(master)) == 40
    listed = cli("ls", "--json").json
    assert [(one["title"], one["state"]) for one in listed] == [("film", "ready")]
    video_id = listed[0]["id"]
    shown = cli("show", video_id[:8])
    assert f"film  ready  {video_id}" in shown.out
    assert "90p  ready  libx264, 2 chunks" in shown.out
    again = cli(*words, "--json")
    assert (again.code, again.json[0]["versions"][0]["number"]) == (0, 1)  # nothing was done
    # another ladder is another version; the same file, changed, too
    ladder(here / "other.toml", ("72p", 72, True))
    other = cli("transcode", "film.mp4", "--ladder", "other.toml", "--chunk-seconds", "2", "--json")
    assert other.json[0]["versions"][0]["number"] == 2
    ladder(here / "other.toml", ("60p", 60, True))  # another ladder under the same name
    third = cli("transcode", "film.mp4", "--ladder", "other.toml", "--chunk-seconds", "2", "--json")
    assert [one["name"] for one in third.json[0]["versions"][0]["qualities"]] == ["60p"]
    assert cli("ls").out.split("\t")[:2] == [video_id, "ready"]


def test_a_folder_is_every_media_file_in_it_and_one_that_fails_is_told(cli: Callable[..., Done], here: Path) -> None:
    (here / "films").mkdir()
    film(here / "films" / "one.mp4", seconds=2)
    film(here / "films" / "two.m4a", seconds=2, picture=False)
    (here / "films" / "bad.mkv").write_bytes(b"no film")
    (here / "films" / "notes.txt").write_text("not asked for")
    done = cli("transcode", "films", "--ladder", "small.toml", "--out", "out", "--json")
    assert done.code == 1
    states = {one["title"]: one["state"] for one in done.json}
    assert states == {"one": "ready", "two": "ready", "bad": "failed"}
    assert all(one["master"].endswith("master.m3u8") for one in done.json if one["state"] == "ready")
    failed = next(one for one in done.json if one["state"] == "failed")
    assert failed["error"]["code"].startswith("INPUT_")
    told = cli("ls", "--out", "out", "--state", "failed")
    assert "INPUT_" in told.out
    retried = cli("retry", failed["id"], "--out", "out", "--detach")
    assert (retried.code, "is pending" in retried.out) == (0, True)
    kept = cli("delete", failed["id"], "--out", "out")
    assert (kept.code, "would be deleted" in kept.out) == (1, True)
    assert cli("delete", failed["id"], "--out", "out", "--yes").code == 0
    assert cli("show", failed["id"], "--out", "out").code == 3
    assert [line.detail for line in asyncio.run(_noted(here / "out", failed["id"]))] == [
        "media: add 'bad'",
        "media: retry 'bad'",
        "media: delete 'bad'",
    ]


def test_whoever_waits_for_room_on_the_disk_is_told(
    cli: Callable[..., Done], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film(here / "film.mp4", seconds=2, sound=False)
    free = iter([1000])
    monkeypatch.setattr(context, "free_bytes", lambda _: next(free, 10**12))
    monkeypatch.setattr(working, "WAITS_EVERY", 1)
    done = cli("transcode", "film.mp4", "--ladder", "small.toml")
    assert done.code == 0, done.err
    assert "waiting: DISK_FULL: 0 MB are free in the scratch folder" in done.err
    assert "Make room" in done.err


async def _noted(folder: Path, video_id: str) -> list[Any]:
    """Return what the audit log says of a video; each line names a user and a host."""
    store = connect(f"sqlite:///{folder / '.holdfast.db'}")
    await store.open()
    lines = [line for line in await store.audits(limit=100) if line.targets == (f"video {video_id}",)]
    await store.close()
    assert all("@" in line.actor for line in lines)
    return lines[::-1]


def test_what_is_typed_wrongly_is_told_in_words(cli: Callable[..., Done], here: Path) -> None:
    assert (cli("ls").code, "Begin with: holdfast media transcode FILE" in cli("ls").err) == (2, True)
    assert cli("transcode").code == 2
    nothing = cli("transcode", "nothing.mp4")
    assert (nothing.code, "no file or folder nothing.mp4" in nothing.err) == (2, True)
    (here / "empty").mkdir()
    assert cli("transcode", "empty").code == 2
    assert cli("transcode", "x.mp4", "--workers", "-1").code == 2
    assert cli("transcode", "x.mp4", "--chunk-seconds", "soon").code == 2
    unknown = cli("transcod")
    assert (unknown.code, "Unknown command" in unknown.err) == (2, True)
    assert cli("ls", "--state", "happy", "--out", "x").code == 2
    broken = here / "broken.toml"
    broken.write_text("[[rungs]]\nname = 7\n")
    assert (cli("ladder", broken).code, "LADDER_INVALID" in cli("ladder", broken).err) == (1, True)
    (here / "holdfast.toml").write_text("[media]\nchunk_second = 3\n")
    wrong = cli("ls")
    assert (wrong.code, "do you mean 'chunk_seconds'?" in wrong.err) == (2, True)


def test_ladder_and_doctor_say_what_there_is(cli: Callable[..., Done]) -> None:
    shown = cli("ladder")
    assert "1080p\t1080" in shown.out
    assert cli("ladder", "--json").json["rungs"][0]["name"] == "2160p"
    checks = {one["name"]: one["level"] for one in cli("doctor", "--json").json}
    assert checks["ffmpeg"] == checks["encoders"] == "ok"


def test_ctrl_c_drains_and_the_same_command_goes_on(here: Path) -> None:
    film(here / "film.mp4", seconds=12, size="640x360")
    text = ladder(here / "slow.toml", ("360p", 360, True)).read_text()
    (here / "slow.toml").write_text(text.replace('"ultrafast"', '"slow"'))
    words = ["transcode", "film.mp4", "--ladder", "slow.toml", "--chunk-seconds", "2", "--workers", "1", "--json"]
    command = [sys.executable, "-m", "holdfast", "media", *words]
    chunks = here / "media" / "videos"
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not list(chunks.glob("*/chunks/*.mp4")) and time.monotonic() < deadline:
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=120)
    assert (first.returncode, b"the same command goes on later" in err.lower()) == (130, True)
    done = {path.name for path in chunks.glob("*/chunks/*.mp4")}
    assert 1 <= len(done) < 6
    again = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    video = msgspec.json.decode(again.stdout)[0]
    result = video["versions"][0]["result"]
    assert (result["frames"], result["chunks"], result["encodes"]) == (120, 6, 6)
    assert result["redone"] == 0  # what was running was finished before it ended
    assert video["versions"][0]["number"] == 1
