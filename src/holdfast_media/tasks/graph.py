"""The jobs of a version and who waits for whom.

    encode (quality x chunk) --+--> package (quality) --+--> finalize
    audio ---------------------+------------------------+
    transcribe ------------------------------------------+

`finalize` runs however the others ended: it is the one that decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from uuid_utils import uuid7

from holdfast_media.library import JobIds
from holdfast_media.library.library import tags
from holdfast_media.tasks.work import AudioWork, EncodeWork

if TYPE_CHECKING:
    from holdfast import BlockingTransaction, Call, Holdfast, Task
    from holdfast_media.tasks.work import Making, VersionPlan


@dataclass(frozen=True, slots=True)
class Tasks:
    """The declared tasks."""

    app: Holdfast
    prepare: Task[..., Any]
    encode: Task[..., Any]
    audio: Task[..., Any]
    transcribe: Task[..., Any]
    package: Task[..., Any]
    finalize: Task[..., Any]
    tidy: Task[..., Any]
    sweep: Task[..., Any]


class Calls:
    """All jobs of a version, with their ids, before any of them is enqueued."""

    def __init__(self, tasks: Tasks, video_id: str, version_id: str, version_plan: VersionPlan, *, prepare: str) -> None:
        self._tasks = tasks
        self._video_id = video_id
        self._version_id = version_id
        self._plan = version_plan
        self._tags = tags(video_id, version_id)
        self.ids = JobIds(
            prepare=prepare,
            encode={one.rendition.name: tuple(str(uuid7()) for _ in one.chunks) for one in version_plan.making},
            audio=str(uuid7()) if version_plan.sound is not None else None,
            package={one.rendition.name: str(uuid7()) for one in version_plan.making},
            transcribe=str(uuid7()) if version_plan.captions is not None else None,
            finalize=str(uuid7()),
        )
        # made before a transaction is open: on SQLite that keeps everybody waiting
        self._made = self._calls()

    def enqueue(self, tx: BlockingTransaction) -> None:
        """Enqueue all of them in the transaction."""
        self._tasks.app.enqueue_many_sync(self._made, conn=tx)

    def _calls(self) -> list[Call[Any]]:
        calls: list[Call[Any]] = []
        ids, plan = self.ids, self._plan
        if ids.audio is not None and plan.sound is not None and plan.audio_folder is not None:
            work = AudioWork(
                video_id=self._video_id,
                version_id=self._version_id,
                origin=plan.origin,
                plan=msgspec.structs.replace(plan.plan, chunks=(), renditions=()),
                key=plan.sound,
                folder=plan.audio_folder,
            )
            calls.append(self._tasks.audio.options(id=UUID(ids.audio), tags=self._tags).call(work))
        # the smallest quality first: it is done soonest, and then there is something to watch
        for one in reversed(plan.making):
            calls += self._chunks(one)
        sound = [UUID(ids.audio)] if ids.audio is not None else []
        for one in reversed(plan.making):
            name = one.rendition.name
            after = [*(UUID(each) for each in ids.encode[name]), *sound]
            options = self._tasks.package.options(
                id=UUID(ids.package[name]), after=after, tags=(*self._tags, f"quality:{name}")
            )
            calls.append(options.call(self._version_id, name))
        last = [*(UUID(each) for each in ids.package.values()), *sound]
        if ids.transcribe is not None and plan.captions is not None:
            options = self._tasks.transcribe.options(id=UUID(ids.transcribe), tags=self._tags)
            calls.append(options.call(self._video_id, plan.origin, plan.captions))
            last.append(UUID(ids.transcribe))
        finalize = self._tasks.finalize.options(
            id=UUID(ids.finalize or ""), after=last, on_blocker_failure="run", tags=self._tags
        )
        calls.append(finalize.call(self._version_id))
        return calls

    def _chunks(self, one: Making) -> list[Call[Any]]:
        """Each chunk gets what it needs and no more: a film has hundreds of them."""
        name = one.rendition.name
        marks = (*self._tags, f"quality:{name}")
        return [
            self._tasks.encode.options(id=UUID(job_id), tags=marks).call(
                EncodeWork(
                    video_id=self._video_id,
                    version_id=self._version_id,
                    origin=self._plan.origin,
                    plan=msgspec.structs.replace(self._plan.plan, chunks=(chunk,), renditions=(one.rendition,)),
                    rendition=one.rendition,
                    chunk=chunk,
                    key=key,
                )
            )
            for job_id, chunk, key in zip(self.ids.encode[name], self._plan.plan.chunks, one.chunks, strict=True)
        ]
