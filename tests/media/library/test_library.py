"""What can be asked of the library: who asks gets all of it or nothing, and two who ask at once do not collide."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import msgspec
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from holdfast import BadSetting, Holdfast, Job, State, connect
from holdfast_media import Media
from holdfast_media.ladder import ladder_of
from holdfast_media.library import (
    BadRequest,
    NotFailed,
    SourceRef,
    VersionState,
    VideoBusy,
    VideoNotFound,
    VideoState,
    schema,
)
from holdfast_media.library.records import now_text, text_of
from tests.media.tasks.films import ladder
from tests.media.worlds import apart

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.media.worlds import World


async def jobs(world: World) -> int:
    return int((await world.app.stats())["live"])


async def force(world: World, version_id: str, state: VersionState, video: VideoState | None = None) -> None:
    """Put a version where its jobs would have brought it."""
    async with world.media.library.database.transaction() as on:
        rows = await on.execute("UPDATE media_version SET state = ? WHERE id = ? RETURNING video_id", state.value, version_id)
        if video is not None:
            await on.execute("UPDATE media_video SET state = ? WHERE id = ?", video.value, rows[0][0])
        if state is VersionState.READY:
            await on.execute("UPDATE media_video SET published = ? WHERE id = ?", version_id, rows[0][0])


async def published(world: World, version_id: str, *names: str, plan: dict[str, Any] | None = None) -> None:
    """Have a version be published with these qualities."""
    await force(world, version_id, VersionState.READY, VideoState.READY)
    async with world.media.library.database.transaction() as on:
        await on.execute("UPDATE media_version SET plan = ? WHERE id = ?", None if plan is None else text_of(plan), version_id)
        for place, name in enumerate(names):
            await on.execute(
                "INSERT INTO media_quality (version_id, name, place, required, state, facts, updated_at) "
                "VALUES (?, ?, ?, 1, 'ready', '{}', ?)",
                *(version_id, name, place, now_text()),
            )


async def test_adding_a_video_stores_it_with_the_job_that_begins(world: World) -> None:
    video = await world.media.library.add("film.mp4", title="A film")
    assert (video.title, video.state, video.source) == ("A film", VideoState.PENDING, SourceRef(path=video.source.path))
    assert video.source.path is not None
    assert video.source.path.endswith("/film.mp4")
    assert video.newest is not None
    view = await world.app.job(UUID(video.newest.jobs.prepare)).view()
    assert (view.task, view.state) == ("media.prepare", State.READY)
    assert f"video:{video.id}" in view.tags
    assert [one.id for one in await world.media.library.list()] == [video.id]
    assert (await world.media.library.find(video.id[:8])).id == video.id
    assert (await world.media.library.find(f"{video.id[:6]}..{video.id[-4:]}")).id == video.id


async def test_under_one_reference_there_is_one_video_however_often_it_is_added(world: World) -> None:
    first, *others = await asyncio.gather(*(world.media.library.add("film.mp4", reference="film 7") for _ in range(4)))
    assert {one.id for one in others} == {first.id}
    assert await jobs(world) == 1
    await world.media.library.delete(first.id)
    again = await world.media.library.add("film.mp4", reference="film 7")
    assert again.id != first.id


async def test_a_list_is_by_state_and_title_newest_first_in_pages(world: World) -> None:
    added = [await world.media.library.add(f"{name}.mp4") for name in ("one", "two", "three_%")]
    assert added[0].newest is not None
    await force(world, added[0].newest.id, VersionState.READY, VideoState.READY)
    listed = await world.media.library.list(limit=2)
    assert [one.title for one in listed] == ["three_%", "two"]
    assert [one.title for one in await world.media.library.list(after=listed[-1].id)] == ["one"]
    assert [one.title for one in await world.media.library.list(state="ready")] == ["one"]
    assert [one.title for one in await world.media.library.list(text="E_%")] == ["three_%"]


async def test_what_makes_no_sense_is_refused_in_words(world: World) -> None:
    library = world.media.library
    video = await library.add("film.mp4")
    with pytest.raises(BadRequest, match="one of the two"):
        await library.add()
    with pytest.raises(VideoNotFound, match="never added"):
        await library.get("01890a5d-ac96-774b-bcce-b302099a8057")
    with pytest.raises(VideoNotFound):
        await library.find("zz")
    with pytest.raises(NotFailed, match="is pending"):
        await library.retry(video.id)
    with pytest.raises(BadRequest, match="is a list"):
        await library.retranscode(video.id, qualities="720p")
    with pytest.raises(BadRequest, match="no published version"):
        await library.retranscode(video.id, qualities=["720p"])
    for chunk in (0, -1, float("nan"), float("inf")):
        with pytest.raises(BadRequest, match="must be more than 0"):
            await library.add("film.mp4", chunk_seconds=chunk)
        with pytest.raises(BadRequest, match="must be more than 0"):
            await library.retranscode(video.id, chunk_seconds=chunk)
    for asking in (partial(library.add, "film.mp4"), partial(library.retranscode, video.id)):
        with pytest.raises(
            BadRequest, match=r"is 3 s and segment_seconds 6 s: .* Make chunks of 6 s or more, or segments of 3 s"
        ):
            await asking(chunk_seconds=3)
    with pytest.raises(BadSetting, match=r"media library lives in the database"):
        await Media(Holdfast("memory://"), root=world.folder).library.list()


async def test_a_retranscode_keeps_the_ladder_and_the_chunks_that_the_title_was_made_with(world: World) -> None:
    library = world.media.library
    two = ladder(world.folder / "two.toml", ("120p", 120, True), ("60p", 60, False))
    video = await library.add("film.mp4", ladder=str(two), chunk_seconds=12)
    again = await library.retranscode(video.id, replace=True)  # nothing was published yet: what was asked for counts
    assert again.newest is not None
    await published(world, again.newest.id, "120p", "60p")
    for only in (None, ["60p"]):
        found = await library.retranscode(video.id, qualities=only, replace=True)
        assert found.newest is not None
        asked = found.newest.asked
        assert ([one.name for one in asked.rungs or ()], asked.chunk_seconds) == (["120p", "60p"], 12)
        assert asked.ladder == str(two)
    other = ladder(world.folder / "other.toml", ("90p", 90, True))
    found = await library.retranscode(video.id, ladder=str(other), chunk_seconds=18, replace=True)  # what is said counts
    assert found.newest is not None
    assert ([one.name for one in found.newest.asked.rungs or ()], found.newest.asked.chunk_seconds) == (["90p"], 18)


async def test_chosen_qualities_are_of_the_ladder_that_was_used_whatever_the_settings_say_now(world: World) -> None:
    library = world.media.library
    video = await library.add("film.mp4")  # by the settings: nobody named a ladder
    assert video.newest is not None
    rungs = ladder_of(str(ladder(world.folder / "two.toml", ("120p", 120, True), ("60p", 60, False)))).rungs
    await published(world, video.newest.id, "120p", "60p", plan={"rungs": msgspec.to_builtins(rungs)})
    some = await library.retranscode(video.id, qualities=["60p"])
    assert some.newest is not None
    assert some.newest.asked.rungs == rungs
    everything = await library.retranscode(video.id, replace=True)
    assert everything.newest is not None
    assert everything.newest.asked.rungs is None  # by the settings, as they are now


async def test_a_quality_that_a_title_does_not_have_is_refused_before_anything_is_done(world: World) -> None:
    library = world.media.library
    video = await library.add("film.mp4")
    assert video.newest is not None
    await published(world, video.newest.id, "120p", "60p")
    with pytest.raises(BadRequest, match=r"has no quality 480p: there are 120p, 60p"):
        await library.retranscode(video.id, qualities=["60p", "480p"])
    other = ladder(world.folder / "other.toml", ("90p", 90, True))
    with pytest.raises(BadRequest, match=r"has no quality 480p: there are 90p, 120p, 60p"):
        await library.retranscode(video.id, qualities=["480p"], ladder=str(other))
    assert [one.number for one in (await library.get(video.id)).versions] == [1]


async def test_of_two_retranscodes_at_once_one_is_made_and_the_other_refused(world: World) -> None:
    video = await world.media.library.add("film.mp4")
    assert video.newest is not None
    await force(world, video.newest.id, VersionState.READY, VideoState.READY)
    answers = await asyncio.gather(*(world.media.library.retranscode(video.id) for _ in range(4)), return_exceptions=True)
    assert sum(isinstance(one, VideoBusy) for one in answers) == 3
    found = await world.media.library.get(video.id)
    assert [one.number for one in found.versions] == [2, 1]
    assert (found.state, found.published) == (VideoState.READY, video.newest.id)
    assert await jobs(world) == 2  # that of each version


async def test_a_retranscode_while_one_is_made_is_refused_or_takes_its_place(world: World) -> None:
    video = await world.media.library.add("film.mp4")
    assert video.newest is not None
    with pytest.raises(VideoBusy, match=r"version 1 .* is being made already"):
        await world.media.library.retranscode(video.id)
    found = await world.media.library.retranscode(video.id, replace=True)
    assert [(one.number, one.state) for one in found.versions] == [(2, VersionState.PENDING), (1, VersionState.CANCELED)]
    assert await world.app.job(UUID(video.newest.jobs.prepare)).state() is State.CANCELED


async def test_a_deleted_video_is_gone_and_its_jobs_are_canceled(world: World) -> None:
    video = await world.media.library.add("film.mp4")
    assert video.newest is not None
    await world.media.library.delete(video.id)
    with pytest.raises(VideoNotFound):
        await world.media.library.get(video.id)
    with pytest.raises(VideoNotFound):
        await world.media.library.delete(video.id)
    with pytest.raises(VideoNotFound):
        await world.media.library.retranscode(video.id)
    assert await world.media.library.list() == []
    assert await world.app.job(UUID(video.newest.jobs.prepare)).state() is State.CANCELED


async def test_whoever_reads_finds_out_that_nobody_works_on_it(world: World) -> None:
    gone, failed, left = [await world.media.library.add(f"{name}.mp4") for name in ("gone", "failed", "left")]
    assert gone.newest is not None
    assert failed.newest is not None
    await world.app.chain(UUID(gone.newest.jobs.prepare)).delete()
    await world.app.fail(UUID(failed.newest.jobs.prepare), "no such luck", code="LUCK")
    assert (await world.media.library.get(gone.id)).error == "JOB_GONE: the job that was to do it is gone: it was deleted"
    states = {one.title: one.state for one in await world.media.library.list()}
    assert states == {"gone": VideoState.FAILED, "failed": VideoState.FAILED, "left": VideoState.PENDING}
    assert "LUCK: media.prepare: no such luck" in str((await world.media.library.get(failed.id)).error)
    assert (await world.media.library.get(left.id)).error is None
    retried = await world.media.library.retry(failed.id)
    assert (retried.state, retried.error) == (VideoState.PENDING, None)
    assert retried.newest is not None
    assert retried.newest.number == 1


async def test_the_blocking_twins_do_the_same(world: World) -> None:
    def blocking() -> None:
        library = world.again().library
        video = library.add_sync("film.mp4", title="twin")
        assert library.get_sync(video.id).title == "twin"
        assert [one.id for one in library.list_sync(state="pending")] == [video.id]
        library.retranscode_sync(video.id, replace=True)
        library.delete_sync(video.id)
        assert library.list_sync() == []

    await apart(blocking)


# --- in the caller's own transaction ----------------------------------------------------------------------------------------


def plain(url: str) -> str:
    return url.partition("?")[0]


def own_sqlite(world: World) -> AbstractContextManager[Any]:
    connection = sqlite3.connect(world.url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return _ending(connection, lambda: connection.execute("COMMIT"), lambda: connection.execute("ROLLBACK"), connection.close)


def own_psycopg(world: World) -> AbstractContextManager[Any]:
    connection = psycopg.connect(plain(world.url))
    return _ending(connection, connection.commit, connection.rollback, connection.close)


def own_session(world: World) -> AbstractContextManager[Any]:
    address = plain(world.url).replace("postgresql://", "postgresql+psycopg://") if world.on_postgres else world.url
    engine = sqlalchemy.create_engine(address)
    session = Session(engine)

    def close() -> None:
        session.close()
        engine.dispose()

    return _ending(session, session.commit, session.rollback, close)


class _ending:  # noqa: N801  a context manager, written as one uses it
    def __init__(self, conn: Any, commit: Any, rollback: Any, close: Any) -> None:
        self.conn, self.commit, self.rollback, self.close = conn, commit, rollback, close

    def __enter__(self) -> Any:
        return self.conn

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        (self.rollback if kind is not None else self.commit)()
        self.close()


@pytest.mark.parametrize("own", [own_sqlite, own_psycopg, own_session])
async def test_in_a_callers_transaction_all_of_it_happens_or_nothing(world: World, own: Any) -> None:
    if (own is own_sqlite and world.on_postgres) or (own is own_psycopg and not world.on_postgres):
        pytest.skip("a connection of the other database")
    library = world.media.library
    await library.database.make()

    def both() -> None:
        with suppress(ZeroDivisionError), own(world) as conn:
            library.add_sync("never.mp4", conn=conn)
            raise ZeroDivisionError
        with own(world) as conn:
            video = library.add_sync("film.mp4", conn=conn)
            library.retranscode_sync(video.id, replace=True, conn=conn)
        with own(world) as conn:
            library.add_sync("gone.mp4", conn=conn)
            library.delete_sync(library.add_sync("deleted.mp4", conn=conn).id, conn=conn)

    await apart(both)
    assert [one.title for one in await library.list()] == ["gone", "film"]
    tasks = (await world.app.stats())["tasks"]
    assert sum(tasks["media.prepare"].values()) == 4
    assert sum(tasks["media.tidy"].values()) == 2  # of the version that was replaced, and of the deleted video


async def test_in_an_asyncpg_transaction_too(world: World) -> None:
    if not world.on_postgres:
        pytest.skip("asyncpg leads to PostgreSQL")
    await world.media.library.database.make()
    connection = await asyncpg.connect(plain(world.url))
    try:
        with suppress(ZeroDivisionError):
            async with connection.transaction():
                await world.media.library.add("never.mp4", conn=connection)
                raise ZeroDivisionError
        async with connection.transaction():
            await world.media.library.add("film.mp4", conn=connection)
    finally:
        await connection.close()
    assert [one.title for one in await world.media.library.list()] == ["film"]


async def test_in_the_transaction_of_a_job_too(world: World) -> None:
    @world.app.task(queue="uploads", retry=1)
    async def uploaded(path: str, *, job: Job) -> str:
        async with job.transaction() as tx:
            video = await world.media.library.add(path, conn=tx)
            return tx.complete(video.id)

    await world.media.library.database.make()
    async with world.app.worker(queues=["uploads"]):
        video_id = await (await uploaded.enqueue("film.mp4")).result(timeout=20)
    assert (await world.media.library.get(video_id)).title == "film"


async def test_a_connection_nobody_knows_is_refused_with_those_that_are_taken(world: World) -> None:
    with pytest.raises(BadSetting, match=r"builtins.str. The library takes a connection of asyncpg, psycopg 3"):
        await world.media.library.add("film.mp4", conn="postgres")


async def test_tables_are_made_once_however_many_make_them_at_once(world: World) -> None:
    others = [world.again() for _ in range(5)]
    await asyncio.gather(*(one.library.database.make() for one in others[:4]))
    async with world.media.library.database.transaction() as on:
        await on.execute("UPDATE media_meta SET value = '99' WHERE name = 'schema'")
    with pytest.raises(Exception, match=r"made by a newer Holdfast.*from a newer clone: pip install '../holdfast"):
        await others[4].library.list()
    for one in others:
        await one.close()


async def test_every_mutation_names_who_did_it(world: World) -> None:
    library = world.media.library
    video = await library.add("film.mp4", by="ann")
    assert video.newest is not None
    assert "by:ann" in (await world.app.job(UUID(video.newest.jobs.prepare)).view()).tags
    again = await library.retranscode(video.id, replace=True, by="ben")
    assert again.newest is not None
    await world.app.fail(UUID(again.newest.jobs.prepare), "no such luck")
    assert (await library.get(video.id)).state is VideoState.FAILED
    await library.retry(video.id, by="cem")
    await library.delete(video.id, by="dan")
    store = connect(world.url)
    await store.open()
    lines = [(line.actor, line.action, line.targets, line.detail) for line in await store.audits(limit=100)]
    await store.close()
    said = [(actor, detail) for actor, action, targets, detail in lines if targets == (f"video {video.id}",)]
    assert said[::-1] == [
        ("ann", "media: add 'film'"),
        ("ben", "media: re-transcode all qualities of 'film'"),
        ("cem", "media: retry 'film'"),
        ("dan", "media: delete 'film'"),
    ]
    assert {actor for actor, action, _, _ in lines if action == "cancel"} >= {"ben", "dan"}


async def test_tables_that_are_there_are_not_made_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.media.library.database.make()
    monkeypatch.setattr(schema, "STATEMENTS", ("CREATE what nobody may",))  # a role without the right to create
    again = world.again()
    assert await again.library.list() == []
    await again.close()


def test_a_move_that_would_have_to_wait_is_not_driven_by_hand(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}")
    library = Media(app, root=tmp_path).library

    class Waits:
        def __await__(self) -> Generator[None]:
            yield

    async def waiting() -> None:
        await Waits()

    with pytest.raises(BadSetting, match="has to be awaited"):
        library.blocking(waiting(), conn=object())
