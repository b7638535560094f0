"""`media.package`: the chunks of one quality become a playlist, and the video can be watched in it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from holdfast import Cancel
from holdfast_media.errors import CHECKSUM_MISMATCH, CHUNK_LOST, NOT_FOUND, MediaError
from holdfast_media.library import moves
from holdfast_media.tasks import masters
from holdfast_media.tasks.artifacts import intact_package, lent, publish_package
from holdfast_media.tasks.context import Context, told
from holdfast_media.tasks.graph import Again
from holdfast_media.tasks.work import PackageResult, VersionPlan
from holdfast_media.transcode import package_rendition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from holdfast_media.tasks.graph import Tasks
    from holdfast_media.tasks.work import EncodeResult, Making
    from holdfast_media.transcode import PackageFacts


def package(
    context: Context, version_id: str, name: str, chunks: Sequence[EncodeResult], *, tasks: Tasks, again: Collection[int] = ()
) -> PackageResult:
    """Package one quality, note in the library that it plays, and show it in the master playlist. Repeatable.

    What was encoded counts once it is found here, with the SHA-256 that its job has told. Chunks that are not are encoded
    again, once each, and packaged after that; `again` are those that were.
    """
    with told(context):
        version = context.version(version_id)
        if version is None or version.plan is None:
            raise Cancel("the video was deleted, or this version is not wanted any more")
        version_plan = msgspec.convert(version.plan, VersionPlan)
        making = version_plan.making_of(name)
        with context.scratch() as work:
            marker = intact_package(context, making.folder)
            encoders = sorted({one.encoder for one in chunks if one.encoder})
            if marker is not None:
                facts, encoders = marker.facts, [marker.encoder]  # of what is there, not of what was encoded beside it
            else:
                with ExitStack() as stack:
                    paths, lost = _lent(stack, context, making, chunks)
                    if lost:
                        _once(name, lost, again)
                        jobs = Again(tasks, version, version_plan, name, {one: chunks[one].begun for one in lost})
                        return _encoded_again(context, tasks, jobs, version_id, name, before=again)
                    facts = _packaged(context, version_plan, making, paths, encoder="+".join(encoders), folder=work / "package")
            result = PackageResult(
                name=name,
                facts=facts,
                folder=making.folder,
                encoder="+".join(encoders),
                chunks=len(chunks),
                reused=sum(one.reused for one in chunks),
                redone=tuple(number for number, one in enumerate(chunks) if one.begun > 1 and not one.reused),
            )
            with context.transaction() as (tx, on):
                if context.do(moves.quality_ready(on, version_id, name, msgspec.to_builtins(result))) is None:
                    raise Cancel("the video was deleted, or this version is not wanted any more")
                tx.complete(result)
            # the job is done: what follows is only for those who watch before all of it is there, and finalize does it too
            masters.settle(context, version.video_id, work)
        return result


def _lent(
    stack: ExitStack, context: Context, making: Making, chunks: Sequence[EncodeResult]
) -> tuple[list[Path], dict[int, str]]:
    """Lend all chunks of a quality; returns them, and of those that are not what was encoded their numbers and why."""
    paths: list[Path] = []
    lost: dict[int, str] = {}
    with context.job.stage("check"):
        for number, (key, made) in enumerate(zip(making.chunks, chunks, strict=True)):
            context.job.abort.check()
            try:
                paths.append(stack.enter_context(lent(context, key, made.sha256)))
            except MediaError as error:
                if error.code not in {CHECKSUM_MISMATCH, NOT_FOUND}:
                    raise
                lost[number] = error.message
                context.job.log.warning("chunk %d of %s is not what was encoded: %s", number + 1, making.rendition.name, error)
    return paths, lost


def _once(name: str, lost: Mapping[int, str], before: Collection[int]) -> None:
    """Raise CHUNK_LOST where a chunk that is lost was encoded again already."""
    for number, why in lost.items():
        if number in before:
            message = f"chunk {number + 1} of {name} was lost, was encoded again, and is lost again: {why}"
            raise MediaError(CHUNK_LOST, f"{message}. See to the storage, and retry.")


def _encoded_again(
    context: Context, tasks: Tasks, jobs: Again, version_id: str, name: str, *, before: Collection[int]
) -> PackageResult:
    """Hand out the jobs that encode chunks again, and go on with the package after them: all of it, or nothing.

    What is damaged is not deleted here: the jobs do that, when they find it. This one may not hold its lease any more.
    """
    with context.transaction() as (tx, on):
        mine = str(context.job.id)
        done = moves.made_again(on, version_id, name, instead_of=mine, package=jobs.package, encode=jobs.encode)
        if not context.do(done):
            raise Cancel("the video was deleted, or this version is not wanted any more")
        tasks.app.enqueue_many_sync(jobs.calls, conn=tx)
        result: PackageResult = tx.continue_with(jobs.then, version_id, name, sorted({*before, *jobs.encode}))
        return result


def _packaged(
    context: Context, version_plan: VersionPlan, making: Making, paths: Sequence[Path], *, encoder: str, folder: Path
) -> PackageFacts:
    rendition = making.rendition
    context.check_room(rendition.video_kbps * 125 * version_plan.plan.seconds)
    with context.job.stage("package"):
        facts = package_rendition(
            version_plan.plan,
            rendition,
            paths,
            folder,
            on_progress=lambda share: context.job.progress(50 * share),
            stop=context.stop,
        )
        context.job.abort.check()
        publish_package(context, making.folder, folder, facts, encoder=encoder)
    return facts
