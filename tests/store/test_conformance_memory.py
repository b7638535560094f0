"""The memory store keeps every promise of the port. It lives in one process, so the process suite is not for it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from holdfast.store.conformance import Harness, StoreConformance
from holdfast.store.memory import MemoryData, MemoryStore
from tests.support.lots import Drawing, Steady

if TYPE_CHECKING:
    from holdfast.core.environment import Environment


class MemoryHarness(Harness):
    """Handles that share one set of dictionaries."""

    def __init__(self) -> None:
        self.data = MemoryData()
        self.joined = 0

    async def clean(self) -> None:
        self.data = MemoryData()

    async def join(self) -> MemoryStore:
        self.joined += 1
        return await self.open(Drawing(self.joined))

    async def open(self, environment: Environment | None = None) -> MemoryStore:
        store = MemoryStore(environment or Steady(), self.data)
        await store.open()
        return store


def test_no_test_of_the_suite_hides_another() -> None:
    names = Counter(name for subject in StoreConformance.__mro__ for name in vars(subject) if name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()
