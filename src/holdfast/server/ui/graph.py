"""A chain as a picture: its steps from left to right, and above each the chains it waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from holdfast.store.port import BlockerView, JobView

WIDTH: Final = 188
HEIGHT: Final = 58
GAP_X: Final = 44
GAP_Y: Final = 26
EDGE: Final = 12
LETTERS: Final = 24
"""Characters of a name that a box has room for."""
MOST_BLOCKERS: Final = 4
"""Above one step; the rest is one box that says how many."""


@dataclass(frozen=True, slots=True)
class Box:
    """A step or a blocker."""

    x: int
    y: int
    name: str
    whole: str
    state: str
    note: str
    href: str
    blocker: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes, and the lines between them."""

    width: int
    height: int
    boxes: list[Box] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """Paths in the language of SVG."""


def graph(steps: Sequence[JobView], blockers: Mapping[UUID, Sequence[BlockerView]]) -> Graph:
    """Lay out a chain."""
    rows = max((min(len(found), MOST_BLOCKERS + 1) for found in blockers.values()), default=0)
    base = EDGE + rows * (HEIGHT + GAP_Y)
    drawn = Graph(
        width=2 * EDGE + max(1, len(steps)) * (WIDTH + GAP_X) - GAP_X,
        height=base + HEIGHT + EDGE,
    )
    for index, step in enumerate(steps):
        x = EDGE + index * (WIDTH + GAP_X)
        if index:
            middle = base + HEIGHT // 2
            drawn.lines.append(f"M{x - GAP_X} {middle}H{x - 7}")
        _above(drawn, blockers.get(step.id, ()), x, base)
        drawn.boxes.append(Box(x, base, cut(step.task), step.task, step.shown, step.id.hex[-6:], f"/jobs/{step.id}"))
    return drawn


def _above(drawn: Graph, found: Sequence[BlockerView], x: int, base: int) -> None:
    shown = list(found[:MOST_BLOCKERS])
    for place, one in enumerate(shown):
        y = base - (place + 1) * (HEIGHT + GAP_Y)
        side = x + 20 + 20 * place
        drawn.lines.append(f"M{side} {y + HEIGHT}V{base - 7}")
        name = one.task or "gone"
        state = "gone" if one.state is None else str(one.state)
        drawn.boxes.append(Box(x, y, cut(name), name, state, one.chain_id.hex[-6:], f"/chains/{one.chain_id}", blocker=True))
    if rest := len(found) - len(shown):
        y = base - (len(shown) + 1) * (HEIGHT + GAP_Y)
        drawn.boxes.append(Box(x, y, f"{rest} more", f"{rest} more chains", "blocked", "see the job", "", blocker=True))


def cut(text: str) -> str:
    """Return what a box has room for."""
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
