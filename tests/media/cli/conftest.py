"""A folder to give commands in, and what gives them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from holdfast.__main__ import main
from tests.media.cli.commanding import Done
from tests.media.tasks.films import ladder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder to work in, with no settings but those of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    for name, value in (("PICTURES", "no"), ("SCRATCH", str(tmp_path / "scratch")), ("RESERVE", "0"), ("RETRY_AFTER", "0.05")):
        monkeypatch.setenv(f"HOLDFAST_MEDIA_{name}", value)
    monkeypatch.setenv("HOLDFAST_MEDIA_SEGMENT_SECONDS", "2")
    ladder(tmp_path / "small.toml", ("90p", 90, True))
    return tmp_path


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], here: Path) -> Callable[..., Done]:
    """Run a command in this process."""

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["holdfast", "media", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        code = ended.value.code
        return Done(code if isinstance(code, int) else 1, printed.out, printed.err)

    return run
