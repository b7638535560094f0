"""`media.tidy`: removes what nobody needs of one video; `media.sweep`: finds whom nobody works for, now and then.

Nothing is removed that a version in use names: the published one, one that is being made, one that failed and may be retried,
and one that was replaced so lately that somebody may still be watching it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import Reschedule, State
from holdfast_media.clip.scratch import sweep as sweep_scratch
from holdfast_media.library import SourceRef, VersionState, moves
from holdfast_media.library.records import now_text
from holdfast_media.tasks import layout, masters
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
"""Seconds after which a folder of an attempt that nothing has touched is nobody's."""
ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED})


def tidy(context: Context, video_id: str, cancel: Callable[[Sequence[str]], list[JobView | None]]) -> dict[str, int]:
    """Remove what is not needed of a video, all of it when that is deleted. Repeatable at any time."""
    with told(context):
        with context.transaction() as (_, on):
            video = context.do(moves.locked(on, video_id))
            versions = context.do(moves.versions(on, video_id))
        if video is None:
            return _removed(context, video_id, versions, cancel)
        with context.scratch() as work:
            masters.settle(context, video_id, work)
        ended = [one for one in versions if one.state is VersionState.CANCELED]
        if any(_alive(cancel(one.jobs.waiting_first)) for one in ended):
            raise Reschedule(after=5)
        now = datetime.now(UTC)
        kept = _Kept(context.settings, now)
        for one in versions:
            kept.add(one, published=one.id == video.published)
        gone = 0
        for stored in context.storage.list(layout.home(video_id)):
            if not kept.needs(stored.key, layout.home(video_id)):
                gone += context.storage.delete(stored.key)
                context.job.abort.check()
        with context.transaction() as (tx, on):
            for one in versions:
                if one.id not in kept.later:
                    context.do(_tidied(on, one.id))
            return tx.complete({"deleted": gone})


def _removed(
    context: Context, video_id: str, versions: Sequence[Version], cancel: Callable[[Sequence[str]], list[JobView | None]]
) -> dict[str, int]:
    """Stop what still runs for a deleted video, and once nothing does, remove everything."""
    if any(_alive(cancel(one.jobs.waiting_first)) for one in versions):
        raise Reschedule(after=1)
    gone = 0
    for stored in list(context.storage.list(layout.home(video_id))):
        gone += context.storage.delete(stored.key)
        context.job.abort.check()
    with context.transaction() as (_, on):
        source = context.do(_source(on, video_id))
    if source is not None and source.startswith(layout.UPLOADS):  # sent for this video alone
        gone += context.storage.delete(source)
    with context.transaction() as (tx, on):
        context.do(_swept(on, video_id))
        for one in versions:
            context.do(_tidied(on, one.id))
        return tx.complete({"deleted": gone})


def _alive(views: Sequence[JobView | None]) -> bool:
    return any(view is not None and view.state not in ENDED for view in views)


async def _source(on: Statements, video_id: str) -> str | None:
    """Return the key of a deleted video's source, where that is in the storage."""
    rows = await on.execute("SELECT source FROM media_video WHERE id = ?", video_id)
    return msgspec.json.decode(rows[0][0], type=SourceRef).key if rows else None


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
        self.later: set[str] = set()
        """Versions that something is kept for which will not be needed for ever."""

    def add(self, version: Version, *, published: bool) -> None:
        """Count in what one version needs."""
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
        self._folders |= {one.folder for one in version_plan.making} | {one.folder for one in version_plan.taken}
        self._folders |= {one for one in (version_plan.audio_folder, version_plan.pictures_folder) if one is not None}
        self._keys.add(layout.version_master(version.video_id, version.number))
        if version_plan.captions is not None:
            self._keys.add(version_plan.captions)

    def _chunks(self, version_plan: VersionPlan) -> None:
        self._keys |= {key for one in version_plan.making for key in one.chunks}
        if version_plan.sound is not None:
            self._keys.add(version_plan.sound)


# --- the sweep ------------------------------------------------------------------------------------------------------------


def sweep(context: Context, library: Library, tasks: Tasks) -> dict[str, Any]:
    """Fail what nobody works on any more, and have tidied what was left: of deleted videos, of versions that are over."""
    failed = library.sweep_sync()
    folders = sweep_scratch(context.settings.scratch, LEFT_ALONE, but=context.job.id)
    context.storage.sweep(LEFT_ALONE)
    with context.transaction() as (tx, on):
        videos = context.do(_untidy(on, context.settings))
        for video_id in videos:
            tasks.tidy.options(conn=tx, key=f"tidy {video_id}", tags=(f"video:{video_id}",)).enqueue_sync(video_id)
        return tx.complete({"failed": failed, "tidied": len(videos), "folders": len(folders)})


async def _untidy(on: Statements, settings: Settings) -> list[str]:
    """Return the videos with something to remove: deleted ones, and those with a version whose time is over."""
    now = datetime.now(UTC).timestamp()

    def before(seconds: float) -> str:
        return datetime.fromtimestamp(now - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    deleted = await on.execute(
        "SELECT id FROM media_video WHERE deleted_at IS NOT NULL AND swept_at IS NULL AND deleted_at < ? LIMIT 100", before(60)
    )
    over = await on.execute(
        "SELECT DISTINCT n.video_id FROM media_version n JOIN media_video v ON v.id = n.video_id WHERE n.tidied_at IS NULL "
        "AND v.deleted_at IS NULL AND ((n.state = 'replaced' AND n.finished_at < ?) "
        "OR (n.state = 'failed' AND n.finished_at < ?) "
        "OR (n.state IN ('canceled', 'ready') AND n.finished_at < ?)) LIMIT 100",
        *(before(settings.keep_replaced), before(settings.keep_failed if settings.keep_completed else 60), before(300)),
    )
    return [row[0] for row in (*deleted, *over)]
