"""The states of videos and of their versions, and every move between them, as data.

A **video** is what people see. A **version** is one transcode of it: the first one, and one more for each re-transcode. A video
plays its *published* version; another one that is being made does not disturb it. So a video that has a published version stays
`ready` whatever becomes of the next one.

Every move is one guarded `UPDATE` (`moves.py`), and happens in the transaction that is named here: nothing else writes a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class VideoState(StrEnum):
    """Where a video stands."""

    PENDING = "pending"
    """Added, and nobody works on it yet."""
    PROCESSING = "processing"
    """It is being transcoded, and there is nothing published yet."""
    READY = "ready"
    """It plays: a version is published."""
    FAILED = "failed"
    """There is nothing to play, and nothing is being done about it."""


class VersionState(StrEnum):
    """Where one transcode of a video stands."""

    PENDING = "pending"
    """Asked for; its first job waits."""
    PROCESSING = "processing"
    """Its jobs run."""
    READY = "ready"
    """Published: it is what the video plays."""
    FAILED = "failed"
    """It ended without a result; `error` says why. May be retried."""
    CANCELED = "canceled"
    """Given up: the video was deleted, or another version was asked for instead."""
    REPLACED = "replaced"
    """It was published, and a newer one has taken its place. Its files go after a while."""


class QualityState(StrEnum):
    """Where one quality of a version stands."""

    PENDING = "pending"
    READY = "ready"
    """Packaged: it can be played."""
    FAILED = "failed"


class Event(StrEnum):
    """What moves them."""

    ADD = "add"
    START = "start"
    PUBLISH = "publish"
    FAIL = "fail"
    RETRY = "retry"
    RETRANSCODE = "retranscode"
    CANCEL = "cancel"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Move:
    """One line of the table: what happens, from where, to where, and in whose transaction."""

    event: Event
    sources: frozenset[str]
    """The states it is allowed in; empty: there was nothing before."""
    target: str
    within: str
    """The transaction that it happens in."""


def _move(event: Event, sources: tuple[str, ...], target: str, within: str) -> Move:
    return Move(event, frozenset(sources), target, within)


_ASKED: Final = "that of whoever asks, with the enqueue of the first job"
_SWEEP: Final = (
    "that which fails `prepare` or `finalize`, or completes `finalize` where that decides so; else that of the sweep"
)

VERSION_MOVES: Final = (
    _move(Event.ADD, (), VersionState.PENDING, _ASKED),
    _move(Event.RETRANSCODE, (), VersionState.PENDING, _ASKED),
    _move(Event.START, (VersionState.PENDING,), VersionState.PROCESSING, "a fenced one of `prepare`"),
    _move(
        Event.PUBLISH,
        (VersionState.PROCESSING,),
        VersionState.READY,
        "that which completes `finalize`",
    ),
    _move(Event.FAIL, (VersionState.PENDING, VersionState.PROCESSING), VersionState.FAILED, _SWEEP),
    _move(Event.RETRY, (VersionState.FAILED,), VersionState.PENDING, _ASKED),
    _move(
        Event.CANCEL,
        (VersionState.PENDING, VersionState.PROCESSING),
        VersionState.CANCELED,
        "that of whoever deletes the video, or asks for another version instead",
    ),
    _move(
        Event.REPLACE,
        (VersionState.READY,),
        VersionState.REPLACED,
        "that which completes `finalize` of the newer one",
    ),
)
"""Every move of a version."""

VIDEO_MOVES: Final = (
    _move(Event.ADD, (), VideoState.PENDING, _ASKED),
    _move(Event.START, (VideoState.PENDING,), VideoState.PROCESSING, "a fenced one of `prepare`"),
    _move(Event.START, (VideoState.READY,), VideoState.READY, "a fenced one of `prepare`"),
    _move(
        Event.PUBLISH,
        (VideoState.PROCESSING, VideoState.READY),
        VideoState.READY,
        "that which completes `finalize`",
    ),
    _move(Event.FAIL, (VideoState.PENDING, VideoState.PROCESSING), VideoState.FAILED, _SWEEP),
    _move(Event.FAIL, (VideoState.READY,), VideoState.READY, _SWEEP),
    _move(Event.RETRY, (VideoState.FAILED,), VideoState.PENDING, _ASKED),
    _move(Event.RETRY, (VideoState.READY,), VideoState.READY, _ASKED),
    _move(
        Event.RETRANSCODE,
        (VideoState.FAILED, VideoState.PENDING, VideoState.PROCESSING),
        VideoState.PENDING,
        _ASKED,
    ),
    _move(Event.RETRANSCODE, (VideoState.READY,), VideoState.READY, _ASKED),
)
"""Every move of a video. Deleting is no state but a mark: a deleted video moves no more."""

ACTIVE: Final = frozenset({VersionState.PENDING, VersionState.PROCESSING})
"""A version that somebody works on, or will. A video has one at most: the database sees to that."""


def version_move(event: Event) -> Move:
    """Return the move of a version that an event makes."""
    return next(move for move in VERSION_MOVES if move.event is event)


def video_moves(event: Event) -> tuple[Move, ...]:
    """Return the moves of a video that an event makes, by the state it is in."""
    return tuple(move for move in VIDEO_MOVES if move.event is event)
