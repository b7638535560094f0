"""The demonstration with a film, as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def demo(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "holdfast", "media", "demo", *options]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def test_a_killed_worker_costs_one_chunk_and_no_frame(tmp_path: Path) -> None:
    ended = demo(tmp_path, "--seconds", "16", "--json", "--keep", "kept")
    assert ended.returncode == 0, ended.stderr
    account = json.loads(ended.stdout)
    assert account["adds_up"]
    assert account["killed"] in {"ada", "bob"}
    assert (account["redone"], account["lost"]) == (1, 0)
    assert account["frames"] == {"480p": 480, "360p": 480, "240p": 480}
    assert account["source_frames"] == 480
    assert (tmp_path / "kept" / "film.mp4").exists()


def test_a_film_that_is_too_short_is_refused(tmp_path: Path) -> None:
    ended = demo(tmp_path, "--seconds", "3")
    assert ended.returncode == 2
    assert "--seconds must be 12 or more" in ended.stderr
