"""Which rungs a source can give, and in which size."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from holdfast_media.ladder.rungs import Rendition

if TYPE_CHECKING:
    from holdfast_media.ladder.rungs import Ladder, Rung
    from holdfast_media.source.facts import Facts

_WIDE: Final = Fraction(16, 9)
_NEAR: Final = 2
"""Pixels by which a source may miss the box of a rung: it is what the rung means, and scaling would only blur it."""
_LEAST_KBPS: Final = 64


def choose(facts: Facts, ladder: Ladder) -> tuple[Rendition, ...]:
    """Return the renditions at or below the source, the highest first: never larger than it, sides even.

    A rung is a box of 16:9, on its side for portrait, that the picture is fitted into: so a film wider than that fills the
    width of the box, and `height` is the short side for all others. A source that is two pixels larger or smaller than the box
    is left in its own size. A source below the lowest rung gives one rendition in its
    own size, so there is always at least one; a source with sound alone gives none.
    """
    if facts.video is None:
        return ()
    width, height = facts.video.width, facts.video.height
    long, short = max(width, height), min(width, height)
    chosen: list[Rendition] = []
    for rung in ladder.rungs:
        wide = _width(rung)
        if short < rung.height - _NEAR and long < wide - _NEAR:
            continue
        near = short <= rung.height + _NEAR and long <= wide + _NEAR
        scale = Fraction(1) if near else min(Fraction(1), Fraction(rung.height, short), Fraction(wide, long))
        size = (_even(width * scale), _even(height * scale))
        if any((one.width, one.height) == size for one in chosen) and not rung.required:
            continue
        chosen.append(_rendition(rung, rung.name, size, rung.video_kbps))
    if chosen:
        return tuple(chosen)
    lowest = ladder.rungs[-1]
    share = Fraction(width * height, lowest.height * _width(lowest))
    kbps = max(_LEAST_KBPS, min(lowest.video_kbps, round(lowest.video_kbps * share)))
    return (_rendition(lowest, f"{_even(short)}p", (_even(width), _even(height)), kbps),)


def _width(rung: Rung) -> int:
    """Return the long side of its box: even, and rounded up. 480 lines are 854 wide, as everybody makes them."""
    return 2 * math.ceil(rung.height * _WIDE / 2)


def _even(side: int | Fraction) -> int:
    """Return the side as 4:2:0 needs it: even, rounded down so as not to exceed the source, and at least 2."""
    return max(2, round(side) // 2 * 2)


def _rendition(rung: Rung, name: str, size: tuple[int, int], kbps: int) -> Rendition:
    return Rendition(
        name=name,
        width=size[0],
        height=size[1],
        video_kbps=kbps,
        audio_kbps=rung.audio_kbps,
        required=rung.required,
        crf=rung.crf,
        preset=rung.preset,
        time_factor=rung.time_factor,
    )
