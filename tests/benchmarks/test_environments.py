"""Which Python a peer gets, and what becomes of one that cannot be installed."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from pathlib import Path

import pytest

from benchmarks import environments
from benchmarks.__main__ import main
from benchmarks.environments import NoEnvironment, Peer, versions

MINOR = sys.version_info.minor


def program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def python(folder: Path, minor: int, body: str = "") -> Path:
    """Put an interpreter there that knows its version."""
    return program(folder / f"python3.{minor}", f'case "$1" in -c) echo 3.{minor}; exit;; esac\n{body}')


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for interpreters: beside ours, there are no others."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    for variable in ("HOLDFAST_BENCH_PYTHON311", "HOLDFAST_BENCH_PYTHON312"):
        monkeypatch.delenv(variable, raising=False)
    return folder


def test_a_peer_runs_on_the_python_that_holdfast_runs_on(path: Path) -> None:
    python(path, MINOR - 1)
    assert environments._find_python(f"3.{MINOR - 1}") == sys.executable
    assert environments._find_python(f"3.{MINOR}") == sys.executable


def test_a_peer_that_needs_a_newer_python_gets_the_oldest_that_will_do(path: Path) -> None:
    program(path / f"python3.{MINOR + 20}", "exit 127")
    python(path, MINOR + 22)
    python(path, MINOR + 21)
    assert environments._find_python(f"3.{MINOR + 20}") == f"python3.{MINOR + 21}", "the shim of the oldest does not run"


def test_a_python_of_pyenv_is_found(path: Path, tmp_path: Path) -> None:
    found = python(tmp_path / "pyenv" / "versions" / f"3.{MINOR + 21}.4" / "bin", MINOR + 21)
    assert environments._find_python(f"3.{MINOR + 20}") == str(found)


def test_a_python_that_was_named_comes_first(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = python(tmp_path / "named", MINOR + 1)
    monkeypatch.setenv(f"HOLDFAST_BENCH_PYTHON3{MINOR}", str(named))
    assert environments._find_python(f"3.{MINOR}") == str(named)


def test_without_a_python_that_is_new_enough_it_says_how_to_name_one(path: Path) -> None:
    with pytest.raises(NoEnvironment, match=r"Python 3\.99 or newer not found.*HOLDFAST_BENCH_PYTHON399=/path/to/python3\.99"):
        environments._find_python("3.99")


def test_a_version_names_the_interpreter_too() -> None:
    peer = Peer(["pytest==1", "asyncpg[gss]==1"], "3.11", "postgres", "", 1, "")
    pytest_version, asyncpg_version = (importlib.metadata.version(name) for name in ("pytest", "asyncpg"))
    told = f"{pytest_version} (Python {platform.python_version()}, asyncpg {asyncpg_version})"
    assert versions(Path(sys.executable), peer) == told


STURDY = """
[sturdy]
requirements = ["sturdy==9.9"]
python = "3.98"
store = "sqlite"
program = "sturdy.py"
jobs = 1
setting = ""
"""
PIP_FAILS = """
mkdir -p "$3/bin"
cat >"$3/bin/python" <<'SCRIPT'
#!/bin/sh
echo 'ERROR: No matching distribution found for sturdy==9.9' >&2
exit 1
SCRIPT
chmod +x "$3/bin/python"
"""


def test_a_peer_that_cannot_be_installed_is_reported_and_the_run_fails(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = tmp_path / "peers.toml"
    peers.write_text(STURDY)
    monkeypatch.setattr(environments, "PEERS_FILE", peers)
    monkeypatch.setenv("HOLDFAST_BENCH_HOME", str(tmp_path / "home"))
    python(path, 98, PIP_FAILS)
    assert main(["peers", "--contestants", "sturdy", "--works", "drain1"]) == 1
    told = capsys.readouterr()
    assert "sturdy cannot take part" in told.err
    assert "sturdy has no figure for install" in told.out
    assert "No matching distribution found for sturdy==9.9" in told.out
