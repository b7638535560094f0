"""One file and many who write to it: some are killed inside a write, and somebody copies it meanwhile."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from holdfast.core.outcome import Succeeded
from holdfast.core.states import State
from holdfast.store.conformance.world import LEASE, World, ids, settlement_of
from holdfast.store.port import Settled
from tests.faults.racing import opened
from tests.faults.scribbler import TASK
from tests.faults.support import ROOT, WAIT, chance, until

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.row(27)

WRITERS = 8
USUAL = 3
"""Writers that are killed, one after the other; as many again come in their place."""
MANY = 20


@dataclass
class Desk:
    """A file, and the processes that write to it."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return str(self.folder / "jobs.db")

    def start(self, dies_at: int = 0) -> subprocess.Popen[bytes]:
        """Start a writer; one that dies does so inside its write of that number."""
        number = len(self.processes)
        command = [sys.executable, "-m", "tests.faults.scribbler", self.path, str(self._log(number)), str(self.folder / "stop")]
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        with (self.folder / f"errors-{number}").open("wb") as errors:
            process = subprocess.Popen(
                [*command, str(dies_at)], cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, stdout=errors, stderr=errors
            )
        self.processes.append(process)
        return process

    def all_begun(self) -> bool:
        return all(self._log(number).exists() for number in range(len(self.processes)))

    def told(self, word: str) -> set[UUID]:
        """Return the jobs of which the store has said so to anybody. The last line of one that was killed may be torn."""
        found = set()
        for number in range(len(self.processes)):
            if self._log(number).exists():
                lines = self._log(number).read_text().split("\n")[:-1]
                found |= {UUID(text) for line in lines if line.startswith(word) for text in line.split()[1:]}
        return found

    def stop(self) -> list[int]:
        """Have all end, and return how they did; show what they complained of."""
        (self.folder / "stop").touch()
        codes = [process.wait(WAIT) for process in self.processes]
        for number, code in enumerate(codes):
            print(f"-- writer {number}: exit code {code}\n{(self.folder / f'errors-{number}').read_text()}")  # noqa: T201
        return codes

    def _log(self, number: int) -> Path:
        return self.folder / f"told-{number}"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    for process in desk.processes:
        process.kill()
        process.wait()


def integrity(path: str) -> str:
    with closing(sqlite3.connect(path)) as file:
        return str(file.execute("PRAGMA integrity_check").fetchone()[0])


async def whole(world: World, enqueued: set[UUID], settled: set[UUID], luck: random.Random) -> None:
    """Check that nothing acknowledged is missing, that counts and logs agree, and that what is left can be worked off."""
    views = {view.id: view for view in await world.all_jobs(limit=1000)}
    assert enqueued <= set(views), f"{len(enqueued - set(views))} acknowledged jobs have vanished"
    unfinished = [job_id for job_id in settled if views[job_id].state is not State.SUCCEEDED]
    assert not unfinished, f"{len(unfinished)} acknowledged outcomes have vanished"
    await world.check_counts()
    for job_id in luck.sample(sorted(views), min(50, len(views))):
        assert await world.replayed(job_id) is views[job_id].state
    await world.lapse(2 * LEASE)
    while await world.store.reap(1000):
        pass
    while claims := await world.claim(500, tasks=[TASK]):
        answers = await world.store.settle([settlement_of(claim.lease, Succeeded()) for claim in claims])
        assert set(answers) == {Settled.APPLIED}
    assert Counter(await world.states(views)) == {State.SUCCEEDED: len(views)}


async def test_eight_writers_some_killed_inside_a_write_lose_nothing_that_was_acknowledged(
    desk: Desk, request: pytest.FixtureRequest
) -> None:
    luck = chance()
    deaths = MANY if request.config.getoption("--rows") else USUAL
    async with opened(f"sqlite:///{desk.path}") as world:
        for _ in range(WRITERS - 1):
            desk.start()
        for _ in range(deaths):
            assert desk.start(luck.randint(2, 40)).wait(WAIT) == -signal.SIGKILL
        desk.start()
        await until(desk.all_begun, "eight writers should write")
        codes = desk.stop()
        assert Counter(codes) == {0: WRITERS, -signal.SIGKILL: deaths}
        assert integrity(desk.path) == "ok"
        await whole(world, desk.told("enqueued"), desk.told("settled"), luck)
    assert integrity(desk.path) == "ok"


async def test_a_copy_made_as_documented_while_others_write_is_whole_and_apart(desk: Desk, tmp_path: Path) -> None:
    """As `sqlite3 jobs.db ".backup copy.db"` makes it."""
    luck = chance()
    copy = str(tmp_path / "copy.db")
    async with opened(f"sqlite:///{desk.path}") as world:
        for _ in range(2):
            desk.start()
        await until(lambda: len(desk.told("settled")) > 20, "two writers should write")
        enqueued, settled = desk.told("enqueued"), desk.told("settled")
        backed_up(desk.path, copy)
        desk.stop()
        assert integrity(copy) == "ok"
        async with opened(f"sqlite:///{copy}") as copied:
            await whole(copied, enqueued, settled, luck)
        # what was done in the copy was done there alone
        await whole(world, desk.told("enqueued"), desk.told("settled"), luck)
    assert integrity(desk.path) == "ok"


def backed_up(source: str, target: str) -> None:
    with closing(sqlite3.connect(source, timeout=60)) as file, closing(sqlite3.connect(target)) as copy:
        file.backup(copy)


async def test_a_copy_of_the_file_with_its_log_taken_while_nobody_writes_is_whole(tmp_path: Path) -> None:
    """As after a machine that stopped: the file, and beside it the log that nobody has brought back into it."""
    luck = chance()
    async with opened(f"sqlite:///{tmp_path}/jobs.db") as world:
        jobs = world.jobs(50, task=TASK)
        await world.enqueue(*jobs)
        claims = await world.claim(20, tasks=[TASK])
        await world.store.settle([settlement_of(claim.lease, Succeeded()) for claim in claims[:10]])
        copies = tmp_path / "copies"
        copies.mkdir()
        for suffix in ("", "-wal"):
            (copies / f"jobs.db{suffix}").write_bytes((tmp_path / f"jobs.db{suffix}").read_bytes())
        await world.enqueue(*world.jobs(5, task=TASK))
        async with opened(f"sqlite:///{copies}/jobs.db") as copied:
            assert (await copied.store.stats()).count(*State) == 50, "what came later is not in the copy"
            await whole(copied, set(ids(jobs)), set(ids(claims[:10])), luck)
        assert integrity(str(copies / "jobs.db")) == "ok"
        assert (await world.store.stats()).count(*State) == 55
