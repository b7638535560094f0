"""Being woken by writes to a file: at once where the system tells of them, never wrongly stopped, and nothing left open."""

from __future__ import annotations

import errno
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.notify import bell
from holdfast.notify.bell import Bell, Silent, stop_or_write

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = 30.0
"""Seconds: a rest that nobody has ended when it is over."""
SHORTEST = 0.005

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db-wal"
    path.write_bytes(b"begun")
    return path


@pytest.fixture
def ringing(path: Path) -> Iterator[Bell]:
    ringing = Bell(str(path), SHORTEST)
    yield ringing
    ringing.close()


def seconds_of(rest: Bell, seconds: float) -> tuple[bool, float]:
    begun = time.monotonic()
    return rest.wait(seconds), time.monotonic() - begun


def write(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def descriptors() -> set[str]:
    return {descriptor.name for descriptor in Path("/proc/self/fd").iterdir()}


def settle(ringing: Bell) -> None:
    """Rest as after a look that has found something."""
    ringing.wait(SHORTEST)


def test_a_write_ends_a_rest_and_is_no_reason_to_stop(ringing: Bell, path: Path) -> None:
    threading.Timer(0.1, write, [path]).start()
    stop, took = seconds_of(ringing, LONG)
    assert not stop
    assert took < LONG


def test_a_write_between_two_rests_is_not_missed(ringing: Bell, path: Path) -> None:
    ringing.wait(2 * SHORTEST)
    write(path)
    settle(ringing)
    assert seconds_of(ringing, LONG)[1] < LONG


def test_the_rests_after_a_write_are_short_until_something_is_found(ringing: Bell, path: Path) -> None:
    ringing.wait(2 * SHORTEST)
    write(path)
    rests = [seconds_of(ringing, LONG)[1] for _ in range(4)]
    assert max(rests) < LONG
    settle(ringing)
    assert not ringing.wait(0.05)


def test_a_file_that_is_made_anew_is_heard_too(ringing: Bell, path: Path) -> None:
    path.unlink()
    assert not ringing.wait(2 * SHORTEST)  # nothing to listen to is no trouble
    path.write_bytes(b"")
    settle(ringing)
    threading.Timer(0.1, write, [path]).start()
    assert seconds_of(ringing, LONG)[1] < LONG


def test_being_told_to_stop_ends_every_rest(ringing: Bell) -> None:
    threading.Timer(0.1, ringing.set).start()
    assert seconds_of(ringing, LONG)[0]
    ringing.set()
    for rest in (SHORTEST, LONG, LONG):
        stop, took = seconds_of(ringing, rest)
        assert stop
        assert took < LONG


def test_nothing_stays_open(path: Path) -> None:
    before = descriptors()
    ringing = Bell(str(path), SHORTEST)
    ringing.close()
    ringing.close()
    assert descriptors() == before


def test_where_nobody_tells_of_writes_rests_end_when_they_are_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(bell, "_inotify", none_left)
    stop = stop_or_write(str(path), SHORTEST)
    assert isinstance(stop, Silent)
    write(path)
    assert not stop.wait(SHORTEST)
    stop.set()
    assert stop.wait(LONG)
    stop.close()
