"""What an attempt is handed before its handler begins: what earlier attempts left, and what the job waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.tasks.sealing import Purpose
from holdfast.tasks.steps import open_waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.lease import Claimed
    from holdfast.store.port import BlockerView, Part, Store
    from holdfast.tasks.sealing import Sealer


@dataclass(frozen=True, slots=True)
class Recalled:
    """What is read for an attempt. Nothing is, for the first attempt at a job that waited for nothing."""

    parts: Mapping[str, Part] = field(default_factory=dict)
    """Written by earlier attempts."""
    blockers: Sequence[BlockerView] = ()
    """The chains it waited for."""
    signals: Mapping[str, str] = field(default_factory=dict)
    """What the signals carried that it was suspended for and that have come."""


NOTHING: Final = Recalled()


async def recalled(store: Store, claimed: Claimed) -> Recalled:
    """Read what an attempt needs. Raises as the store does."""
    parts = {part.name: part for part in await store.parts(claimed.job_id)} if claimed.attempt > 1 else {}
    signals = open_waits(parts)
    return Recalled(
        parts=parts,
        blockers=await store.blockers(claimed.job_id) if claimed.blockers else (),
        signals=await store.signals(signals) if signals else {},
    )


def opened(sealer: Sealer, memory: Recalled, task: str) -> Recalled:
    """Return it as the job of a task sees it, where its app encrypts. Raises `SealError`."""
    return Recalled(
        parts=sealer.opened_parts(memory.parts, task),
        blockers=[
            view
            if view.result is None
            else msgspec.structs.replace(view, result=sealer.open(view.result, Purpose.RESULT, view.step_task))
            for view in memory.blockers
        ],
        signals={name: sealer.open(text, Purpose.SIGNAL) for name, text in memory.signals.items()},
    )
