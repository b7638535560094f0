"""Every move of the state tables as one guarded write, on whichever transaction it belongs to.

Each of them locks the row of the video first, and refuses where that is deleted: so moves of one video happen one after another
on every database, and none of them brings a deleted video back to life. Losing a race is a result here (`False` or `None`), not
an exception.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from holdfast_media.library.records import (
    QUALITY_COLUMNS,
    VERSION_COLUMNS,
    VIDEO_COLUMNS,
    JobIds,
    now_text,
    quality_of,
    text_of,
    version_of,
    video_of,
)
from holdfast_media.library.states import ACTIVE, Event, QualityState, VersionState, VideoState, version_move, video_moves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast_media.library.records import Asked, SourceRef, Version, Video
    from holdfast_media.library.statements import Statements

LONGEST_MESSAGE = 2000
MOST_ASKED = 500
"""Ids in one question: databases have a limit of values."""


# --- reading ------------------------------------------------------------------------------------------------------------


async def locked(on: Statements, video_id: str) -> Video | None:
    """Return a video and keep others from moving it until the end of the transaction; `None`: it is deleted, or never was."""
    lock = " FOR UPDATE" if on.dialect.postgres else ""  # a writer on SQLite is alone anyway
    rows = await on.execute(
        f"SELECT {VIDEO_COLUMNS} FROM media_video v WHERE v.id = ? AND v.deleted_at IS NULL{lock}", video_id
    )
    return video_of(rows[0]) if rows else None


async def version(on: Statements, version_id: str) -> Version | None:
    """Return a version with its qualities."""
    rows = await on.execute(f"SELECT {VERSION_COLUMNS} FROM media_version n WHERE n.id = ?", version_id)
    if not rows:
        return None
    return version_of(rows[0], await _qualities(on, version_id))


async def versions(on: Statements, video_id: str) -> tuple[Version, ...]:
    """Return all versions of a video with their qualities, newest first."""
    rows = await on.execute(
        f"SELECT {VERSION_COLUMNS} FROM media_version n WHERE n.video_id = ? ORDER BY n.number DESC", video_id
    )
    return tuple([version_of(row, await _qualities(on, row[0])) for row in rows])


async def _qualities(on: Statements, version_id: str) -> tuple[Any, ...]:
    rows = await on.execute(
        f"SELECT {QUALITY_COLUMNS} FROM media_quality q WHERE q.version_id = ? ORDER BY q.place", version_id
    )
    return tuple(quality_of(row) for row in rows)


async def swept_among(on: Statements, ids: Sequence[str]) -> list[str]:
    """Return those of some ids whose videos are deleted, with all that was known of their files."""
    found: list[str] = []
    for start in range(0, len(ids), MOST_ASKED):
        some = ids[start : start + MOST_ASKED]
        rows = await on.execute(
            "SELECT id FROM media_video WHERE deleted_at IS NOT NULL AND swept_at IS NOT NULL "
            f"AND id IN ({', '.join('?' * len(some))})",
            *some,
        )
        found += [row[0] for row in rows]
    return found


# --- asking for work ----------------------------------------------------------------------------------------------------


async def add_video(on: Statements, video_id: str, *, title: str, source: SourceRef, reference: str | None) -> bool:
    """Create a video; `False`: one with this reference is there."""
    now = now_text()
    rows = await on.execute(
        "INSERT INTO media_video (id, title, state, source, reference, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (reference) WHERE deleted_at IS NULL DO NOTHING RETURNING id",
        *(video_id, title, VideoState.PENDING.value, text_of(source), reference, now, now),
    )
    return bool(rows)


async def add_version(
    on: Statements, version_id: str, video: Video | None, video_id: str, *, asked: Asked, prepare: str
) -> bool:
    """Create the next version of a video, whose first job is `prepare`; `False`: another one is active.

    The caller holds the lock of the video, or has just created it (`video` is `None` then).
    """
    now = now_text()
    rows = await on.execute(
        "INSERT INTO media_version (id, video_id, number, state, asked, jobs, created_at, updated_at) "
        "SELECT ?, ?, coalesce(max(number), 0) + 1, ?, ?, ?, ?, ? FROM media_version WHERE video_id = ? "
        "ON CONFLICT DO NOTHING RETURNING id",
        *(version_id, video_id, VersionState.PENDING.value, text_of(asked), text_of(JobIds(prepare=prepare)), now, now),
        video_id,
    )
    if not rows:
        return False
    if video is not None:
        await _move_video(on, video, Event.RETRANSCODE)
    return True


async def retry(on: Statements, video: Video, version_id: str, prepare: str) -> bool:
    """Bring a failed version back; its first job is `prepare`. `False`: it has not failed, or another one is active."""
    now = now_text()
    active = await on.execute(
        "SELECT id FROM media_version WHERE video_id = ? AND state IN ('pending', 'processing')", video.id
    )
    failed = await version(on, version_id)
    if failed is None or active or not await _move_version(on, version_id, Event.RETRY):
        return False
    before = tuple(dict.fromkeys(failed.jobs.waiting_first))  # some may still run: whoever deletes the video has to find them
    await on.execute(
        "UPDATE media_version SET jobs = ?, plan = NULL, code = NULL, message = NULL, result = NULL, finished_at = NULL, "
        "tidied_at = NULL, updated_at = ? WHERE id = ?",
        *(text_of(JobIds(prepare=prepare, before=before)), now, version_id),
    )
    await on.execute("DELETE FROM media_quality WHERE version_id = ?", version_id)
    await _move_video(on, video, Event.RETRY)
    return True


async def cancel(on: Statements, version_id: str, message: str) -> bool:
    """Give up an active version. The caller holds the lock of the video."""
    if not await _move_version(on, version_id, Event.CANCEL):
        return False
    await _end(on, version_id, "CANCELED", message)
    return True


async def delete(on: Statements, video_id: str) -> Video | None:
    """Mark a video as deleted and give up what is being made of it; returns it, `None`: it was deleted before."""
    video = await locked(on, video_id)
    if video is None:
        return None
    now = now_text()
    await on.execute("UPDATE media_video SET deleted_at = ?, updated_at = ? WHERE id = ?", now, now, video_id)
    for one in await versions(on, video_id):
        if one.active:
            await cancel(on, one.id, "the video was deleted")
    return video


# --- the jobs of a version ----------------------------------------------------------------------------------------------


async def start(on: Statements, version_id: str, prepare: str) -> Version | None:
    """Begin to work on a version; `None`: that is not to be done (deleted, canceled, or another job drives it now).

    Safe to repeat by a later attempt at the same job.
    """
    found = await version(on, version_id)
    video = None if found is None else await locked(on, found.video_id)
    if found is None or video is None:
        return None
    found = await version(on, version_id)  # again, under the lock
    if found is None or not found.active or found.jobs.prepare != prepare:
        return None
    if await _move_version(on, version_id, Event.START):
        await _move_video(on, video, Event.START)
    return found


async def planned(
    on: Statements,
    version_id: str,
    *,
    facts: Mapping[str, Any],
    plan: Mapping[str, Any],
    cut: int,
    jobs: JobIds,
    qualities: Sequence[tuple[str, bool, Mapping[str, Any]]],
) -> bool:
    """Write down what is going to be done, and by which jobs. `False`: nothing is, any more."""
    found = await version(on, version_id)
    video = None if found is None else await locked(on, found.video_id)
    if found is None or video is None:
        return False
    now = now_text()
    rows = await on.execute(
        "UPDATE media_version SET asked = ?, plan = ?, jobs = ?, updated_at = ? WHERE id = ? AND state = ? RETURNING id",
        *(text_of(structs.replace(found.asked, cut=cut)), text_of(plan), text_of(jobs), now, version_id),
        VersionState.PROCESSING.value,
    )
    if not rows:
        return False
    await on.execute("UPDATE media_video SET facts = ?, updated_at = ? WHERE id = ?", text_of(facts), now, video.id)
    for place, (name, required, quality) in enumerate(qualities):
        await on.execute(
            "INSERT INTO media_quality (version_id, name, place, required, state, facts, updated_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(version_id, name, place, int(required), QualityState.PENDING.value, text_of(quality), now),
        )
    return True


async def made_again(
    on: Statements, version_id: str, name: str, *, instead_of: str, package: str, encode: Mapping[int, str]
) -> bool:
    """Write down that chunks of a quality are made again and then packaged, by which jobs. `False`: not any more.

    `instead_of` is the package that has found them lost: another one may be what the version waits for by now.
    """
    found = await version(on, version_id)
    if found is None or await locked(on, found.video_id) is None:
        return False
    found = await version(on, version_id)  # again, under the lock: the packages of other qualities do the same
    if found is None or not found.active or found.jobs.package.get(name) != instead_of:
        return False
    jobs = found.jobs
    chunks = tuple(encode.get(number, job_id) for number, job_id in enumerate(jobs.encode[name]))
    jobs = structs.replace(jobs, encode={**jobs.encode, name: chunks}, package={**jobs.package, name: package})
    rows = await on.execute(
        "UPDATE media_version SET jobs = ?, updated_at = ? WHERE id = ? AND state = ? RETURNING id",
        *(text_of(jobs), now_text(), version_id, VersionState.PROCESSING.value),
    )
    return bool(rows)


async def quality_ready(on: Statements, version_id: str, name: str, result: Mapping[str, Any]) -> Version | None:
    """Note that a quality can be played; returns the version as it is then, `None`: it is not to be made any more."""
    found = await version(on, version_id)
    if found is None or await locked(on, found.video_id) is None:
        return None
    await on.execute(
        "UPDATE media_quality SET state = ?, result = ?, code = NULL, message = NULL, updated_at = ? "
        "WHERE version_id = ? AND name = ?",
        *(QualityState.READY.value, text_of(result), now_text(), version_id, name),
    )
    found = await version(on, version_id)
    return found if found is not None and found.active else None


async def quality_failed(on: Statements, version_id: str, name: str, code: str, message: str) -> None:
    """Note that a quality did not come about, and why."""
    await on.execute(
        "UPDATE media_quality SET state = ?, code = ?, message = ?, updated_at = ? WHERE version_id = ? AND name = ?",
        *(QualityState.FAILED.value, code, message[:LONGEST_MESSAGE], now_text(), version_id, name),
    )


async def publish(on: Statements, version_id: str, result: Mapping[str, Any]) -> bool:
    """Make a version the one that the video plays, in the place of the one before. `False`: it is not wanted any more."""
    found = await version(on, version_id)
    video = None if found is None else await locked(on, found.video_id)
    if video is None or not await _move_version(on, version_id, Event.PUBLISH):
        return False
    now = now_text()
    if video.published is not None and await _move_version(on, video.published, Event.REPLACE):
        await on.execute("UPDATE media_version SET finished_at = ?, tidied_at = NULL WHERE id = ?", now, video.published)
    await on.execute(
        "UPDATE media_version SET result = ?, finished_at = ?, updated_at = ? WHERE id = ?",
        *(text_of(result), now, now, version_id),
    )
    await on.execute("UPDATE media_video SET published = ? WHERE id = ?", version_id, video.id)
    await _move_video(on, video, Event.PUBLISH)
    return True


async def fail(on: Statements, version_id: str, code: str, message: str, *, driving: str | None = None) -> bool:
    """End an active version as failed; a published one before it goes on playing. `False`: it had ended, or is driven anew.

    With `driving`: only while that job is the one that drives it. Whoever looked at a job before must not fail the retry that
    has begun since.
    """
    found = await version(on, version_id)
    video = None if found is None else await locked(on, found.video_id)
    if found is None or video is None:
        return False
    found = await version(on, version_id)
    if found is None or (driving is not None and found.jobs.driving != driving):
        return False
    if not await _move_version(on, version_id, Event.FAIL):
        return False
    await _end(on, version_id, code, message)
    await _move_video(on, video, Event.FAIL)
    return True


# --- what the moves are made of -----------------------------------------------------------------------------------------


async def _move_version(on: Statements, version_id: str, event: Event) -> bool:
    move = version_move(event)
    sources = sorted(move.sources)
    rows = await on.execute(
        f"UPDATE media_version SET state = ?, updated_at = ? WHERE id = ? AND state IN ({', '.join('?' * len(sources))}) "
        "RETURNING id",
        *(move.target, now_text(), version_id, *sources),
    )
    return bool(rows)


async def _move_video(on: Statements, video: Video, event: Event) -> None:
    """Move a video whose row is locked, so that its state is as it was read."""
    target = next((move.target for move in video_moves(event) if video.state in move.sources), None)
    if target is not None:
        await on.execute(
            "UPDATE media_video SET state = ?, updated_at = ? WHERE id = ? AND state = ?",
            *(target, now_text(), video.id, video.state.value),
        )


async def _end(on: Statements, version_id: str, code: str, message: str) -> None:
    now = now_text()
    await on.execute(
        "UPDATE media_version SET code = ?, message = ?, finished_at = ?, updated_at = ? WHERE id = ?",
        *(code, message[:LONGEST_MESSAGE], now, now, version_id),
    )


__all__ = [
    "ACTIVE",
    "add_version",
    "add_video",
    "cancel",
    "delete",
    "fail",
    "locked",
    "made_again",
    "planned",
    "publish",
    "quality_failed",
    "quality_ready",
    "retry",
    "start",
    "swept_among",
    "version",
    "versions",
]
