"""What a worker does over HTTP keeps the promises of the port: the lease tests of the suite, against a real server."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast
from holdfast.store.conformance import Harness
from holdfast.store.conformance.budgets import Budgets
from holdfast.store.conformance.chains import Chains
from holdfast.store.conformance.expiry import Expiry
from holdfast.store.conformance.fencing import Fencing
from holdfast.store.conformance.journal import Journal
from holdfast.store.conformance.order import Order
from holdfast.store.conformance.records import Records
from holdfast.store.conformance.registry import Registry
from holdfast.store.conformance.repeats import Repeats
from holdfast.store.conformance.results import Results
from holdfast.store.conformance.signals import Signals
from holdfast.store.http import HttpStore
from holdfast.store.memory import MemoryData, MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.system import SystemEnvironment
from tests.server.served import SECRET, Served, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.store.port import Store

HOUSEKEEPING = {"promote", "reap", "drop_overdue", "mark_offline", "unblock", "prune"}
OVER_HTTP = {name for name in vars(HttpStore) if name[0] != "_"} - HOUSEKEEPING - {"open", "close", "begin"}


class Swapped:
    """The store of the server: another one for each test."""

    def __init__(self) -> None:
        self.current: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["current"], name)


class Beside:
    """A handle that does over HTTP what can be done so, and the rest on the store itself."""

    def __init__(self, http: HttpStore, direct: Store) -> None:
        self._http = http
        self._direct = direct

    def __getattr__(self, name: str) -> Any:
        return getattr(self._http if name in OVER_HTTP else self._direct, name)

    async def close(self) -> None:
        await self._http.close()
        await self._direct.close()


class HttpHarness(Harness):
    """One server for all tests of a module, over fresh data for each."""

    def __init__(self, served: Served, swapped: Swapped, fresh: Callable[[], Callable[[], Store]]) -> None:
        self._served = served
        self._swapped = swapped
        self._fresh = fresh
        self._make: Callable[[], Store] | None = None

    async def clean(self) -> None:
        make = self._make = self._fresh()

        async def swap() -> None:
            store = make()
            await store.open()
            old, self._swapped.current = self._swapped.current, store
            await old.close()

        self._served.run(swap())

    async def open(self) -> Any:
        assert self._make is not None
        direct = self._make()
        await direct.open()
        return Beside(HttpStore(self._served.url, SECRET, SystemEnvironment()), direct)


@contextmanager
def harness_over(fresh: Callable[[], Callable[[], Store]]) -> Iterator[HttpHarness]:
    app = Holdfast("memory://")
    swapped = Swapped()
    swapped.current = MemoryStore(SystemEnvironment())
    world = replace(app.world(), make_store=lambda: swapped)
    app.world = lambda *_: world  # type: ignore[method-assign]
    # the tests do the housekeeping, at the moments that they are about
    with serving(app, housekeeping=False, key_rate=1e6) as served:
        yield HttpHarness(served, swapped, fresh)


@pytest.fixture(scope="module")
def over_memory() -> Iterator[HttpHarness]:
    def fresh() -> Callable[[], Store]:
        data = MemoryData()
        return lambda: MemoryStore(SystemEnvironment(), data)

    with harness_over(fresh) as harness:
        yield harness


@pytest.fixture(scope="module")
def over_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpHarness]:
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path_factory.mktemp("jobs")
    with tempfile.TemporaryDirectory(dir=place, prefix="holdfast-") as folder:
        count = 0

        def fresh() -> Callable[[], Store]:
            nonlocal count
            count += 1
            path = str(Path(folder) / f"jobs-{count}.db")
            return lambda: SqliteStore(path, SystemEnvironment())

        with harness_over(fresh) as harness:
            yield harness


class Subjects(Fencing, Repeats, Registry, Journal, Records):
    """What is about leases. Left out: texts that are no JSON where JSON belongs, spaces around it, local workers."""

    test_parts_keep_hostile_text = None  # type: ignore[assignment]
    test_log_keeps_hostile_text = None  # type: ignore[assignment]
    test_hostile_text_of_a_worker_comes_back_as_it_went_in = None  # type: ignore[assignment]
    test_json_text_is_kept_letter_by_letter = None  # type: ignore[assignment]
    test_worker_registered_again_changes_what_it_says_of_itself = None  # type: ignore[assignment]


class TestOverMemory(Subjects, Order, Budgets, Expiry, Results, Chains, Signals):
    test_worker_is_shown_as_it_introduced_itself = None  # type: ignore[assignment]  # its owner is the key that it came with
    test_loop_of_many_steps_is_one_chain = None  # type: ignore[assignment]  # so many that it takes long

    @pytest.fixture
    def harness(self, over_memory: HttpHarness) -> HttpHarness:
        return over_memory


class TestOverSqlite(Fencing, Repeats):
    @pytest.fixture
    def harness(self, over_sqlite: HttpHarness) -> HttpHarness:
        return over_sqlite
