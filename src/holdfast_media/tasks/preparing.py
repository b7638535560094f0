"""`media.prepare`: from a source to a plan, and to the jobs that carry it out."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import Cancel, Reschedule
from holdfast_media.errors import INPUT_MISSING, LADDER_INVALID, MediaError
from holdfast_media.ladder import Ladder, choose, ladder_of
from holdfast_media.library import SourceRef, moves
from holdfast_media.library.looking import ENDED
from holdfast_media.source import Facts, check, identity, probe
from holdfast_media.tasks import layout, tidymark
from holdfast_media.tasks.artifacts import intact_package
from holdfast_media.tasks.context import ROOMY, Context, failing, told
from holdfast_media.tasks.graph import Calls
from holdfast_media.tasks.work import Making, Origin, Taken, VersionPlan
from holdfast_media.transcode import (
    PackageFacts,
    PictureFacts,
    Plan,
    audio_recipe,
    package_recipe,
    pictures,
    pictures_recipe,
    plan,
    recipe,
    usual_chunk,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast import JobView
    from holdfast_media.ladder import Rendition
    from holdfast_media.library import Asked, Version, Video
    from holdfast_media.settings import Settings
    from holdfast_media.speech.transcript import Transcriber
    from holdfast_media.tasks.graph import Tasks


def prepare(
    context: Context,
    version_id: str,
    tasks: Tasks,
    transcriber: Transcriber | None,
    cancel: Callable[[Sequence[str]], list[JobView | None]],
) -> dict[str, Any]:
    """Find out what the source is, plan, and enqueue all jobs in the transaction that completes this one."""
    with failing(context, version_id), told(context):
        with context.transaction() as (_, on):
            version = context.do(moves.start(on, version_id, str(context.job.id)))
            video = None if version is None else context.do(moves.locked(on, version.video_id))
            others = () if version is None else context.do(moves.versions(on, version.video_id))
            tidied = version is not None and context.do(tidymark.held(on, version.video_id))
        if version is None or video is None:
            raise Cancel("the video was deleted, or this version is not wanted any more")
        if tidied:  # what is found there now may be gone in a moment
            raise Reschedule(after=1)
        # jobs of a try before this one: nobody needs them, and whoever deletes the video must still find those that run
        before = [str(one.id) for one in cancel(version.jobs.before) if one is not None and one.state not in ENDED]
        published = next((one for one in others if one.id == video.published), None)
        with _source(context, video) as (path, ref):
            origin = _origin(context, path, ref)
            facts = _facts(context, path, origin)
            speech = None if transcriber is None else transcriber.recipe
            version_plan = _planned(context, version, facts, origin, published=published, speech=speech)
            context.check_room(_needed(version_plan), scratch=False)  # its jobs work on one chunk at a time
            version_plan = _with_pictures(context, path, version_plan)
        return _handed_out(context, version, version_plan, facts, tasks, before=before)


# --- the source -----------------------------------------------------------------------------------------------------------


@contextmanager
def _source(context: Context, video: Video) -> Iterator[tuple[Path, SourceRef]]:
    """Give the source as a local file, and where the other jobs find it."""
    ref = video.source
    if ref.key is not None:
        with context.job.stage("fetch"), context.storage.lend(ref.key) as path:
            yield path, SourceRef(key=ref.key)
        return
    path = Path(ref.path or "")
    if not path.is_file():
        raise MediaError(INPUT_MISSING, f"there is no file {path.name!r} where this worker looks.")
    if not ref.copy:
        yield path, SourceRef(path=str(path))
        return
    with context.job.stage("copy"):
        key = layout.source(video.id, _identity(context, path), path.name)
        context.storage.put(key, path)
    yield path, SourceRef(key=key)


def _origin(context: Context, path: Path, ref: SourceRef) -> Origin:
    found = path.stat()
    return Origin(
        ref=ref,
        identity=_identity(context, path),
        size=found.st_size,
        modified=found.st_mtime_ns if ref.path is not None else None,
    )


def _identity(context: Context, path: Path) -> str:
    """Return the identity of the source, computed once across all attempts, as long as the file stays as it is."""
    found = path.stat()
    known = context.job.data("identity")
    if isinstance(known, dict) and (known["size"], known["modified"]) == (found.st_size, found.st_mtime_ns):
        return str(known["identity"])
    with context.job.stage("identify"):
        value = identity(path, stop=context.stop)
    context.job.checkpoint("identity", data={"size": found.st_size, "modified": found.st_mtime_ns, "identity": value})
    return value


def _facts(context: Context, path: Path, origin: Origin) -> Facts:
    """Return what is known of the source; what an attempt before this one found out counts for the same bytes alone."""
    known = context.job.data("probe")
    if isinstance(known, dict) and known.get("identity") == origin.identity:
        facts = msgspec.convert(known["facts"], Facts)
    else:
        with context.job.stage("probe"):
            context.job.progress(5)
            with context.watched(path, origin):
                facts = probe(path, stop=context.stop)
        context.job.checkpoint("probe", data={"identity": origin.identity, "facts": msgspec.to_builtins(facts)})
    if context.job.data("check") != origin.identity:
        with context.job.stage("check"), context.watched(path, origin):
            check(
                path,
                facts,
                on_progress=lambda share: context.job.progress(10 + 60 * share),
                stop=context.stop,
            )
        context.job.checkpoint("check", data=origin.identity)
    return facts


# --- the plan -------------------------------------------------------------------------------------------------------------


def _planned(
    context: Context, version: Version, facts: Facts, origin: Origin, *, published: Version | None, speech: str | None
) -> VersionPlan:
    """Return all that is to be done; `speech` is the recipe of who writes down what is said, if anybody does."""
    asked, settings = version.asked, context.settings
    ladder = Ladder(rungs=asked.rungs) if asked.rungs else ladder_of(asked.ladder or settings.ladder)
    renditions = choose(facts, ladder)
    laid_out = plan(
        facts,
        renditions,
        chunk_seconds=_chunk_seconds(asked, settings, facts),
        segment_seconds=settings.segment_seconds,
    )
    salt = f"{version.id}" if asked.fresh else ""

    def salted(text: str) -> str:
        return hashlib.sha256(f"{text} {salt}".encode()).hexdigest() if salt else text

    def folder_of(rendition: Rendition) -> str:
        return layout.folder(version.video_id, rendition.name, salted(package_recipe(laid_out, rendition, origin.identity)))

    taken = _taken(context, asked.qualities, published, origin=origin, laid_out=laid_out)
    names = {one.rendition.name for one in taken}
    taken += _found(context, {folder_of(one): one for one in renditions if one.name not in names})
    names = {one.rendition.name for one in taken}
    making = tuple(
        Making(
            rendition=one,
            chunks=tuple(
                layout.chunk(version.video_id, salted(recipe(laid_out, one, chunk, origin.identity)))
                for chunk in laid_out.chunks
            ),
            folder=folder_of(one),
        )
        for one in renditions
        if one.name not in names
    )
    sound = None if laid_out.audio is None else salted(audio_recipe(laid_out, origin.identity))
    captions = None
    if asked.transcribe and laid_out.audio is not None:
        # nobody transcribes on this worker: perhaps on the one that takes the job, and if not, that says NO_TRANSCRIBER
        by = speech or f"whoever {version.id}"
        digest = hashlib.sha256(f"{origin.identity} {by} {salt}".encode()).hexdigest()
        captions = layout.captions(version.video_id, digest)
    return VersionPlan(
        origin=origin,
        plan=laid_out,
        rungs=ladder.rungs,
        making=making,
        taken=taken,
        sound=None if sound is None else layout.sound(version.video_id, sound),
        audio_folder=None if sound is None else layout.folder(version.video_id, "audio", sound),
        pictures_folder=_pictures_folder(context, version.video_id, laid_out, origin),
        captions=captions,
        captions_before=_captions_before(published, origin),
    )


def _chunk_seconds(asked: Asked, settings: Settings, facts: Facts) -> int:
    """Return how long chunks are: as asked for, or as a try before this one has cut them, or by the settings, or the film."""
    said = asked.chunk_seconds
    if said is None and asked.cut is not None and asked.cut >= settings.segment_seconds:
        said = asked.cut
    if said is None:
        said = settings.chunk_seconds
    if said is not None:
        return max(1, round(said))
    gap = 0.0 if facts.video is None else facts.video.key_frame_gap
    return usual_chunk(facts.seconds, settings.segment_seconds, key_frame_gap=gap)


def _captions_before(published: Version | None, origin: Origin) -> str | None:
    """Return what was written down of the same source: that stays true, however the pictures are encoded."""
    if published is None or published.plan is None or published.result is None:
        return None
    if msgspec.convert(published.plan, VersionPlan).origin.identity != origin.identity:
        return None
    found: str | None = published.result.get("captions")
    return found


def _found(context: Context, folders: Mapping[str, Rendition]) -> tuple[Taken, ...]:
    """Return the qualities that are there, intact and of the same recipe: of these no chunk need be encoded."""
    markers = ((rendition, folder, intact_package(context, folder)) for folder, rendition in folders.items())
    return tuple(
        Taken(rendition=rendition, folder=folder, facts=marker.facts, encoder=marker.encoder)
        for rendition, folder, marker in markers
        if marker is not None
    )


def _taken(
    context: Context,
    wanted: Sequence[str] | None,
    published: Version | None,
    *,
    origin: Origin,
    laid_out: Plan,
) -> tuple[Taken, ...]:
    """Return the qualities that are not to be made anew, as the published version has them."""
    if wanted is None or published is None or published.plan is None:
        return ()
    before = msgspec.convert(published.plan, VersionPlan)
    renditions = laid_out.renditions
    names = {one.name for one in renditions}
    if unknown := sorted(set(wanted) - names):
        raise MediaError(
            LADDER_INVALID,
            f"this video has no quality {', '.join(unknown)}: there are {', '.join(one.name for one in renditions)}.",
        )
    rest = [one for one in renditions if one.name not in wanted]
    if before.origin.identity != origin.identity or before.plan.segment_seconds != laid_out.segment_seconds:
        raise MediaError(
            LADDER_INVALID,
            "the source or the length of segments has changed, so the other qualities would not fit. Transcode all anew.",
        )
    ready = {one.name: one.result for one in published.qualities if one.result is not None}
    taken = []
    for rendition in rest:
        result = ready.get(rendition.name)
        # one that is damaged is made again, though nobody asked for it: the version could not be published with it
        if result is not None and intact_package(context, result["folder"]) is not None:
            taken.append(
                Taken(
                    rendition=rendition,
                    folder=result["folder"],
                    facts=msgspec.convert(result["facts"], PackageFacts),
                    encoder=result.get("encoder", ""),
                )
            )
    return tuple(taken)


def _needed(version_plan: VersionPlan) -> float:
    """Return about how many bytes this will take: chunks and packages lie side by side until the version is published.

    Bit rates are the most that is spent, and most films take less; what is short after all is found out by each chunk.
    """
    seconds = version_plan.plan.seconds
    video = sum(one.rendition.video_kbps for one in version_plan.making)
    sound = version_plan.plan.audio_kbps if version_plan.sound is not None else 0
    return 2 * (video + sound) * 125 * seconds * ROOMY


# --- the pictures ---------------------------------------------------------------------------------------------------------


def _pictures_folder(context: Context, video_id: str, laid_out: Plan, origin: Origin) -> str | None:
    if laid_out.video is None or not context.settings.pictures:
        return None
    return layout.folder(video_id, "pictures", pictures_recipe(laid_out, origin.identity))


def _with_pictures(context: Context, source: Path, version_plan: VersionPlan) -> VersionPlan:
    """Make poster and sprites, or find them: `pictures.json` is put last, so where it is, all of them are."""
    prefix = version_plan.pictures_folder
    if prefix is None:
        return version_plan
    key = f"{prefix}pictures.json"
    if (known := _pictures_found(context, prefix, key)) is not None:
        return msgspec.structs.replace(version_plan, pictures=known)
    with context.scratch() as folder, context.job.stage("pictures"):
        with context.watched(source, version_plan.origin):
            facts = pictures(
                source,
                version_plan.plan,
                folder,
                on_progress=lambda share: context.job.progress(70 + 25 * share),
                stop=context.stop,
                ffmpeg=context.ffmpeg,
            )
        for name in facts.files:
            context.storage.put(f"{prefix}{name}", folder / name, overwrite=True)
        listing = folder / "pictures.json"
        listing.write_bytes(msgspec.json.encode(facts))
        context.storage.put(key, listing, overwrite=True)
    return msgspec.structs.replace(version_plan, pictures=facts)


def _pictures_found(context: Context, prefix: str, key: str) -> PictureFacts | None:
    """Return the pictures that are there, when each of them is what was published."""
    if context.storage.head(key) is None:
        return None
    try:
        with context.storage.open(key) as file:
            facts = msgspec.json.decode(file.read(), type=PictureFacts)
    except msgspec.MsgspecError:
        return None
    return facts if all(context.storage.check(f"{prefix}{name}") for name in facts.files) else None


# --- handing out ----------------------------------------------------------------------------------------------------------


def _handed_out(
    context: Context, version: Version, version_plan: VersionPlan, facts: Facts, tasks: Tasks, *, before: Sequence[str]
) -> dict[str, Any]:
    """Enqueue every job and write the plan down, in the transaction that completes this job: all of it, or nothing."""
    calls = Calls(
        tasks,
        version.video_id,
        version.id,
        version_plan,
        prepare=str(context.job.id),
        before=before,
        together=context.settings.together,
    )
    qualities = [(one.name, one.required, _shown(one)) for one in version_plan.plan.renditions]
    with context.transaction() as (tx, on):
        done = context.do(
            moves.planned(
                on,
                version.id,
                facts=shown_facts(facts),
                plan=msgspec.to_builtins(version_plan),
                cut=_chunk_seconds(version.asked, context.settings, facts),
                jobs=calls.ids,
                qualities=qualities,
            )
        )
        if not done:
            raise Cancel("the video was deleted, or this version is not wanted any more")
        for one in version_plan.taken:
            context.do(moves.quality_ready(on, version.id, one.rendition.name, taken_result(one)))
        calls.enqueue(tx)
        return tx.complete({"qualities": [name for name, _, _ in qualities], "chunks": len(version_plan.plan.chunks)})


def taken_result(one: Taken) -> dict[str, Any]:
    """Return what the library keeps of a quality that was taken over."""
    return {
        "name": one.rendition.name,
        "facts": msgspec.to_builtins(one.facts),
        "folder": one.folder,
        "encoder": one.encoder,
        "chunks": 0,
        "reused": 0,
        "redone": (),
        "taken": True,
    }


def _shown(rendition: Rendition) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(rendition)
    return found


def shown_facts(facts: Facts) -> dict[str, Any]:
    """Return what the library keeps of a source."""
    found: dict[str, Any] = {"container": facts.container, "bytes": facts.size, "seconds": facts.seconds}
    if facts.video is not None:
        video = facts.video
        found |= {
            "width": video.width,
            "height": video.height,
            "frames": video.frames,
            "frame_rate": video.frame_rate[0] / video.frame_rate[1] if video.frame_rate[1] else 0.0,
            "codec": video.codec,
            "variable": video.variable,
        }
    if facts.audio:
        found["audio"] = facts.audio[0].codec
    return found
