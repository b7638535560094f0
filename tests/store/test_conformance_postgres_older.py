"""The PostgreSQL store on the older major version: every promise whose statements could come out differently there.

That is what decides by locks, by what a statement sees of others, by the order of rows or by a plan: claiming, settling and
every other event in every state that allows it, fencing, keys, budgets, limits, chains and those who wait for them,
transactions, walks, and several processes at once. Together they send every statement that the whole suite writes with; what
only reads (lists, figures) runs on this version with `--slow`, as all of the suite does (test_conformance_postgres.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from holdfast.core.states import TRANSITIONS, Event, State
from holdfast.store.conformance import ProcessConformance
from holdfast.store.conformance.budgets import Budgets
from holdfast.store.conformance.cells import CELLS, Cells
from holdfast.store.conformance.chains import Chains
from holdfast.store.conformance.expiry import Expiry
from holdfast.store.conformance.fencing import Fencing
from holdfast.store.conformance.limits import Limits
from holdfast.store.conformance.order import Order
from holdfast.store.conformance.schedule import Schedule
from holdfast.store.conformance.transactions import Transactions
from holdfast.store.conformance.unique import UniqueKeys
from holdfast.store.conformance.waiters import Waiters
from holdfast.store.conformance.walk import Walks
from tests.store.test_conformance_postgres import PostgresHarness, broom, postgres_harness
from tests.support.postgres import MAJORS

if TYPE_CHECKING:
    from holdfast.store.conformance.world import World
    from tests.support.postgres import GivenServer, PostgresServer, PostgresServers

__all__ = ["broom", "postgres_harness"]
"""Fixtures that are the same for every version."""


@pytest.fixture(scope="module", params=MAJORS[:-1], ids=lambda major: f"pg{major}")
def postgres_server(request: pytest.FixtureRequest, postgres_servers: PostgresServers) -> PostgresServer | GivenServer:
    """A running server of each version but the newest."""
    return postgres_servers[request.param]


class TestOlderPostgresStore(
    Cells,
    Fencing,
    Order,
    Schedule,
    Expiry,
    UniqueKeys,
    Budgets,
    Waiters,
    Chains,
    Transactions,
    Limits,
    Walks,
):
    walk_examples: ClassVar[int] = 10

    # what is illegal sends the same statements, which find their guard unmet: that does not depend on the version
    @pytest.mark.parametrize(("state", "event"), [cell for cell in CELLS if cell in TRANSITIONS])
    async def test_cell_lands_as_tabled_or_changes_nothing(self, world: World, state: State | None, event: Event) -> None:
        await super().test_cell_lands_as_tabled_or_changes_nothing(world, state, event)

    @pytest.fixture
    def harness(self, postgres_harness: PostgresHarness) -> PostgresHarness:
        return postgres_harness


class TestOlderPostgresProcesses(ProcessConformance):
    processes: ClassVar[int] = 8
    jobs: ClassVar[int] = 8_000
    pairs: ClassVar[int] = 300

    @pytest.fixture
    def harness(self, postgres_harness: PostgresHarness) -> PostgresHarness:
        return postgres_harness
