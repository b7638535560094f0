"""A worker process that gets only so much memory, and so does each child of it: `python -m tests.faults.rationed`."""

from __future__ import annotations

import resource

from tests.faults.work import main

RATION = 2 * 2**30
"""Bytes of addresses: what is not touched is not taken from the machine."""

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (RATION, RATION))
    main()
