"""The tasks, declared on an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import Job, JobCanceled, JobFailed, JobNotFound, NotAllowed, Retry
from holdfast_media.ffmpeg import HARDWARE, SOFTWARE
from holdfast_media.library.looking import ENDED
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

# Higher first. What brings a film to its viewers goes before what begins another film: package and finalize take seconds and
# would otherwise wait behind the chunks of all films there are. Within a priority it is first in, first out, so the films take
# turns as they came. What tidies costs little and makes room.
PREPARE, ENCODE, AUDIO, PUBLISH, TIDY, SWEEP = 4, 5, 6, 7, 7, 8

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
        """Cancel those that have not ended, in this order, and return what is known of these then."""

        async def both() -> list[JobView | None]:
            looking = media.library.looking
            live = [str(view.id) for view in await looking.jobs(ids) if view is not None and view.state not in ENDED]
            await looking.cancel(live, "not wanted any more")
            return await looking.jobs(live)

        return media.library.blocking(both())

    @app.task(
        name="media.prepare",
        priority=PREPARE,
        queue=settings.queue,
        retry=retry,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
    )
    def prepare(version_id: str, *, job: Job) -> dict[str, Any]:
        return preparing.prepare(context(job), version_id, tasks, media.transcriber, cancel)

    @app.task(
        name="media.encode",
        priority=ENCODE,
        queue=settings.encode_queue,
        retry=retry,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
        prefers={settings.hardware or HARDWARE} if settings.encoder != SOFTWARE else set(),
    )
    def encode(work: EncodeWork, *, job: Job) -> EncodeResult:
        try:
            before = job.results_of(encode)
        except (JobFailed, JobCanceled, JobNotFound, NotAllowed):  # it was to make this chunk along with its own, and has not
            before = []
        return encoding.encode(context(job), work, before[0] if before else None)

    @app.task(
        name="media.audio",
        priority=AUDIO,
        queue=settings.encode_queue,
        retry=retry,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
    )
    def audio(work: AudioWork, *, job: Job) -> AudioResult:
        return encoding.audio(context(job), work)

    @app.task(
        name="media.transcribe",
        priority=ENCODE,
        queue=settings.encode_queue,
        retry=retry,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
    )
    def transcribe(video_id: str, origin: Origin, key: str, *, job: Job) -> str:
        del video_id  # for people who look at the job
        return transcribing.transcribe(context(job), origin, key, media.transcriber)

    @app.task(
        name="media.package",
        priority=PUBLISH,
        queue=settings.queue,
        retry=retry,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
    )
    def package(version_id: str, quality: str, again: list[int] | None = None, *, job: Job) -> PackageResult:
        return packaging.package(context(job), version_id, quality, job.results_of(encode), tasks=tasks, again=again or ())

    @app.task(
        name="media.finalize",
        priority=PUBLISH,
        queue=settings.queue,
        retry=retry,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
    )
    def finalize(version_id: str, *, job: Job) -> FinalResult:
        return finalizing.finalize(context(job), version_id, tasks, look)

    @app.task(
        name="media.tidy",
        priority=TIDY,
        queue=settings.queue,
        retry=5,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
    )
    def tidy(video_id: str, *, job: Job) -> dict[str, int]:
        return tidying.tidy(context(job), video_id, cancel)

    @app.task(
        name="media.sweep",
        priority=SWEEP,
        queue=settings.queue,
        cron="* * * * *",
        missed="skip",
        key="media.sweep",
        retry=1,
        executor="thread",
    )
    def sweep(*, job: Job) -> dict[str, Any]:
        return tidying.sweep(context(job), media.library, tasks)

    tasks = Tasks(app, prepare, encode, audio, transcribe, package, finalize, tidy, sweep)
    return tasks
