"""Holdfast without the frameworks, and the frameworks' modules without them: a word that helps, and nothing loaded unasked."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from tests.integrations.installing import ROOT, hide

if TYPE_CHECKING:
    from pathlib import Path

FRAMEWORKS = ("django", "fastapi", "flask", "starlette", "sqlalchemy", "click")

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {framework!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from holdfast import MissingExtra
try:
    import holdfast.{framework}
except MissingExtra as error:
    print(error)
"""


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("framework", ["django", "fastapi", "flask"])
def test_a_missing_framework_is_named_with_the_line_that_installs_it(framework: str) -> None:
    said = run_python(WITHOUT.format(framework=framework))
    assert f"needs the package {framework!r}, which is not installed" in said
    assert f"pip install 'holdfast[{framework}]'" in said


def test_an_app_and_the_command_line_load_no_framework() -> None:
    code = (
        "import sys, holdfast, holdfast.app, holdfast.cli.commands, holdfast.cli.worker, holdfast.cli.working\n"
        "holdfast.Holdfast('memory://')\n"
        f"print([name for name in {FRAMEWORKS} if name in sys.modules])"
    )
    assert run_python(code) == "[]"


SESSION = """
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from holdfast import Holdfast
app = Holdfast("sqlite:///jobs.db")
@app.task()
def mail() -> None: ...
app.stats_sync()
with Session(create_engine("sqlite:///jobs.db")) as session:
    mail.options(conn=session).enqueue_sync()
    print(app.stats_sync()["live"])
    session.commit()
print(app.stats_sync()["live"])
app.close_sync()
"""

ASYNC_SESSION = """
import asyncio
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from holdfast import Holdfast
app = Holdfast("sqlite:///jobs.db")
@app.task()
async def mail() -> None: ...
async def main():
    await app.stats()
    engine = create_async_engine("sqlite+aiosqlite:///jobs.db")
    async with AsyncSession(engine) as session:
        await mail.options(conn=session).enqueue()
        print((await app.stats())["live"])
        await session.commit()
    print((await app.stats())["live"])
    await engine.dispose()
    await app.close()
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("code", "installed"),
    [
        ((ROOT / "examples/transaction_sqlite3.py").read_text(), []),
        (SESSION, ["sqlalchemy"]),
        (ASYNC_SESSION, ["sqlalchemy[asyncio]", "aiosqlite"]),
    ],
    ids=["sqlite3", "session", "async-session"],
)
def test_a_transaction_on_sqlite_needs_no_driver_but_its_own(tmp_path: Path, code: str, installed: list[str]) -> None:
    hidden = hide(tmp_path / "hidden", [Requirement(one) for one in ["holdfast", *installed]])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ | hidden, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == (["0", "1"] if installed else ["orders: 1", "job: ready of 1"])
