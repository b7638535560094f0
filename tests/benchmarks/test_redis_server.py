"""Which Redis is taken. That a server is gone with the process that started it is tested where all servers share it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import redis_server
from benchmarks.redis_server import MissingRedis, RedisServer
from tests.support.daemon import StartError

if TYPE_CHECKING:
    from pathlib import Path


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def answering(folder: Path, name: str, version: str) -> Path:
    return program(folder, name, f"echo '{name} server v={version} sha=00000000:0 bits=64'")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on PATH, and forget what was found before."""
    redis_server._find.cache_clear()
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def python(folder: Path, server: Path | None) -> Path:
    """Return what stands for an interpreter whose environment carries that server, or none."""
    return program(folder, "python", f"echo {server}" if server else "exit 1")


def test_a_server_on_path_is_taken_when_it_is_new_enough(tmp_path: Path, path: Path) -> None:
    program(path, "redis-server", "echo 'Redis server v=7.0.15 sha=0'")
    carried = answering(tmp_path, "Valkey", "9.1.2")
    assert RedisServer(python(tmp_path, carried)).version == "Redis 7.0.15"


def test_a_server_on_path_that_is_too_old_is_passed_over(tmp_path: Path, path: Path) -> None:
    program(path, "redis-server", "echo 'Redis server v=6.2.14 sha=0'")
    carried = answering(tmp_path, "Valkey", "9.1.2")
    assert RedisServer(python(tmp_path, carried)).version == "Valkey 9.1.2"


def test_a_missing_server_is_named_with_the_line_that_installs_it(tmp_path: Path, path: Path) -> None:
    with pytest.raises(MissingRedis, match=r"Redis 7 or newer not found: neither.*apt install redis-server"):
        RedisServer(python(tmp_path, None))


def test_one_that_is_too_old_is_named(tmp_path: Path, path: Path) -> None:
    program(path, "redis-server", "echo 'Redis server v=6.2.14 sha=0'")
    with pytest.raises(MissingRedis, match=r"found Redis 6\.2\.14, which is too old"):
        RedisServer(python(tmp_path, None))


def test_a_failed_start_shows_the_end_of_the_log(tmp_path: Path, path: Path) -> None:
    asked = 'case "$1" in --version) echo "Redis server v=7.0.0 sha=0";; *) echo "# no such luck"; exit 1;; esac'
    program(path, "redis-server", asked)
    with pytest.raises(StartError, match=r"Redis 7\.0\.0 did not start.*\n.*no such luck"):
        RedisServer(python(tmp_path, None)).start()
