"""`media.finalize`: runs when all else has ended, however it ended, and decides: publish, or fail with the reason."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import Cancel, State
from holdfast_media.errors import OUTPUT_EMPTY, OUTPUT_MISMATCH, MediaError
from holdfast_media.library import moves
from holdfast_media.library.states import QualityState
from holdfast_media.tasks import layout, masters
from holdfast_media.tasks.artifacts import borrow, drop_package, intact_package
from holdfast_media.tasks.context import Context, failing, told
from holdfast_media.tasks.work import FinalResult, VersionPlan
from holdfast_media.transcode import PackageFacts, verify, write_master

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from holdfast import JobView
    from holdfast_media.library import Version
    from holdfast_media.tasks.graph import Tasks
    from holdfast_media.transcode import Verdict

CANCELED = "CANCELED"
TRANSCRIBE = "transcribe"
BAD_OUTPUT = frozenset({OUTPUT_EMPTY, OUTPUT_MISMATCH})
SOUND_LOST = (OUTPUT_MISMATCH, "it was packaged, and is missing or damaged now. See to the storage, and retry: it is made anew")


def finalize(
    context: Context, version_id: str, tasks: Tasks, look: Callable[[Sequence[str]], list[JobView | None]]
) -> FinalResult:
    """Publish the version in the transaction that completes this job, or move it to failed in the same way."""
    with failing(context, version_id), told(context):
        version = context.version(version_id)
        if version is None or version.plan is None:
            raise Cancel("the video was deleted, or this version is not wanted any more")
        version_plan = msgspec.convert(version.plan, VersionPlan)
        missing = _missing(context, version, version_plan, look)
        fatal = _fatal(version, version_plan, missing)
        if fatal is not None:
            return _failed(context, version, tasks, missing, why=fatal)
        with context.scratch() as work:
            try:
                verdict = _verified(context, version, version_plan, work)
            except MediaError as error:
                if error.code not in BAD_OUTPUT:
                    raise
                _drop(context, version, version_plan)  # so that a retry makes them again; the chunks are checked one by one
                return _failed(context, version, tasks, missing, why=(error.code, error.message))
            return _published(context, version, tasks, _result(version, version_plan, missing, verdict), missing, work=work)


# --- what did not come about ----------------------------------------------------------------------------------------------


def _missing(
    context: Context, version: Version, version_plan: VersionPlan, look: Callable[[Sequence[str]], list[JobView | None]]
) -> dict[str, tuple[str, str]]:
    """Return why each quality that is not ready is not, by its name; `audio` and `transcribe` are among the names.

    A package whose chunk failed says that something before it failed: what people want to know is why that did. Of the sound
    counts what is there, for the library has no row of it: it may be lost since its job was done, or whole though that failed.
    """
    jobs = version.jobs
    ids = [one for one in jobs.waiting_first if one != jobs.finalize]
    views = dict(zip(ids, look(ids), strict=True))
    found: dict[str, tuple[str, str]] = {}
    if version_plan.audio_folder is not None and intact_package(context, version_plan.audio_folder) is None:
        view = None if jobs.audio is None else views[jobs.audio]
        found[masters.AUDIO] = SOUND_LOST if _succeeded(view) else _why(view)
    if jobs.transcribe is not None and not _succeeded(views[jobs.transcribe]):
        found[TRANSCRIBE] = _why(views[jobs.transcribe])
    ready = {one.name for one in version.qualities if one.state is QualityState.READY}
    for name, package in jobs.package.items():
        if name not in ready:
            chunks = [views[one] for one in jobs.encode.get(name, ())]
            failed = [_why(one) for one in chunks if one is None or one.state is State.FAILED]
            canceled = [_why(one) for one in chunks if one is not None and one.state is State.CANCELED]
            sound = [found[masters.AUDIO]] if masters.AUDIO in found else []
            # some may still run: they were given up because another one had failed, and that one is the reason
            found[name] = [*failed, *sound, *canceled, _why(views[package])][0]
    return found


def _succeeded(view: JobView | None) -> bool:
    return view is not None and view.state is State.SUCCEEDED


def _why(view: JobView | None) -> tuple[str, str]:
    if view is None:
        return "JOB_GONE", "its job is gone: it was deleted"
    if view.error is None:
        return "JOB_ENDED", f"{view.task} {view.id} has {view.state}"
    return view.error.code, f"{view.error.message} (job {view.id})"


def _fatal(version: Version, version_plan: VersionPlan, missing: dict[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Return why the version as a whole has failed; `None`: it has not."""
    if masters.AUDIO in missing:
        return missing[masters.AUDIO][0], f"the sound: {missing['audio'][1]}"
    required = [one.name for one in version.qualities if one.required and one.name in missing]
    # the one that failed before those that were given up for it
    for name in sorted(required, key=lambda one: missing[one][0] == CANCELED):
        code, message = missing[name]
        return code, f"{name}: {message}"
    if version_plan.plan.renditions and all(one.name in missing for one in version.qualities):
        name = next(iter(missing))
        return missing[name][0], f"no quality came about. {name}: {missing[name][1]}"
    return None


def _failed(
    context: Context, version: Version, tasks: Tasks, missing: dict[str, tuple[str, str]], *, why: tuple[str, str]
) -> FinalResult:
    code, message = why
    result = FinalResult(state="failed", code=code, message=message, failed=tuple(missing))
    with context.transaction() as (tx, on):
        for name, (cause, text) in missing.items():
            context.do(moves.quality_failed(on, version.id, name, cause, text))
        if not context.do(moves.fail(on, version.id, code, message, driving=str(context.job.id))):
            raise Cancel("the video was deleted, or this version is not wanted any more")
        _tidy(tasks, version, tx)
        return tx.complete(result)


# --- what did -------------------------------------------------------------------------------------------------------------


def _verified(context: Context, version: Version, version_plan: VersionPlan, work: Path) -> Verdict:
    """Have the engine check every file of the version, laid out as it expects them."""
    ready, sound = masters.packages(version), masters.sound_of(context, version_plan)
    plan = msgspec.structs.replace(
        version_plan.plan, renditions=tuple(one for one in version_plan.plan.renditions if one.name in ready)
    )
    folders: dict[str, tuple[str, Sequence[str]]] = {facts.name: (folder, facts.files) for folder, facts in ready.values()}
    if sound is not None and version_plan.audio_folder is not None:
        folders[sound.name] = (version_plan.audio_folder, sound.files)
    renditions: list[PackageFacts] = [facts for _, facts in ready.values()]
    with ExitStack() as stack, context.job.stage("verify"):
        tree = work / "output"
        tree.mkdir()
        borrow(stack, context, tree, folders)
        write_master(tree, renditions, sound)
        return verify(
            tree,
            plan,
            renditions,
            sound,
            decode=context.settings.decode,
            on_progress=lambda share: context.job.progress(90 * share),
            stop=context.stop,
        )


def _published(
    context: Context,
    version: Version,
    tasks: Tasks,
    result: FinalResult,
    missing: dict[str, tuple[str, str]],
    *,
    work: Path,
) -> FinalResult:
    key = layout.version_master(version.video_id, version.number)
    base = key.rpartition("/")[0] + "/"
    text = masters.master_text(context, version, work, base=base)
    path = work / "version.m3u8"
    path.write_text(text or "", encoding="utf-8")
    with context.job.stage("publish"):
        context.storage.put(key, path, overwrite=True)
        with context.transaction() as (tx, on):
            for name, (why, message) in missing.items():
                context.do(moves.quality_failed(on, version.id, name, why, message))
            if not context.do(moves.publish(on, version.id, msgspec.to_builtins(result))):
                raise Cancel("the video was deleted, or this version is not wanted any more")
            _tidy(tasks, version, tx)
            tx.complete(result)
        # the library says it; now the stable playlist does too. Whoever dies right here is made up for by the tidying job
        masters.settle(context, version.video_id, work)
    return result


def _result(version: Version, version_plan: VersionPlan, missing: dict[str, tuple[str, str]], verdict: Verdict) -> FinalResult:
    results = [one.result or {} for one in version.qualities if one.name not in missing]
    pictures = version_plan.pictures
    prefix = version_plan.pictures_folder or ""
    code, message = missing.get(TRANSCRIBE, (None, None))
    return FinalResult(
        state="ready",
        code=code,
        message=None if message is None else f"no subtitles: {message}",
        master=layout.version_master(version.video_id, version.number),
        frames=verdict.frames,
        seconds=verdict.seconds,
        bytes=verdict.bytes,
        segments=verdict.segments,
        chunks=max((one.get("chunks", 0) for one in results), default=0),
        redone=len({number for one in results for number in one.get("redone", ())}),
        encodes=sum(one.get("chunks", 0) for one in results),
        reused=sum(one.get("reused", 0) for one in results),
        qualities=tuple(one.name for one in version.qualities if one.name not in missing),
        failed=tuple(missing),
        captions=version_plan.captions_before
        if version_plan.captions is None or TRANSCRIBE in missing
        else version_plan.captions,
        poster=None if pictures is None else prefix + pictures.poster,
        track=None if pictures is None else prefix + pictures.track,
    )


def _drop(context: Context, version: Version, version_plan: VersionPlan) -> None:
    """Take out of use what this version would play, the sound too, so that a retry makes it; what another one plays stays."""
    with context.transaction() as (_, on):
        others = [one for one in context.do(moves.versions(on, version.video_id)) if one.id != version.id]
    kept = {folder for one in others if one.plan is not None for folder in msgspec.convert(one.plan, VersionPlan).folders}
    for folder in sorted(version_plan.folders - kept - {version_plan.pictures_folder}):
        drop_package(context.storage, folder)


def _tidy(tasks: Tasks, version: Version, tx: Any) -> None:
    tasks.tidy.options(conn=tx, tags=(f"video:{version.video_id}",)).enqueue_sync(version.video_id)
