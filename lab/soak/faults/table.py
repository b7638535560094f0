"""The faults: each with its name, its rows of the catalogue, and how it is brought about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.soak.faults import file, handlers, processes, server, way
from lab.soak.faults.kind import Fault
from lab.soak.needs import CLOCK, DISK, NETWORK, POOLER

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

POSTGRES: Final = ("postgres",)
SQLITE: Final = ("sqlite",)

FAULTS: Final = (
    Fault("kill a worker", "1 2 3", 12, processes.kill_worker),
    Fault("kill half of the workers", "1", 3, processes.kill_several),
    Fault("kill a producer", "11", 5, processes.kill_producer, free=True),
    Fault("freeze a worker", "5 10", 10, processes.freeze_worker),
    Fault("ask a worker to stop", "41", 6, processes.stop_worker, free=True),
    Fault("ask a worker to stop twice", "41", 4, processes.stop_worker_twice, free=True),
    Fault("kill a child of a worker", "30", 3, processes.kill_child, free=True),
    Fault("a job that kills its worker", "30", 3, handlers.poison),
    Fault("a handler blocks the event loop", "6", 4, handlers.block, free=True),
    Fault("a handler holds the interpreter", "6", 3, handlers.hog),
    Fault("an old snapshot is held", "23", 3, server.pin, free=True, mild=True),
    Fault("cut all connections of a process", "14", 6, way.cut, POSTGRES, free=True),
    Fault("connections fall silent", "13 17", 6, way.fall_silent, POSTGRES),
    Fault("a machine is cut off from the network", "14", 4, way.cut_off, POSTGRES, needs=NETWORK),
    Fault("every fifth packet is lost", "14", 4, way.lose_packets, POSTGRES, needs=NETWORK),
    Fault("everything takes longer", "13", 5, way.delay, POSTGRES),
    Fault("outcomes come after their worker's death", "2 5", 4, way.deliver_late, POSTGRES),
    Fault("the pooler hangs up on its worker", "16", 4, way.restart_pooler, POSTGRES, free=True, needs=POOLER),
    Fault("the clock of a worker steps", "19", 4, processes.step_clock, POSTGRES, free=True, mild=True, needs=CLOCK),
    Fault("lose the answer to a commit", "11", 6, way.lose_commit, POSTGRES, free=True),
    Fault("lose the answer to outcomes", "11", 4, way.lose_settlement, POSTGRES, free=True),
    Fault("lose the answer to a claim", "11", 4, way.lose_claim, POSTGRES, free=True),
    Fault("lose the answer to an enqueue", "11", 4, way.lose_enqueue, POSTGRES, free=True),
    Fault("crash of the server, up at once", "11", 5, server.restart, POSTGRES, free=True),
    Fault("the server is away for two leases", "11b", 2, server.away, POSTGRES, free=True),
    Fault("a standby takes over", "12", 3, server.promote, POSTGRES, free=True),
    Fault("end sessions at random", "11", 5, server.terminate, POSTGRES, free=True),
    Fault("cancel statements at random", "26", 5, server.cancel_statements, POSTGRES, free=True),
    Fault("end every session that listens", "17", 4, server.deafen, POSTGRES, free=True, mild=True),
    Fault("a lock stops all outcomes", "9 24", 3, server.lock, POSTGRES),
    Fault("leases are locked in the wrong order", "24", 4, server.deadlock, POSTGRES),
    Fault("somebody else writes for long", "27", 8, file.long_write, SQLITE),
    Fault("kill a process inside a write", "27", 10, file.kill_writer, SQLITE),
    Fault("the disk is full", "25", 6, file.fill_disk, SQLITE, free=True, needs=DISK),
)
"""All of them."""
FREE: Final = frozenset(fault.name for fault in FAULTS if fault.free)
MILD: Final = frozenset(fault.name for fault in FAULTS if fault.mild)


def _in_order(row: str) -> tuple[int, str]:
    return int(row.rstrip("b")), row


IN_ORDER: Final = tuple(sorted(FAULTS, key=lambda fault: [_in_order(row) for row in fault.rows.split()]))
"""By their rows."""


def possible(store: str, rows: str | None) -> list[Fault]:
    """Return the faults that a store can suffer, optionally those of some rows; raises `ValueError` for a row without one."""
    suffered = [fault for fault in FAULTS if store in fault.stores]
    if rows is None:
        return suffered
    wanted = [row.strip() for row in rows.split(",")]
    known = {row for fault in suffered for row in fault.rows.split()}
    if unknown := [row for row in wanted if row not in known]:
        there = ", ".join(sorted(known, key=_in_order))
        raise ValueError(f"no fault of row {', '.join(unknown)} on {store}; there are {there}")
    return [fault for fault in suffered if set(wanted) & set(fault.rows.split())]


def chosen(faults: Sequence[Fault], rng: random.Random) -> Fault:
    """Draw one."""
    return rng.choices(faults, [fault.weight for fault in faults])[0]
