"""The command line as a person meets it: real processes, their output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def holdfast(*arguments: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line, optionally as if a package were not installed."""
    block = f"import sys; sys.modules[{without!r}] = None; " if without else ""
    program = f"{block}from holdfast.__main__ import main; main()"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def test_migrate_creates_and_then_leaves_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert holdfast("migrate", url).stdout == "created: version 1\n"
    assert holdfast("migrate", url).stdout == "up to date: version 1\n"
    assert json.loads(holdfast("migrate", url, "--json").stdout) == {"before": 1, "after": 1}


def test_a_users_mistake_ends_with_one_message_and_no_traceback(tmp_path: Path) -> None:
    for arguments in (
        ["migrate", "mysql://x"],
        ["migrate", f"sqlite:///{tmp_path}/no/such/folder/jobs.db"],
        ["migrate", "memory://"],
    ):
        done = holdfast(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr


def test_help_teaches_and_the_version_is_the_packages() -> None:
    assert "holdfast migrate postgresql://user@host/database" in holdfast("migrate", "--help").stdout
    assert holdfast("--version").stdout.strip() == __import__("holdfast").__version__


def test_without_its_packages_the_command_line_says_what_to_install() -> None:
    done = holdfast("migrate", "memory://", without="cyclopts")
    assert done.returncode == 1
    assert "pip install 'holdfast[cli]'" in done.stderr
