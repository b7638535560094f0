"""The tasks, declared on an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import Job, Retry
from holdfast_media.tasks import encoding, finalizing, packaging, preparing, tidying, transcribing
from holdfast_media.tasks.context import Context
from holdfast_media.tasks.graph import Tasks
from holdfast_media.tasks.work import (  # noqa: TC001  the annotations of tasks are read when they are declared
    AudioResult,
    AudioWork,
    EncodeResult,
    EncodeWork,
    FinalResult,
    Origin,
    PackageResult,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast import Holdfast, JobView
    from holdfast_media.media import Media

LONGEST = 4 * 3600.0
"""Seconds that one attempt may take: the engine has limits of its own, by the length of what it works on."""


def declare(app: Holdfast, media: Media) -> Tasks:
    """Declare every task of the media application on an app.

    Those that write to the library are in one queue, those that only need a processor in another: a worker without a database,
    behind a server, serves the second.
    """
    settings = media.settings
    retry = Retry(max_attempts=settings.attempts, initial=settings.retry_after, max=120.0)

    def context(job: Job) -> Context:
        library = media.library
        return Context(
            job,
            settings,
            media.storage,
            lambda: library.database.dialect,
            lambda video_id: library.blocking(library.look(video_id)),
        )

    def look(ids: Sequence[str]) -> list[JobView | None]:
        return media.library.blocking(media.library.looking.jobs(ids))

    def cancel(ids: Sequence[str]) -> list[JobView | None]:
        async def both() -> list[JobView | None]:
            looking = media.library.looking
            await looking.cancel(ids, "not wanted any more")
            return await looking.jobs(ids)

        return media.library.blocking(both())

    @app.task(name="media.prepare", queue=settings.queue, retry=retry, timeout=LONGEST, lease=settings.lease, executor="thread")
    def prepare(version_id: str, *, job: Job) -> dict[str, Any]:
        return preparing.prepare(context(job), version_id, tasks, media.transcriber)

    @app.task(
        name="media.encode",
        queue=settings.encode_queue,
        retry=retry,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
        prefers={settings.hardware} if settings.hardware is not None else set(),
    )
    def encode(work: EncodeWork, *, job: Job) -> EncodeResult:
        return encoding.encode(context(job), work)

    @app.task(
        name="media.audio", queue=settings.encode_queue, retry=retry, timeout=LONGEST, lease=settings.lease, executor="thread"
    )
    def audio(work: AudioWork, *, job: Job) -> AudioResult:
        return encoding.audio(context(job), work)

    @app.task(
        name="media.transcribe",
        queue=settings.encode_queue,
        retry=retry,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
    )
    def transcribe(video_id: str, origin: Origin, key: str, *, job: Job) -> str:
        del video_id  # for people who look at the job
        return transcribing.transcribe(context(job), origin, key, media.transcriber)

    @app.task(name="media.package", queue=settings.queue, retry=retry, timeout=LONGEST, lease=settings.lease, executor="thread")
    def package(version_id: str, quality: str, *, job: Job) -> PackageResult:
        return packaging.package(context(job), version_id, quality, job.results_of(encode))

    @app.task(
        name="media.finalize", queue=settings.queue, retry=retry, timeout=LONGEST, lease=settings.lease, executor="thread"
    )
    def finalize(version_id: str, *, job: Job) -> FinalResult:
        return finalizing.finalize(context(job), version_id, tasks, look)

    @app.task(name="media.tidy", queue=settings.queue, retry=5, timeout=LONGEST, lease=settings.lease, executor="thread")
    def tidy(video_id: str, *, job: Job) -> dict[str, int]:
        return tidying.tidy(context(job), video_id, cancel)

    @app.task(
        name="media.sweep", queue=settings.queue, cron="* * * * *", missed="skip", key="media.sweep", retry=1, executor="thread"
    )
    def sweep(*, job: Job) -> dict[str, Any]:
        return tidying.sweep(context(job), media.library, tasks)

    tasks = Tasks(app, prepare, encode, audio, transcribe, package, finalize, tidy, sweep)
    return tasks
