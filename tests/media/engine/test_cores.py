"""The processors of a machine are shared by what encodes on it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from holdfast_media.ffmpeg import cores, share_of_cores

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "processors", lambda: 8)


def test_who_encodes_alone_has_all_of_them_and_others_a_share(tmp_path: Path) -> None:
    with share_of_cores(tmp_path) as alone:
        with share_of_cores(tmp_path) as second, share_of_cores(tmp_path) as third:
            assert (alone, second, third) == (0, 4, 3)
        with share_of_cores(tmp_path) as again:
            assert again == 4
    assert not list(tmp_path.iterdir())


def test_who_was_killed_is_not_counted(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\nfrom holdfast_media.ffmpeg import share_of_cores\n"
        "with share_of_cores(pathlib.Path(sys.argv[1])):\n    print('encodes', flush=True)\n    sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"encodes\n"
        with share_of_cores(tmp_path) as beside:
            assert beside == 4
        other.kill()
        other.wait()
    assert list(tmp_path.iterdir())
    with share_of_cores(tmp_path) as alone:
        assert alone == 0
    assert not list(tmp_path.iterdir())


def test_where_nobody_can_meet_there_is_no_sharing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with share_of_cores(tmp_path / "file") as threads:
        assert threads == 0
