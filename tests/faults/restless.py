"""A worker process whose reaper hardly rests, so that it looks in the midst of any fault: `python -m tests.faults.restless`."""

from __future__ import annotations

from holdfast.runtime.housekeeping import Reaper
from tests.faults.work import main

INTERVAL = 0.2
"""Seconds between two looks; 5 otherwise."""

if __name__ == "__main__":
    Reaper.interval = INTERVAL
    main()
