"""The library: videos that are added, found, transcoded anew, retried and deleted.

What is asked for is written together with the job that does it: in a transaction of the library's own, or in that of the caller
(`conn=`), as with `task.options(conn=…)`. Every coroutine has a blocking twin that ends in `_sync`.

`by=` says who asks. The job that does it carries that as a tag, written in the same transaction; once that is committed, a line
is written into the audit log. In the caller's own transaction there is the tag alone: when that commits is not known here.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

import msgspec
from uuid_utils import uuid7

from holdfast import State
from holdfast_media.ladder import Rung, ladder_of
from holdfast_media.library import moves
from holdfast_media.library.database import Database
from holdfast_media.library.looking import ENDED, Looking
from holdfast_media.library.records import (
    VERSION_COLUMNS,
    VIDEO_COLUMNS,
    Asked,
    SourceRef,
    Version,
    Video,
    version_of,
    video_of,
)
from holdfast_media.library.refusals import BadRequest, NotFailed, VideoBusy, VideoNotFound
from holdfast_media.library.statements import Statements, drive
from holdfast_media.library.states import ACTIVE, VersionState, VideoState
from holdfast_media.settings import too_short

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from holdfast import Holdfast, Task

T = TypeVar("T")

MOST_LISTED: Final = 500
LONGEST_TITLE: Final = 500
LONGEST_NAME: Final = 100


class Library:
    """The videos of an app. Made by `Media`; nothing is opened before it is used."""

    def __init__(self, app: Holdfast, prepare: Task[..., Any], tidy: Task[..., Any], *, segment_seconds: int) -> None:
        self._app = app
        self._segment_seconds = segment_seconds
        self._prepare = prepare
        self._tidy = tidy
        self.database = Database(lambda: app.url)
        self.looking = Looking(app)

    # --- asking for work --------------------------------------------------------------------------------------------------

    async def add(
        self,
        source: str | Path | None = None,
        *,
        key: str | None = None,
        title: str | None = None,
        reference: str | None = None,
        ladder: str | None = None,
        chunk_seconds: float | None = None,
        transcribe: bool = False,
        copy: bool = False,
        by: str = "",
        conn: Any = None,
    ) -> Video:
        """Add a video and have it transcoded; returned means stored, with the job that begins the work.

        `source` is a file that the workers see, `key` one that is in the storage already. With `copy` the file is copied into
        the storage first, for workers elsewhere. `reference` is a name of your own: added again under it, the video that is
        there is returned and nothing else happens. A `ladder` is read here and now: one that cannot be used raises `MediaError`
        (LADDER_INVALID). With `conn` both stand or fall with the transaction of that connection.
        """
        ref = _source(source, key, copy=copy)
        self._check_chunk(chunk_seconds)
        asked = Asked(ladder=ladder, rungs=_rungs(ladder), chunk_seconds=chunk_seconds, transcribe=transcribe)
        name = (title or Path(ref.shown).stem or ref.shown)[:LONGEST_TITLE]
        async with self._within(conn) as on:
            video_id = str(uuid7())
            if not await moves.add_video(on, video_id, title=name, source=ref, reference=reference):
                found = await self._by_reference(on, reference or "")
                if found is None:
                    raise VideoBusy(reference or "")
                return found
            await self._ask(on, video_id, None, asked, by=by)
            video = await self._read(on, video_id)
        if conn is None:
            await self.looking.note(by, video_id, f"add {name!r}")
        return video

    async def retranscode(
        self,
        video_id: str,
        *,
        qualities: Sequence[str] | None = None,
        ladder: str | None = None,
        chunk_seconds: float | None = None,
        transcribe: bool = False,
        fresh: bool = False,
        replace: bool = False,
        by: str = "",
        conn: Any = None,
    ) -> Video:
        """Have a video transcoded anew: all of it, or only some qualities, the others being taken over.

        What is published stays as it is until the new version is swapped in, in one transaction. The ladder and the length of
        chunks that were asked for with it are kept where nothing is said here. What is there, intact and made by the same
        recipe is not encoded again, unless it is to be `fresh`. Raises `VideoBusy` while another version is being made; with
        `replace` that one is given up. Raises `BadRequest` for qualities that the video does not have.
        """
        if isinstance(qualities, str):
            raise BadRequest(f"qualities is a list: write qualities=[{qualities!r}]")
        asked = Asked(
            ladder=ladder,
            rungs=_rungs(ladder),
            chunk_seconds=chunk_seconds,
            qualities=None if qualities is None else tuple(qualities),
            transcribe=transcribe,
            fresh=fresh,
        )
        given_up: list[str] = []
        async with self._within(conn) as on:
            video = await moves.locked(on, video_id)
            if video is None:
                raise VideoNotFound(video_id)
            versions = await moves.versions(on, video_id)
            published = next((one for one in versions if one.id == video.published), None)
            _check_qualities(asked, video, published)
            asked = _as_before(asked, published or next(iter(versions), None))
            self._check_chunk(asked.chunk_seconds)
            for one in versions:
                if not one.active:
                    continue
                if not replace:
                    raise VideoBusy(video_id, one.number)
                await moves.cancel(on, one.id, "another version was asked for instead")
                given_up += one.jobs.waiting_first
            await self._ask(on, video_id, video, asked, by=by)
            if given_up:
                await self._tidy_later(on, video_id, by=by)
            found = await self._read(on, video_id)
        if conn is None:
            which = "all qualities" if asked.qualities is None else ", ".join(asked.qualities)
            await self.looking.note(by, video_id, f"re-transcode {which} of {found.title!r}")
            await self.looking.cancel(given_up, "another version was asked for instead", by=by)
        return found

    async def retry(self, video_id: str, *, by: str = "", conn: Any = None) -> Video:
        """Bring the failed newest version of a video back; chunks that were completed are not encoded again."""
        async with self._within(conn) as on:
            video = await moves.locked(on, video_id)
            if video is None:
                raise VideoNotFound(video_id)
            newest = (await moves.versions(on, video_id))[0]
            job_id = uuid7()
            if not await moves.retry(on, video, newest.id, str(job_id)):
                raise NotFailed(video_id, newest.state)
            await self._enqueue_prepare(on, video_id, newest.id, job_id, by=by)
            found = await self._read(on, video_id)
        if conn is None:
            await self.looking.note(by, video_id, f"retry {found.title!r}")
            # at once; `prepare` does the same, for a caller's transaction and for whoever dies right here
            await self.looking.cancel(newest.jobs.waiting_first, "it is tried again", by=by)
        return found

    async def delete(self, video_id: str, *, by: str = "", conn: Any = None) -> Video:
        """Delete a video: it is gone from now on, its jobs are canceled, its files go as soon as nobody writes them."""
        async with self._within(conn) as on:
            video = await moves.delete(on, video_id)
            if video is None:
                raise VideoNotFound(video_id)
            jobs = [one for version in await moves.versions(on, video_id) for one in version.jobs.waiting_first]
            await self._tidy_later(on, video_id, by=by)
        if conn is None:
            await self.looking.note(by, video_id, f"delete {video.title!r}")
            # at once; the tidying job does the same, for a caller's transaction and for whoever dies right here
            await self.looking.cancel(jobs, "the video was deleted", by=by)
        return video

    # --- looking ----------------------------------------------------------------------------------------------------------

    async def get(self, video_id: str) -> Video:
        """Return a video with all its versions; raises `VideoNotFound`.

        A version that nobody works on any more is found out here, and moved to failed, before it is returned.
        """
        async with self.database.reading() as on:
            video = await self._read(on, video_id)
        if await self._fail_abandoned([one for one in video.versions if one.active]):
            async with self.database.reading() as on:
                video = await self._read(on, video_id)
        return video

    async def find(self, start: str) -> Video:
        """Return the one video whose id begins (or ends) with a text; raises `VideoNotFound`, `BadRequest` for several."""
        text = start.strip().lower()
        if len(text) == 36:  # noqa: PLR2004  a whole id
            return await self.get(text)
        head, _, tail = text.replace("-", "").partition("..")
        if not (head + tail) or not all(letter in "0123456789abcdef" for letter in head + tail):
            raise VideoNotFound(start)
        async with self.database.reading() as on:
            rows = await on.execute(
                "SELECT id FROM media_video WHERE deleted_at IS NULL AND replace(id, '-', '') LIKE ? LIMIT 3", f"{head}%{tail}"
            )
        if not rows:
            raise VideoNotFound(start)
        if len(rows) > 1:
            raise BadRequest(f"{start!r} is the beginning of several ids: {', '.join(row[0] for row in rows)}, …")
        return await self.get(rows[0][0])

    async def look(self, video_id: str) -> Video | None:
        """Return a video as the tables have it, and nothing more; `None`: it is deleted, or never was."""
        async with self.database.reading() as on:
            try:
                return await self._read(on, video_id)
            except VideoNotFound:
                return None

    async def by_reference(self, reference: str) -> Video | None:
        """Return the video that was added under a reference."""
        async with self.database.reading() as on:
            found = await self._by_reference(on, reference)
        return None if found is None else await self.get(found.id)

    async def list(
        self, *, state: VideoState | str | None = None, limit: int = 50, after: str | None = None, text: str | None = None
    ) -> Sequence[Video]:
        """Return videos, newest first, each with its newest version; `after` is the id of the last one seen."""
        where, args = ["v.deleted_at IS NULL"], []
        if state is not None:
            where.append("v.state = ?")
            args.append(VideoState(state).value)
        if after is not None:
            where.append("v.id < ?")
            args.append(after)
        if text:
            where.append("lower(v.title) LIKE ? ESCAPE '!'")
            args.append(f"%{_literal(text.lower())}%")
        statement = (
            f"SELECT {VIDEO_COLUMNS}, {VERSION_COLUMNS} FROM media_video v JOIN media_version n ON n.video_id = v.id "
            "AND n.number = (SELECT max(m.number) FROM media_version m WHERE m.video_id = v.id) "
            f"WHERE {' AND '.join(where)} ORDER BY v.id DESC LIMIT {max(1, min(int(limit), MOST_LISTED))}"
        )
        found = await self._listed(statement, args)
        if await self._fail_abandoned([one.versions[0] for one in found if one.versions[0].active]):
            found = await self._listed(statement, args)
        return found

    async def version(self, version_id: str) -> Version | None:
        """Return one version with its qualities."""
        async with self.database.reading() as on:
            return await moves.version(on, version_id)

    async def close(self) -> None:
        """Let go of what this event loop has open. Safe to call again; use opens it anew."""
        await self.looking.close()
        await self.database.close()

    # --- what nobody works on any more ------------------------------------------------------------------------------------

    async def active(self) -> Sequence[Version]:
        """Return every version that somebody works on, or should."""
        async with self.database.reading() as on:
            rows = await on.execute(
                f"SELECT {VERSION_COLUMNS} FROM media_version n WHERE n.state IN ('pending', 'processing') ORDER BY n.id"
            )
        return [version_of(row) for row in rows]

    async def sweep(self) -> int:
        """Move every version that nobody works on any more to failed; returns how many those were.

        Of those that cannot be published any more, what is left to do is given up.
        """
        versions = await self.active()
        await self.give_up_doomed(versions)
        return await self._fail_abandoned(versions)

    async def _fail_abandoned(self, versions: Sequence[Version]) -> int:
        """Fail those whose driving job has ended without ending them: it failed for good, was canceled, or is gone."""
        if not versions:
            return 0
        views = await self.looking.jobs([one.jobs.driving for one in versions])
        failed = 0
        given_up: list[str] = []
        for one, view in zip(versions, views, strict=True):
            why = self.looking.why_ended(view)
            if why is None:
                continue
            async with self.database.transaction() as on:
                moved = await moves.fail(on, one.id, *why, driving=one.jobs.driving)
            failed += moved
            given_up += one.jobs.waiting_first if moved else ()
        await self.looking.cancel(given_up, "the job that was to publish it has ended")
        return failed

    async def give_up_doomed(self, versions: Sequence[Version]) -> int:
        """Cancel what is left to do for versions that cannot be published any more; returns how many those were.

        One is doomed when its sound or a required quality has failed for good. Its `finalize` then runs and says why.
        """
        found = 0
        for one in versions:
            if one.plan is None:
                continue
            needed = [one.jobs.package[name] for name in _required(one) if name in one.jobs.package]
            needed += [one.jobs.audio] if one.jobs.audio is not None else []
            if not any(view is not None and view.state is State.FAILED for view in await self.looking.jobs(needed)):
                continue
            rest = [job_id for job_id in one.jobs.waiting_first if job_id != one.jobs.finalize]
            views = await self.looking.jobs(rest)
            live = [job_id for job_id, view in zip(rest, views, strict=True) if view is not None and view.state not in ENDED]
            await self.looking.cancel(live, "a required quality, or the sound, has failed")
            found += bool(live)
        return found

    # --- blocking twins ---------------------------------------------------------------------------------------------------

    def add_sync(self, *args: Any, **kwargs: Any) -> Video:
        """Do as `add`, from blocking code."""
        return self.blocking(self.add(*args, **kwargs), kwargs.get("conn"))

    def retranscode_sync(self, *args: Any, **kwargs: Any) -> Video:
        """Do as `retranscode`, from blocking code."""
        return self.blocking(self.retranscode(*args, **kwargs), kwargs.get("conn"))

    def retry_sync(self, video_id: str, *, by: str = "", conn: Any = None) -> Video:
        """Do as `retry`, from blocking code."""
        return self.blocking(self.retry(video_id, by=by, conn=conn), conn)

    def delete_sync(self, video_id: str, *, by: str = "", conn: Any = None) -> Video:
        """Do as `delete`, from blocking code."""
        return self.blocking(self.delete(video_id, by=by, conn=conn), conn)

    def get_sync(self, video_id: str) -> Video:
        """Do as `get`, from blocking code."""
        return self.blocking(self.get(video_id))

    def list_sync(self, **kwargs: Any) -> Sequence[Video]:
        """Do as `list`, from blocking code."""
        return self.blocking(self.list(**kwargs))

    def sweep_sync(self) -> int:
        """Do as `sweep`, from blocking code."""
        return self.blocking(self.sweep())

    def blocking(self, coroutine: Coroutine[Any, Any, T], conn: Any = None) -> T:
        """Run one of its coroutines from blocking code, and let go of what that opened."""
        if conn is not None:
            return drive(coroutine)

        async def alone() -> T:
            try:
                return await coroutine
            finally:
                await self.close()

        return asyncio.run(alone())

    # --- what they are made of --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _within(self, conn: Any) -> AsyncIterator[Statements]:
        if conn is not None:
            yield Statements(conn, self.database.dialect)
            return
        async with self.database.transaction() as on:
            yield on

    def _check_chunk(self, seconds: float | None) -> None:
        """Refuse a length of chunks that no plan could have: said now, and not by a job that fails."""
        if seconds is not None and not 0 < seconds < math.inf:
            raise BadRequest(f"chunk_seconds (--chunk-seconds) must be more than 0, not {seconds:g}: how much one job encodes")
        if why := too_short(seconds, self._segment_seconds):
            raise BadRequest(f"chunk_seconds (--chunk-seconds) {why}")

    async def _ask(self, on: Statements, video_id: str, video: Video | None, asked: Asked, *, by: str) -> None:
        version_id, job_id = str(uuid7()), uuid7()
        if not await moves.add_version(on, version_id, video, video_id, asked=asked, prepare=str(job_id)):
            raise VideoBusy(video_id)
        await self._enqueue_prepare(on, video_id, version_id, job_id, by=by)

    async def _enqueue_prepare(self, on: Statements, video_id: str, version_id: str, job_id: Any, *, by: str) -> None:
        task = self._prepare.options(id=UUID(str(job_id)), conn=on.conn, tags=(*tags(video_id, version_id), *_who(by)))
        await task.enqueue(version_id)

    async def _tidy_later(self, on: Statements, video_id: str, *, by: str) -> None:
        await self._tidy.options(conn=on.conn, tags=(f"video:{video_id}", *_who(by))).enqueue(video_id)

    async def _read(self, on: Statements, video_id: str) -> Video:
        rows = await on.execute(f"SELECT {VIDEO_COLUMNS} FROM media_video v WHERE v.id = ? AND v.deleted_at IS NULL", video_id)
        if not rows:
            raise VideoNotFound(video_id)
        return video_of(rows[0], await moves.versions(on, video_id))

    async def _by_reference(self, on: Statements, reference: str) -> Video | None:
        rows = await on.execute("SELECT id FROM media_video WHERE reference = ? AND deleted_at IS NULL", reference)
        return await self._read(on, rows[0][0]) if rows else None

    async def _listed(self, statement: str, args: Sequence[Any]) -> Sequence[Video]:
        async with self.database.reading() as on:
            rows = await on.execute(statement, *args)
        columns = VIDEO_COLUMNS.count(",") + 1
        return [video_of(row[:columns], (version_of(row[columns:]),)) for row in rows]


def _check_qualities(asked: Asked, video: Video, published: Version | None) -> None:
    """Refuse what is not there: only a published version can lend its other qualities, and only those that it has."""
    if asked.qualities is None:
        return
    if not asked.qualities:
        raise BadRequest("qualities is empty: leave it out for all of them")
    if published is None:
        raise BadRequest(
            f"video {video.id} has no published version that the other qualities could be taken from: leave qualities out"
        )
    # which rungs of a new ladder this source gives is found out when it is planned; a small source has a name of its own
    names = dict.fromkeys([*(one.name for one in asked.rungs or ()), *(one.name for one in published.qualities)])
    if unknown := [one for one in asked.qualities if one not in names]:
        there = f"there are {', '.join(names)}" if names else "it is sound alone. Leave qualities out"
        raise BadRequest(f"video {video.id} has no quality {', '.join(unknown)}: {there}")


def _as_before(asked: Asked, before: Version | None) -> Asked:
    """Fill in what was not said: a title keeps the ladder, and the length of chunks, that it was asked for with.

    Where nobody ever named a ladder, that of the settings counts, as it is now. Chosen qualities are the exception: they must
    fit those that are taken over, so they are of the ladder that the version was made with.
    """
    if before is None:
        return asked
    name, rungs = asked.ladder, asked.rungs
    if rungs is None:
        name, rungs = before.asked.ladder, before.asked.rungs
    if rungs is None and asked.qualities is not None:
        used = (before.plan or {}).get("rungs")
        rungs = msgspec.convert(used, tuple[Rung, ...]) if used else None
    chunk = asked.chunk_seconds if asked.chunk_seconds is not None else before.asked.chunk_seconds
    return msgspec.structs.replace(asked, ladder=name, rungs=rungs, chunk_seconds=chunk)


def tags(video_id: str, version_id: str) -> tuple[str, ...]:
    """Return the tags by which people find the jobs of a version: `holdfast jobs ls tag:video:…`."""
    return (f"video:{video_id}", f"version:{version_id}")


def _who(by: str) -> tuple[str, ...]:
    """Return the tag that names who asked; none where nobody is named."""
    return (f"by:{by[:LONGEST_NAME]}",) if by else ()


def _source(source: str | Path | None, key: str | None, *, copy: bool) -> SourceRef:
    if (source is None) == (key is None):
        raise BadRequest("give the file of the video or the key that it has in the storage: one of the two")
    if key is not None:
        return SourceRef(key=key)
    return SourceRef(path=str(Path(source or "").expanduser().absolute()), copy=copy)


def _rungs(ladder: str | None) -> tuple[Rung, ...] | None:
    """Read a ladder where it is asked for: the file may be gone, or another one, where and when it is needed."""
    return None if ladder is None else ladder_of(ladder).rungs


def _required(version: Version) -> list[str]:
    rungs = ((version.plan or {}).get("plan") or {}).get("renditions") or ()
    return [str(one["name"]) for one in rungs if one.get("required", True)]


def _literal(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


__all__ = ["ACTIVE", "Library", "VersionState", "VideoState", "tags"]
