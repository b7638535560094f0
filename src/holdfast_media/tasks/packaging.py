"""`media.package`: the chunks of one quality become a playlist, and the video can be watched in it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from holdfast import Cancel
from holdfast_media.library import moves
from holdfast_media.tasks import masters
from holdfast_media.tasks.artifacts import intact_package, publish_package
from holdfast_media.tasks.context import Context, told
from holdfast_media.tasks.work import PackageResult, VersionPlan
from holdfast_media.transcode import package_rendition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast_media.tasks.work import EncodeResult, Making
    from holdfast_media.transcode import PackageFacts


def package(context: Context, version_id: str, name: str, chunks: Sequence[EncodeResult]) -> PackageResult:
    """Package one quality, note in the library that it plays, and show it in the master playlist. Repeatable."""
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
                facts, encoders = marker.facts, encoders or [marker.encoder]
            else:
                facts = _packaged(context, version_plan, making, "+".join(encoders), work / "package")
            result = PackageResult(
                name=name,
                facts=facts,
                folder=making.folder,
                encoder="+".join(encoders),
                chunks=len(chunks),
                reused=sum(one.reused for one in chunks),
                redone=sum(one.attempt > 1 and not one.reused for one in chunks),
            )
            with context.transaction() as (tx, on):
                if context.do(moves.quality_ready(on, version_id, name, msgspec.to_builtins(result))) is None:
                    raise Cancel("the video was deleted, or this version is not wanted any more")
                tx.complete(result)
            # the job is done: what follows is only for those who watch before all of it is there, and finalize does it too
            masters.settle(context, version.video_id, work)
        return result


def _packaged(context: Context, version_plan: VersionPlan, making: Making, encoder: str, folder: Path) -> PackageFacts:
    rendition = making.rendition
    context.check_room(rendition.video_kbps * 125 * version_plan.plan.seconds)
    with ExitStack() as stack, context.job.stage("package"):
        paths = [stack.enter_context(context.storage.lend(key)) for key in making.chunks]
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
