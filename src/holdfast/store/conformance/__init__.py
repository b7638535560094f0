"""The conformance suite: what any store must do, as tests that an adapter's author runs against their own.

    import pytest
    from holdfast.store.conformance import Harness, StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def harness(self) -> Harness:
            return MyHarness()

Needs `pip install 'holdfast[testing]'`. docs/guides/test-an-adapter.md shows it from beginning to end.
"""

from __future__ import annotations

import pytest

_MODULES = """world cells fencing order schedule schedules expiry depth unique budgets waiters chains chainkeys results
chainlists chaindeletes signals transactions repeats steering records journal registry access
figures limits lists bounds walk processes"""
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _MODULES.split()))

# ruff: noqa: E402  asserts are rewritten only in modules that are registered before they are imported
from holdfast.store.conformance.access import Access
from holdfast.store.conformance.bounds import Bounds
from holdfast.store.conformance.budgets import Budgets
from holdfast.store.conformance.cells import Cells
from holdfast.store.conformance.chaindeletes import ChainDeletes
from holdfast.store.conformance.chainkeys import ChainKeys
from holdfast.store.conformance.chainlists import ChainLists
from holdfast.store.conformance.chains import Chains
from holdfast.store.conformance.depth import Depth
from holdfast.store.conformance.expiry import Expiry
from holdfast.store.conformance.fencing import Fencing
from holdfast.store.conformance.figures import Figures
from holdfast.store.conformance.harness import Harness
from holdfast.store.conformance.journal import Journal
from holdfast.store.conformance.limits import Limits
from holdfast.store.conformance.lists import Lists
from holdfast.store.conformance.order import Order
from holdfast.store.conformance.processes import ProcessConformance
from holdfast.store.conformance.records import Records
from holdfast.store.conformance.registry import Registry
from holdfast.store.conformance.repeats import Repeats
from holdfast.store.conformance.results import Results
from holdfast.store.conformance.schedule import Schedule
from holdfast.store.conformance.schedules import Schedules
from holdfast.store.conformance.signals import Signals
from holdfast.store.conformance.steering import Steering
from holdfast.store.conformance.transactions import Transactions
from holdfast.store.conformance.unique import UniqueKeys
from holdfast.store.conformance.waiters import Waiters
from holdfast.store.conformance.walk import Walks

__all__ = ["Harness", "ProcessConformance", "StoreConformance"]


class StoreConformance(
    Cells,
    Fencing,
    Order,
    Schedule,
    Schedules,
    Expiry,
    Depth,
    UniqueKeys,
    Budgets,
    Waiters,
    Chains,
    ChainKeys,
    Results,
    ChainLists,
    ChainDeletes,
    Signals,
    Transactions,
    Repeats,
    Steering,
    Records,
    Journal,
    Registry,
    Access,
    Figures,
    Limits,
    Lists,
    Bounds,
    Walks,
):
    """Everything a store promises within one process: a mixin for a test class with a `harness` fixture."""
