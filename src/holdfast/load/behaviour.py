"""What a kind of work does for one input: the same on every attempt, machine and version of Python.

Everything is drawn from a hash of seed, kind and input, by whole numbers and correctly rounded decimals: there is no state, and
nothing that a platform's mathematics library could round in its own way.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, pairwise
from math import ceil
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.load.catalog import MILLION, Catalog, Fixed, HeavyTail, Kind, Uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.load.catalog import Duration

T = TypeVar("T")

SALT: Final = "holdfast.load.1"
WHOLE: Final = 2**64
PARTS: Final = 12
"""How many uniform numbers are added up for one that is as good as normal."""
NINETY_NINE: Final = Decimal("2.302227541983786")
"""What one in a hundred of those sums exceeds, in standard deviations."""
EXACT: Final = Context(prec=28)


class Outcome(StrEnum):
    """What becomes of a job."""

    SUCCESS = "success"
    FAIL = "fail"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Step:
    """A moment at which progress is told."""

    seconds: float
    """After the one before."""
    percent: float
    message: str


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What is done for one input."""

    seconds: float
    outcome: Outcome
    message: str
    """The last thing that is said: the result, or why there is none."""
    steps: tuple[Step, ...]


def behave(kind: Kind, item: str, seed: int) -> Behaviour:
    """Return what a kind does for an input."""
    digest = _digest(seed, kind.name, item)
    length = _length(kind.duration, digest)
    outcome = _chosen(
        int.from_bytes(digest[:8], "big"),
        [(Outcome.SUCCESS, kind.success), (Outcome.FAIL, kind.fail), (Outcome.CANCEL, kind.cancel)],
    )
    said = {Outcome.SUCCESS: "done", Outcome.FAIL: "fails, as its catalog says", Outcome.CANCEL: "is called off"}[outcome]
    marks = [length * number // kind.steps for number in range(kind.steps + 1)] if kind.steps else []
    steps = tuple(
        Step((after - before) / MILLION, round(100 * number / kind.steps, 2), f"{kind.name} {item}: {number} of {kind.steps}")
        for number, (before, after) in enumerate(pairwise(marks), start=1)
    )
    return Behaviour(length / MILLION, outcome, f"{kind.name} {item} {said}", steps)


def kind_of(catalog: Catalog, number: int, seed: int) -> Kind:
    """Return the kind of the job with this number in a load: by weight, and the same whenever it is asked."""
    drawn = int.from_bytes(_digest(seed, "", str(number))[:8], "big")
    return _chosen(drawn, [(kind, kind.weight) for kind in catalog.kinds.values()])


def _digest(*words: object) -> bytes:
    return blake2b("\0".join((SALT, *map(str, words))).encode("utf-8", "surrogatepass")).digest()


def _chosen(drawn: int, shares: Sequence[tuple[T, float]]) -> T:
    """Return what 64 random bits fall on, among things with shares."""
    return shares[bisect_right(_bounds(tuple(share for _, share in shares)), drawn)][0]


@lru_cache(maxsize=1000)
def _bounds(shares: tuple[float, ...]) -> tuple[int, ...]:
    """Return the first number that is no longer of each share, of all that 64 bits can say. What has no share has no number."""
    exact = [Fraction(str(share)) for share in shares]
    return tuple(ceil(part * WHOLE / sum(exact)) for part in accumulate(exact))


def _length(duration: Duration, digest: bytes) -> int:
    """Return how many microseconds it takes."""
    match duration:
        case Fixed():
            return duration.exactly
        case Uniform():
            return duration.least + (duration.most - duration.least) * int.from_bytes(digest[8:16], "big") // WHOLE
        case HeavyTail():
            drawn = sum(int.from_bytes(digest[at : at + 4], "big") for at in range(16, 16 + 4 * PARTS, 4))
            deviations = EXACT.subtract(EXACT.divide(Decimal(drawn), Decimal(2**32)), Decimal(PARTS // 2))
            spread = EXACT.divide(EXACT.ln(EXACT.divide(Decimal(duration.p99), Decimal(duration.median))), NINETY_NINE)
            factor = EXACT.exp(EXACT.multiply(spread, deviations))
            return min(duration.most, int(EXACT.multiply(Decimal(duration.median), factor)))
