"""Every move of the state tables, on both databases, and every move that the tables do not have."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holdfast_media.library import moves
from holdfast_media.library.records import Asked, JobIds, SourceRef
from holdfast_media.library.states import (
    ACTIVE,
    VERSION_MOVES,
    VIDEO_MOVES,
    Event,
    VersionState,
    VideoState,
    version_move,
    video_moves,
)

if TYPE_CHECKING:
    from tests.media.worlds import World

VERSION_EVENTS = [event for event in Event if event not in (Event.ADD, Event.RETRANSCODE)]


async def placed(world: World, video: VideoState, version: VersionState) -> tuple[str, str]:
    """Put a video and its version into states, however they would have come there."""
    video_id, version_id = str(uuid4()), str(uuid4())
    async with world.media.library.database.transaction() as on:
        await moves.add_video(on, video_id, title="film", source=SourceRef(path="/film.mp4"), reference=None)
        await moves.add_version(on, version_id, None, video_id, asked=Asked(), prepare="prepare-job")
        await on.execute("UPDATE media_video SET state = ? WHERE id = ?", video.value, video_id)
        await on.execute("UPDATE media_version SET state = ? WHERE id = ?", version.value, version_id)
    return video_id, version_id


async def make(world: World, event: Event, video_id: str, version_id: str) -> bool:
    """Have an event happen as the jobs and the library make it happen."""
    async with world.media.library.database.transaction() as on:
        video = await moves.locked(on, video_id)
        assert video is not None
        match event:
            case Event.START:
                return await moves.start(on, version_id, "prepare-job") is not None
            case Event.PUBLISH:
                return await moves.publish(on, version_id, {})
            case Event.FAIL:
                return await moves.fail(on, version_id, "CODE", "why")
            case Event.RETRY:
                return await moves.retry(on, video, version_id, "another-job")
            case Event.CANCEL:
                return await moves.cancel(on, version_id, "why")
            case Event.REPLACE:
                await on.execute("UPDATE media_video SET published = ? WHERE id = ?", version_id, video_id)
                newer = str(uuid4())
                await moves.add_version(on, newer, video, video_id, asked=Asked(), prepare="newer-job")
                await on.execute("UPDATE media_version SET state = 'processing' WHERE id = ?", newer)
                return await moves.publish(on, newer, {})
            case _:
                raise AssertionError(event)


async def states(world: World, video_id: str, version_id: str) -> tuple[VideoState, VersionState]:
    video = await world.media.library.look(video_id)
    assert video is not None
    return video.state, next(one.state for one in video.versions if one.id == version_id)


def video_before(event: Event, version: VersionState) -> VideoState:
    """Return a state of the video in which its version may stand so."""
    if version in (VersionState.READY, VersionState.REPLACED) or event is Event.REPLACE:
        return VideoState.READY
    return VideoState.PENDING if version is VersionState.CANCELED else VideoState(version.value)


async def test_a_version_moves_as_the_table_says_and_no_other_way(world: World) -> None:
    for event, state in product(VERSION_EVENTS, VersionState):
        if event is Event.REPLACE and state in ACTIVE:
            continue  # one that is being made is not the published one
        ids = await placed(world, video_before(event, state), state)
        move = version_move(event)
        happened = await make(world, event, *ids)
        repeated_start = event is Event.START and state is VersionState.PROCESSING  # a later attempt at the same job goes on
        if state in move.sources:
            assert happened, (event, state)
            assert (await states(world, *ids))[1] == move.target, (event, state)
        else:
            assert happened is repeated_start or event is Event.REPLACE, (event, state)
            assert (await states(world, *ids))[1] == state, (event, state)


async def test_a_video_moves_with_its_version(world: World) -> None:
    for event, state in product([Event.START, Event.PUBLISH, Event.FAIL, Event.RETRY], VideoState):
        ids = await placed(world, state, VersionState(min(version_move(event).sources)))
        target = next((move.target for move in video_moves(event) if state in move.sources), state)
        await make(world, event, *ids)
        assert (await states(world, *ids))[0] == target, (event, state)


def test_every_state_can_be_reached_and_none_but_the_last_ones_is_a_dead_end() -> None:
    for table, kinds in ((VERSION_MOVES, VersionState), (VIDEO_MOVES, VideoState)):
        assert {move.target for move in table} == {kind.value for kind in kinds}
        left = {source for move in table for source in move.sources}
        assert {kind.value for kind in kinds} - left <= {VersionState.CANCELED, VersionState.REPLACED}


def test_the_tables_stand_in_the_documentation_as_they_are_in_the_code() -> None:
    page = (Path(__file__).parents[3] / "docs/media/library.md").read_text()
    for move in (*VIDEO_MOVES, *VERSION_MOVES):
        sources = ", ".join(f"`{source}`" for source in sorted(move.sources)) or "nothing"
        assert f"| {move.event} | {sources} | `{move.target}` | {move.within} |" in page


async def test_a_deleted_video_moves_no_more(world: World) -> None:
    video_id, version_id = await placed(world, VideoState.PROCESSING, VersionState.PROCESSING)
    async with world.media.library.database.transaction() as on:
        assert await moves.delete(on, video_id) is not None
    async with world.media.library.database.transaction() as on:
        assert await moves.delete(on, video_id) is None
        assert not await moves.publish(on, version_id, {})
        assert not await moves.fail(on, version_id, "CODE", "why")
        assert await moves.start(on, version_id, "prepare-job") is None
        assert not await moves.planned(on, version_id, facts={}, plan={}, cut=6, jobs=JobIds(prepare="x"), qualities=[])
        assert await moves.quality_ready(on, version_id, "720p", {}) is None
        version = await moves.version(on, version_id)
    assert version is not None
    assert (version.state, version.message) == (VersionState.CANCELED, "the video was deleted")


async def test_whoever_looked_at_an_older_job_does_not_fail_a_retry(world: World) -> None:
    video_id, version_id = await placed(world, VideoState.FAILED, VersionState.FAILED)
    assert await make(world, Event.RETRY, video_id, version_id)
    async with world.media.library.database.transaction() as on:
        assert not await moves.fail(on, version_id, "CODE", "why", driving="prepare-job")
        assert await moves.fail(on, version_id, "CODE", "why", driving="another-job")


async def test_of_publishing_and_deleting_at_once_one_wins_and_the_other_sees_it(world: World) -> None:
    for _ in range(5):
        video_id, version_id = await placed(world, VideoState.PROCESSING, VersionState.PROCESSING)

        async def publish(video_id: str = video_id, version_id: str = version_id) -> Any:
            async with world.media.library.database.transaction() as on:
                return await moves.publish(on, version_id, {})

        async def delete(video_id: str = video_id) -> Any:
            async with world.media.library.database.transaction() as on:
                return await moves.delete(on, video_id)

        published, deleted = await asyncio.gather(publish(), delete())
        assert deleted is not None
        async with world.media.library.database.reading() as on:
            version = await moves.version(on, version_id)
        assert version is not None
        assert version.state is (VersionState.READY if published else VersionState.CANCELED)
