"""The jobs of a version and who waits for whom.

    encode (quality x chunk) --+--> package (quality) --+--> finalize
    audio ---------------------+------------------------+
    transcribe ------------------------------------------+

`finalize` runs however the others ended: it is the one that decides. Where qualities are made together, the encodes of
the first one make all of them, and those of the others, each after the one of its chunk, find what is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from uuid_utils import uuid7

from holdfast_media.library import JobIds
from holdfast_media.library.library import tags
from holdfast_media.tasks import layout
from holdfast_media.tasks.work import AudioWork, EncodeWork, Twin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast import BlockingTransaction, Call, Holdfast, Task
    from holdfast_media.library import Version
    from holdfast_media.tasks.work import Making, VersionPlan


FOLLOWS = 7
"""The priority of encodes that find what was made along with another: they take an instant, and would otherwise wait behind the
chunks of all films there are, and their film with them. And of those that make a lost chunk again: all else of the film is
there. That of others is said where the tasks are declared."""
FIRST = 8
"""The priority of the package of the smallest quality: of all it is made soonest, and then the film plays."""


RETRY_SHARE = 1.0
"""Of the claims of a worker that does nothing but this: a chunk that another one had begun comes before those that nobody has.
Else it would wait behind as many chunks as there are to a fifth claim, and all that time the film could not be finished."""


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

    def __init__(
        self,
        tasks: Tasks,
        video_id: str,
        version_id: str,
        version_plan: VersionPlan,
        *,
        prepare: str,
        before: Sequence[str] = (),
        together: bool = False,
    ) -> None:
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
            before=tuple(before),
            together=together and len(version_plan.making) > 1,
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
        for one in plan.making if ids.together else reversed(plan.making):
            calls += self._chunks(one)
        sound = [UUID(ids.audio)] if ids.audio is not None else []
        for one in reversed(plan.making):
            name = one.rendition.name
            after = [*(UUID(each) for each in ids.encode[name]), *sound]
            options = self._tasks.package.options(
                id=UUID(ids.package[name]),
                after=after,
                tags=(*self._tags, f"quality:{name}"),
                **_sooner(FIRST if one is plan.making[-1] else None),
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
        """Each chunk gets what it needs and no more: a film has hundreds of them.

        Where qualities are made together the job for the first of them makes all, and the others come after it.
        """
        first, *others = self._plan.making
        leads = self.ids.together and one is first
        follows = self.ids.together and one is not first
        calls = []
        for number in range(len(self._plan.plan.chunks)):
            options = self._tasks.encode.options(
                id=UUID(self.ids.encode[one.rendition.name][number]),
                tags=(*self._tags, f"quality:{one.rendition.name}"),
                after=[UUID(self.ids.encode[first.rendition.name][number])] if follows else [],
                on_blocker_failure="run" if follows else "fail",
                **_sooner(FOLLOWS if follows else None),
            )
            calls.append(
                options.call(_work(self._video_id, self._version_id, self._plan, one, number, along=others if leads else ()))
            )
        return calls


class Again:
    """The jobs that make lost chunks of a quality again, each by itself, and then package it."""

    def __init__(self, tasks: Tasks, version: Version, version_plan: VersionPlan, name: str, begun: Mapping[int, int]) -> None:
        """`begun`: the numbers of the chunks, and how often each was begun before."""
        one = version_plan.making_of(name)
        self.encode = {number: str(uuid7()) for number in begun}
        self.package = str(uuid7())
        marks = (*tags(version.video_id, version.id), f"quality:{name}")
        self.calls: list[Call[Any]] = [
            tasks.encode.options(id=UUID(self.encode[number]), tags=marks, priority=FOLLOWS).call(
                _work(version.video_id, version.id, version_plan, one, number, begun=times)
            )
            for number, times in begun.items()
        ]
        before = version.jobs.encode[name]
        # those that are done are among them: so their results come to it, as they came to the package before it
        after = [UUID(self.encode.get(number, job_id)) for number, job_id in enumerate(before)]
        self.then = tasks.package.options(id=UUID(self.package), after=after, tags=marks, priority=FIRST)


def _work(
    video_id: str,
    version_id: str,
    plan: VersionPlan,
    one: Making,
    number: int,
    *,
    along: Sequence[Making] = (),
    begun: int = 0,
) -> EncodeWork:
    """Return what the job of one chunk needs."""
    key, chunk = one.chunks[number], plan.plan.chunks[number]
    return EncodeWork(
        video_id=video_id,
        version_id=version_id,
        origin=plan.origin,
        plan=msgspec.structs.replace(
            plan.plan, chunks=(chunk,), renditions=(one.rendition, *(each.rendition for each in along))
        ),
        rendition=one.rendition,
        chunk=chunk,
        key=key,
        note=layout.note(key),
        twins=tuple(
            Twin(rendition=each.rendition, key=each.chunks[number], note=layout.note(each.chunks[number])) for each in along
        ),
        begun=begun,
    )


def _sooner(priority: int | None) -> dict[str, Any]:
    """Return the option of a job that has another priority than its task."""
    return {} if priority is None else {"priority": priority}
