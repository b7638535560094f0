"""Commands that another package brings: found without loading it, and told of when it cannot be loaded."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from holdfast import BadSetting, MissingExtra
from holdfast.cli import commands, contributed
from holdfast.cli.contributed import Contribution

ROOT = Path(__file__).parents[3]


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_help_tells_of_the_media_commands_without_loading_them() -> None:
    loaded = python(
        "import sys\nfrom holdfast.cli.commands import run\nrun(['--help'])\n"
        "print([name for name in sys.modules if name.startswith('holdfast_media')], file=sys.stderr)\n"
        "print([name for name in sys.modules if name.startswith('holdfast_media')])"
    )
    assert "Transcode and clip videos" in loaded
    assert loaded.splitlines()[-1] == "[]"


def test_a_command_of_our_own_does_not_even_look_for_others() -> None:
    loaded = python(
        "from holdfast.cli import contributed\n"
        "contributed.entry_points = None\n"
        "from holdfast.cli.commands import build\nbuild(['jobs', 'ls'])\nprint('fine')"
    )
    assert loaded.strip() == "fine"


def entry(name: str, value: str) -> Contribution:
    return Contribution(name, EntryPoint(name, value, contributed.GROUP))


def test_a_package_that_lacks_its_parts_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = entry("media", "no_such_package.cli:COMMANDS [media]")
    monkeypatch.setattr(commands, "contributions", lambda: {"media": missing})
    with pytest.raises(MissingExtra, match=r"pip install 'holdfast\[media\]'"):
        commands.build(["media", "ls"])
    commands.build(["--help"])
    commands.build([])  # as for completion


def test_what_is_no_mapping_of_commands_is_refused() -> None:
    with pytest.raises(BadSetting, match="leads to no mapping"):
        entry("odd", "sys:version").commands()


def test_a_group_of_a_package_we_do_not_know_is_called_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    other = entry("shop", "tests.media.cli.test_contributed:SHOP")
    monkeypatch.setattr(commands, "contributions", lambda: {"shop": other, "jobs": other})
    assert other.text == "Commands of tests.media.cli.test_contributed:SHOP."
    assert commands.run(["shop", "open"]) == 7
    assert commands.run(["shop", "close"]) == 2


def open_shop() -> int:
    """Open it."""
    return 7


SHOP = {"open": "tests.media.cli.test_contributed:open_shop"}
