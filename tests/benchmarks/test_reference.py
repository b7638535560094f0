"""The yardstick stays as it is: benchmarks/reference/README.md says when it may change."""

from __future__ import annotations

import hashlib
from pathlib import Path

from benchmarks import results

REFERENCE = Path(results.__file__).parent / "reference"
FROZEN = {
    "claim_settle.sql": "66d74ee716179bba82735d15893b3c4375d5d4636b27d71feee7277352bd1c26",
    "schema.sql": "20666b81f13a14a5b84f111d2f38e5dbf4c3d1a2064bdc2d995b08b6f43e4c81",
}


def test_the_reference_is_frozen() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in REFERENCE.glob("*.sql")}
    assert found == FROZEN, "only to make it faster at the same work, told in the changelog, and everything measured anew"
