"""`holdfast bench` measures what it says, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.postgres import PostgresServers

RATES = {"enqueue_single", "enqueue_concurrent", "enqueue_bulk", "drain", "drain_lowest", "drain_highest"}
LATENCIES = {"start_p50_ms", "start_p99_ms"}


def bench(*arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "bench", "--jobs", "1000", "--rounds", "1", "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    figures: dict[str, object] = json.loads(done.stdout)
    return figures


def check(figures: dict[str, object]) -> None:
    assert set(figures) >= RATES | LATENCIES
    for name in RATES | LATENCIES:
        value = figures[name]
        assert isinstance(value, float)
        assert value > 0, name


def test_it_measures_a_file_of_its_own_and_removes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    check(bench())
    assert list(tmp_path.iterdir()) == []


def test_it_measures_a_schema_of_its_own_and_drops_it(postgres_servers: PostgresServers) -> None:
    server = postgres_servers[18]
    url = server.create_database()
    check(bench("--url", url))
    left = server.execute("SELECT 1 FROM pg_stat_activity WHERE datname = $1", url.rpartition("/")[2])
    assert not left
    server.drop_database(url)


@pytest.mark.slow
def test_one_process_drains_fifteen_thousand_jobs_a_second_on_postgresql(postgres_servers: PostgresServers) -> None:
    server = postgres_servers[18]
    url = server.create_database()
    figures = bench("--url", url, "--jobs", "20000", "--rounds", "3")
    server.drop_database(url)
    drained = figures["drain_highest"]
    assert isinstance(drained, float)
    assert drained >= 15_000


def test_too_few_jobs_to_measure_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "bench", "--jobs", "10"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert "--jobs must be 1000 or more" in done.stderr
    assert "Traceback" not in done.stderr
