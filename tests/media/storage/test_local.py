"""A local folder: what is left of broken writers, of full disks, of copies, and of files that people put there."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast_media.errors import MediaError
from holdfast_media.storage import sha256_of
from holdfast_media.storage.local import LocalStorage

if TYPE_CHECKING:
    from pathlib import Path

KEY = "out/a.m4s"


def left(storage: LocalStorage) -> list[str]:
    """Everything that is there but for locks."""
    paths = (path.relative_to(storage.folder) for path in storage.folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in paths if path.parts[:2] != (".holdfast", "locks"))


def test_checksums_survive_a_copy_and_are_what_sha256sum_reads(local: LocalStorage, file: Path, tmp_path: Path) -> None:
    local.put(KEY, file)
    shutil.copytree(local.folder / "out", tmp_path / "copy" / "out")
    copied = LocalStorage(tmp_path / "copy")
    found = copied.head(KEY)
    assert found is not None
    assert found.sha256 == sha256_of(file)
    assert copied.check(KEY)
    subprocess.run(["sha256sum", "--check", "--strict", ".a.m4s.sha256"], cwd=copied.folder / "out", check=True)


@pytest.mark.parametrize("call", ["fsync", "link", "write"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_nothing_and_may_be_tried_again(
    local: LocalStorage, file: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as broken:
        broken.setattr("holdfast_media.storage.local._copy" if call == "write" else f"os.{call}", full)
        with pytest.raises(MediaError) as caught:
            local.put(KEY, file)
    assert caught.value.code == "DISK_FULL"
    assert caught.value.retryable
    assert left(local) == []
    assert local.head(KEY) is None
    assert local.put(KEY, file).created


def test_a_disk_that_is_full_before_is_not_written_to(local: LocalStorage, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStorage, "free_bytes", lambda _: 10)
    with pytest.raises(MediaError) as caught:
        local.put(KEY, file)
    assert caught.value.code == "DISK_FULL"


def test_the_kernel_s_own_limit_counts_as_a_full_disk(local: LocalStorage, file: Path) -> None:
    """A real refusal by the kernel, in the midst of a write."""
    code = (
        "import resource, sys, pathlib\n"
        "from holdfast_media.errors import MediaError\n"
        "from holdfast_media.storage.local import LocalStorage\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "try:\n"
        "    LocalStorage(pathlib.Path(sys.argv[1])).put('out/a.m4s', pathlib.Path(sys.argv[2]))\n"
        "except MediaError as error:\n"
        "    print(error.code)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(local.folder), str(file)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "DISK_FULL"
    assert left(local) == []


WRITER = (
    "import sys, pathlib, time\n"
    "from holdfast_media.storage.local import LocalStorage\n"
    "def say(share):\n"
    "    print(share, flush=True)\n"
    "    time.sleep(60)\n"
    "LocalStorage(pathlib.Path(sys.argv[1])).put('out/a.m4s', pathlib.Path(sys.argv[2]), on_progress=say)\n"
)


def test_the_work_file_of_a_killed_writer_is_swept_and_that_of_a_living_one_is_not(local: LocalStorage, tmp_path: Path) -> None:
    source = tmp_path / "large"
    source.write_bytes(bytes(3 * 2**20))
    with subprocess.Popen([sys.executable, "-c", WRITER, str(local.folder), str(source)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        (work,) = (local.folder / ".holdfast/work").iterdir()
        long_ago = time.time() - 3600
        os.utime(work, (long_ago, long_ago))
        assert local.sweep() == 0
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert local.head(KEY) is None
    assert local.sweep() == 1
    assert left(local) == []
    assert local.put(KEY, source).created


def test_a_young_work_file_is_left_alone(local: LocalStorage, file: Path) -> None:
    local.put(KEY, file)
    work = local.folder / ".holdfast/work/young"
    work.write_bytes(b"x")
    assert local.sweep() == 0


def test_processes_that_publish_one_key_agree(local: LocalStorage, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from holdfast_media.storage.local import LocalStorage\n"
        "storage = LocalStorage(pathlib.Path(sys.argv[1]))\n"
        "path = pathlib.Path(sys.argv[2])\n"
        "sys.stdin.readline()\n"
        "for n in range(20):\n"
        "    stored = storage.put(f'out/{n}', path)\n"
        "    print(stored.created, stored.sha256)\n"
    )
    runs = []
    for number in range(3):
        path = tmp_path / f"{number}"
        path.write_bytes(bytes([number]) * 10_000)
        runs.append(
            subprocess.Popen(
                [sys.executable, "-c", code, str(local.folder), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("go\n")
        run.stdin.flush()
    told = [[line.split() for line in run.communicate()[0].splitlines()] for run in runs]
    for number in range(20):
        answers = [lines[number] for lines in told]
        assert sorted(created for created, _ in answers) == ["False", "False", "True"]
        assert len({sha256 for _, sha256 in answers}) == 1
        assert local.check(f"out/{number}")


def test_files_that_people_put_there_are_found_without_a_checksum(local: LocalStorage) -> None:
    (local.folder / "in").mkdir(parents=True)
    (local.folder / "in/film.mp4").write_bytes(b"a film")
    (local.folder / "in/.DS_Store").write_bytes(b"x")
    (local.folder / "in/a:b").write_bytes(b"x")
    found = local.head("in/film.mp4")
    assert found is not None
    assert found.sha256 is None
    assert not local.check("in/film.mp4")
    assert local.check("in/film.mp4", sha256=sha256_of(local.folder / "in/film.mp4"))
    assert [one.key for one in local.list()] == ["in/film.mp4"]
    with local.lend("in/film.mp4") as path:
        assert path == local.folder / "in/film.mp4"


def test_a_link_out_of_the_folder_is_not_followed(local: LocalStorage, file: Path, tmp_path: Path) -> None:
    local.folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/secret").write_bytes(b"x")
    (local.folder / "out").symlink_to(tmp_path / "elsewhere")
    for use in (lambda: local.open("out/secret"), lambda: local.put("out/new", file), lambda: local.delete("out/secret")):
        with pytest.raises(MediaError) as caught:
            use()
        assert caught.value.code == "BAD_KEY"
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["secret"]


def test_empty_folders_go_with_their_last_file(local: LocalStorage, file: Path) -> None:
    local.put("out/a/b/c", file)
    local.put("out/d", file)
    local.delete("out/a/b/c")
    assert not (local.folder / "out/a").exists()
    assert (local.folder / "out/d").exists()


def test_what_was_given_away_comes_back_when_it_was_not_published(local: LocalStorage, file: Path) -> None:
    def refuse() -> None:
        raise ValueError("no")

    data = file.read_bytes()
    with pytest.raises(ValueError, match="no"):
        local.put(KEY, file, consume=True, before_publish=refuse)
    assert file.read_bytes() == data
    assert left(local) == []


def test_a_folder_that_may_not_be_written_says_how_to_mend_it(
    local: LocalStorage, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(local.folder))

    monkeypatch.setattr("holdfast_media.storage.local._copy", denied)
    with pytest.raises(MediaError, match="Give the user") as caught:
        local.put(KEY, file)
    assert caught.value.code == "ACCESS_DENIED"
    assert not caught.value.retryable


def test_published_files_may_be_read_by_others(local: LocalStorage, tmp_path: Path) -> None:
    secret = tmp_path / "scratch"
    secret.write_bytes(b"x")
    secret.chmod(0o600)
    local.put(KEY, secret, consume=True)
    assert (local.folder / KEY).stat().st_mode & 0o444 == 0o444
