"""Deliberate bugs of the protocol, each put in by replacing a function or a statement: the simulation must find every one.

Nothing of this is a switch in the product. A mutant that is not found means that the checker looks away.
"""

from __future__ import annotations

from tests.lab.mutants.ends import ENDS
from tests.lab.mutants.fences import FENCES
from tests.lab.mutants.lapses import LAPSES
from tests.lab.mutants.mutant import Mutant
from tests.lab.mutants.sqlite import ON_SQLITE
from tests.lab.mutants.turns import TURNS
from tests.lab.mutants.workers import WORKERS

__all__ = ["MUTANTS", "Mutant"]

MUTANTS = (*FENCES, *LAPSES, *ENDS, *TURNS, *WORKERS, *ON_SQLITE)
