"""Contestants are watched by one rule, and do what they are asked by the function of that name."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import benchmarks

if TYPE_CHECKING:
    import argparse

FOLDER = Path(str(benchmarks.__file__)).parent / "contestants"


@pytest.fixture
def protocol() -> ModuleType:
    """The module that stands alone, for one test."""
    spec = importlib.util.spec_from_file_location("contest_protocol", FOLDER / "protocol.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Store:
    """Finishes a thousand jobs a second, by a clock that moves only while somebody waits; a look takes so long."""

    def __init__(self, look: float) -> None:
        self.now = 0.0
        self.looks = 0
        self._look = look

    async def finished(self) -> int:
        self.now += self._look
        self.looks += 1
        return round(self.now * 1000)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("look", "interval"), [(0.001, "51 ms"), (0.02, "620 ms")])
async def test_a_watcher_that_counts_rests_thirty_times_as_long_as_a_look_takes_and_says_how_often_it_counted(
    protocol: Any, look: float, interval: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(look)
    protocol.time = SimpleNamespace(monotonic=lambda: store.now)
    protocol.asyncio = SimpleNamespace(sleep=store.sleep)
    await protocol.watched(store.finished, 100_000, 5_000)
    answer = json.loads(capsys.readouterr().out)
    assert answer["how"] == f"counted every {interval}"
    assert answer["jobs"] / answer["seconds"] == pytest.approx(1000)
    assert store.looks * look < store.now / 15


def test_who_need_not_count_looks_less_often_and_rests_by_the_same_rule(protocol: Any) -> None:
    assert [protocol.rest(took) for took in (0.0, 0.001, 0.1)] == [0.2, 0.2, 3.0]


@pytest.mark.parametrize("asked", ["prepare", "bulk"])
def test_the_function_of_the_name_that_is_asked_for_does_it_async_or_not(
    protocol: Any, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []

    async def prepare(given: argparse.Namespace) -> None:
        done.append(("prepare", given.url))

    def bulk(given: argparse.Namespace) -> None:
        done.append(("bulk", given.url))

    monkeypatch.setattr("sys.argv", ["program", asked, "--url", "nowhere://"])
    monkeypatch.setattr(protocol, "logging", SimpleNamespace(disable=print, WARNING=0))
    protocol.run((prepare, bulk))
    assert done == [(asked, "nowhere://")]
