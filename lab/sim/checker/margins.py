"""How late what is promised may be, as requests and hints take their time."""

from __future__ import annotations

from typing import Final

from holdfast.core.states import Event

SCAN: Final = 5.0 * 1.1
"""Seconds between two looks of a reaper, at most."""
SWEEP: Final = 10.0 * 1.1
"""Seconds between two looks for jobs that have waited past their time, at most."""
REACTION: Final = 2.0
"""Seconds within which whoever is not frozen does what is due."""
PROMPT: Final = 0.5
"""Seconds after the end of a lease by which a handler has stopped that was asked to before: it has no reason to go on."""
GRACE: Final = 5.0
"""Seconds after its time-out by which the job of a handler that does not stop is settled without it."""
LATE_SLOT: Final = 12.0
"""Seconds after which a slot of the schedule must have been fired: everybody is back by then."""
FAILURES: Final = frozenset({Event.RETRY, Event.RETRY_LATER, Event.FAIL, Event.EXPIRE, Event.EXPIRE_LATER, Event.EXPIRE_FAIL})
"""What counts as a failure, unless it says that the worker was shutting down."""
