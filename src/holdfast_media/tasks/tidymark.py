"""The mark that a video is being tidied: `prepare` waits for it, so that it finds nothing there which is gone a moment later.

Written and read under the lock of the video's row. It holds for a while only: whoever is killed holds up nobody for long.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from holdfast_media.library.records import moment

if TYPE_CHECKING:
    from holdfast_media.library.statements import Statements

HOLDS: Final = 60.0
"""Seconds that a mark holds."""
RENEW: Final = 10.0
"""Seconds after which it is written again, by the clock that people have: a machine that slept for long finds out."""


async def put(on: Statements, video_id: str) -> None:
    """Say that a video is being tidied. The caller holds the lock of its row, and has seen that no version is active."""
    until = (datetime.now(UTC) + timedelta(seconds=HOLDS)).isoformat()
    await on.execute(
        "INSERT INTO media_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        *(_name(video_id), until),
    )


async def held(on: Statements, video_id: str) -> bool:
    """Tell whether a video is being tidied. The caller holds the lock of its row."""
    rows = await on.execute("SELECT value FROM media_meta WHERE name = ?", _name(video_id))
    return bool(rows) and moment(rows[0][0]) > datetime.now(UTC)


async def remove(on: Statements, video_id: str) -> None:
    """Say that it is done."""
    await on.execute("DELETE FROM media_meta WHERE name = ?", _name(video_id))


def _name(video_id: str) -> str:
    return f"tidying {video_id}"
