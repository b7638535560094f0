"""`media.tidy`: removes what nobody needs of one video; `media.sweep`: finds whom nobody works for, now and then.

Nothing is removed that a version in use names: the published one, one that is being made, one that failed and may be retried,
and one that was replaced so lately that somebody may still be watching it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import Reschedule
from holdfast_media.library import SourceRef, VersionState, moves
from holdfast_media.library.looking import ENDED
from holdfast_media.library.records import moment, now_text
from holdfast_media.tasks import layout, masters, tidymark
from holdfast_media.tasks.context import Context, told
from holdfast_media.tasks.work import VersionPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast import JobView
    from holdfast_media.library import Library, Version
    from holdfast_media.library.statements import Statements
    from holdfast_media.settings import Settings
    from holdfast_media.tasks.graph import Tasks

LEFT_ALONE = 24 * 3600.0
"""Seconds after which an upload that nothing has touched is nobody's."""
STRAGGLERS = 300.0
"""Seconds after which nobody publishes anything for a deleted video any more: then it is looked at for the last time."""
ORPHANS_EVERY = 24 * 3600.0
"""Seconds between two looks for files of videos that were deleted long ago."""


def tidy(context: Context, video_id: str, cancel: Callable[[Sequence[str]], list[JobView | None]]) -> dict[str, int]:
    """Remove what is not needed of a video, all of it when that is deleted. Repeatable at any time.

    Nothing is removed while a version is being made, for that may use what another one has left: its `finalize` has the video
    tidied, and whatever ends it otherwise, the sweep. `prepare` in turn waits until this is done.
    """
    with told(context):
        with context.transaction() as (_, on):
            video = context.do(moves.locked(on, video_id))
            versions = context.do(moves.versions(on, video_id))
        if video is None:
            return _removed(context, video_id, versions, cancel)
        with context.scratch() as work:
            masters.settle(context, video_id, work)
        # a version ends as soon as that is certain: of a quality that failed, chunks may still wait and run
        if _alive(cancel([job_id for one in versions if not one.active for job_id in one.jobs.waiting_first])):
            raise Reschedule(after=1)
        return _thinned(context, video_id)


def _thinned(context: Context, video_id: str) -> dict[str, int]:
    """Remove what no version needs, under the mark that keeps `prepare` waiting."""
    begun = datetime.now(UTC)
    kept = _marked(context, video_id, begun)
    if kept is None:
        return {"deleted": 0}
    home, renewed, gone, whole = layout.home(video_id), begun, 0, True
    try:
        for stored in list(context.storage.list(home)):
            # what is newer than the look at the library may be of somebody that this look did not show
            if kept.needs(stored.key, home) or stored.modified >= begun:
                continue
            if abs((datetime.now(UTC) - renewed).total_seconds()) > tidymark.RENEW:
                context.job.abort.check()
                renewed, again = datetime.now(UTC), _marked(context, video_id, begun)
                if again is None:
                    whole = False
                    break
                kept = again
                if kept.needs(stored.key, home):
                    continue
            gone += context.storage.delete(stored.key)
            context.job.abort.check()
    finally:
        if not context.job.settled and not context.job.abort.is_set():
            with context.transaction() as (_, on):
                context.do(tidymark.remove(on, video_id))
    with context.transaction() as (tx, on):
        for one in kept.seen if whole else ():
            if one not in kept.later:
                context.do(_tidied(on, one))
        return tx.complete({"deleted": gone})


def _marked(context: Context, video_id: str, now: datetime) -> _Kept | None:
    """Return what is needed as the library says now, and have `prepare` wait; `None`: one is being made, or it is gone."""
    with context.transaction() as (_, on):
        video = context.do(moves.locked(on, video_id))
        versions = context.do(moves.versions(on, video_id))
        if video is None or any(one.active for one in versions):
            return None
        context.do(tidymark.put(on, video_id))
    kept = _Kept(context.settings, now)
    for one in versions:
        kept.add(one, published=one.id == video.published)
    return kept


def _removed(
    context: Context, video_id: str, versions: Sequence[Version], cancel: Callable[[Sequence[str]], list[JobView | None]]
) -> dict[str, int]:
    """Stop what still runs for a deleted video, and once nothing does, remove everything."""
    if _alive(cancel([job_id for one in versions for job_id in one.jobs.waiting_first])):
        raise Reschedule(after=1)
    gone = 0
    for stored in list(context.storage.list(layout.home(video_id))):
        gone += context.storage.delete(stored.key)
        context.job.abort.check()
    with context.transaction() as (_, on):
        source, deleted_at = context.do(_source(on, video_id))
    if source is not None and source.startswith(layout.UPLOADS):  # sent for this video alone
        gone += context.storage.delete(source)
    with context.transaction() as (tx, on):
        # whoever lost a lease may still have published something: looked at once more when that is over
        if deleted_at is None or (datetime.now(UTC) - deleted_at).total_seconds() >= STRAGGLERS:
            context.do(_swept(on, video_id))
        for one in versions:
            context.do(_tidied(on, one.id))
        return tx.complete({"deleted": gone})


def _alive(views: Sequence[JobView | None]) -> bool:
    return any(view is not None and view.state not in ENDED for view in views)


async def _source(on: Statements, video_id: str) -> tuple[str | None, datetime | None]:
    """Return the key of a deleted video's source, where that is in the storage, and when it was deleted."""
    rows = await on.execute("SELECT source, deleted_at FROM media_video WHERE id = ?", video_id)
    if not rows:
        return None, None
    return msgspec.json.decode(rows[0][0], type=SourceRef).key, None if rows[0][1] is None else moment(rows[0][1])


async def _swept(on: Statements, video_id: str) -> None:
    await on.execute("UPDATE media_video SET swept_at = ? WHERE id = ?", now_text(), video_id)


async def _tidied(on: Statements, version_id: str) -> None:
    await on.execute(
        "UPDATE media_version SET tidied_at = ? WHERE id = ? AND state NOT IN ('pending', 'processing')", now_text(), version_id
    )


class _Kept:
    """What the versions of a video still need."""

    def __init__(self, settings: Settings, now: datetime) -> None:
        self._settings = settings
        self._now = now
        self._keys: set[str] = set()
        self._folders: set[str] = set()
        self.seen: list[str] = []
        """All versions."""
        self.later: set[str] = set()
        """Versions that something is kept for which will not be needed for ever."""

    def add(self, version: Version, *, published: bool) -> None:
        """Count in what one version needs."""
        self.seen.append(version.id)
        if version.plan is None:
            if version.active:
                self.later.add(version.id)
            return
        version_plan = msgspec.convert(version.plan, VersionPlan)
        settings = self._settings
        if published:
            self._output(version, version_plan)
        elif version.active:
            self.later.add(version.id)
            self._output(version, version_plan)
            self._chunks(version_plan)
        elif version.state is VersionState.REPLACED and self._age(version) < settings.keep_replaced:
            self.later.add(version.id)
            self._output(version, version_plan)
        elif version.state is VersionState.FAILED and settings.keep_completed and self._age(version) < settings.keep_failed:
            self.later.add(version.id)
            self._output(version, version_plan)
            self._chunks(version_plan)

    def needs(self, key: str, home: str) -> bool:
        """Tell whether something still needs a key."""
        if key in self._keys or key == f"{home}master.m3u8":
            return True
        parts = key.removeprefix(home).split("/")
        return len(parts) > 1 and (parts[0] == "source" or f"{home}{parts[0]}/" in self._folders)

    def _age(self, version: Version) -> float:
        return (self._now - (version.finished_at or version.updated_at)).total_seconds()

    def _output(self, version: Version, version_plan: VersionPlan) -> None:
        self._folders |= version_plan.folders
        self._keys.add(layout.version_master(version.video_id, version.number))
        self._keys |= {one for one in (version_plan.captions, version_plan.captions_before) if one is not None}

    def _chunks(self, version_plan: VersionPlan) -> None:
        self._keys |= {each for one in version_plan.making for key in one.chunks for each in (key, layout.note(key))}
        if version_plan.sound is not None:
            self._keys.add(version_plan.sound)


# --- the sweep ------------------------------------------------------------------------------------------------------------


def sweep(context: Context, library: Library, tasks: Tasks) -> dict[str, Any]:
    """Fail what nobody works on any more, and have tidied what was left: of deleted videos, of versions that are over."""
    failed = library.sweep_sync()
    context.storage.sweep(LEFT_ALONE)
    with context.transaction() as (tx, on):
        videos = context.do(_untidy(on, context.settings))
    videos += [one for one in _orphans(context) if one not in videos]
    with context.transaction() as (tx, on):
        for video_id in videos:
            tasks.tidy.options(conn=tx, key=f"tidy {video_id}", tags=(f"video:{video_id}",)).enqueue_sync(video_id)
        return tx.complete({"failed": failed, "tidied": len(videos)})


def _orphans(context: Context) -> list[str]:
    """Return the videos that are deleted and swept, and have files all the same; looked for once a day.

    Those of which there is no row at all are left alone: they may be of another database that uses the same storage.
    """
    with context.transaction() as (_, on):
        if not context.do(_due(on)):
            return []
    homes = {stored.key.split("/")[1] for stored in context.storage.list(layout.VIDEOS)}
    with context.transaction() as (_, on):
        return context.do(moves.swept_among(on, sorted(homes)))


async def _due(on: Statements) -> bool:
    rows = await on.execute("SELECT value FROM media_meta WHERE name = 'orphans'")
    if rows and (datetime.now(UTC) - moment(rows[0][0])).total_seconds() < ORPHANS_EVERY:
        return False
    await on.execute(
        "INSERT INTO media_meta (name, value) VALUES ('orphans', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        now_text(),
    )
    return True


async def _untidy(on: Statements, settings: Settings) -> list[str]:
    """Return the videos with something to remove: deleted ones, and those with a version whose time is over."""
    now = datetime.now(UTC).timestamp()

    def before(seconds: float) -> str:
        return datetime.fromtimestamp(now - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    deleted = await on.execute(
        "SELECT id FROM media_video WHERE deleted_at IS NOT NULL AND swept_at IS NULL AND deleted_at < ? LIMIT 100",
        before(STRAGGLERS),
    )
    over = await on.execute(
        "SELECT DISTINCT n.video_id FROM media_version n JOIN media_video v ON v.id = n.video_id WHERE n.tidied_at IS NULL "
        "AND v.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM media_version a WHERE a.video_id = n.video_id "
        "AND a.state IN ('pending', 'processing')) AND ((n.state = 'replaced' AND n.finished_at < ?) "
        "OR (n.state = 'failed' AND n.finished_at < ?) "
        "OR (n.state IN ('canceled', 'ready') AND n.finished_at < ?)) LIMIT 100",
        *(before(settings.keep_replaced), before(settings.keep_failed if settings.keep_completed else 60), before(300)),
    )
    return [row[0] for row in (*deleted, *over)]
