"""`holdfast media retranscode, retry`: have a video made anew or tried again, and watch."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from holdfast_media.cli.common import COMMON, USAGE, Common, Flag, actor, note, run
from holdfast_media.cli.videos import ladder_path
from holdfast_media.cli.working import have_it_heard, is_as_asked, left_to_others, slots_of, watched
from holdfast_media.errors import MediaError
from holdfast_media.ladder import ladder_of
from holdfast_media.library import Asked
from holdfast_media.settings import seconds

if TYPE_CHECKING:
    from holdfast_media.library import Version, Video
    from holdfast_media.media import Media


def retranscode(
    video: str,
    /,
    *qualities: str,
    ladder: str | None = None,
    chunk_seconds: Annotated[str | None, Parameter(alias="--chunk")] = None,
    transcribe: Flag = False,
    fresh: Flag = False,
    replace: Flag = False,
    model: str | None = None,
    encoder: str | None = None,
    together: bool | None = None,
    workers: int | None = None,
    detach: Flag = False,
    common: Common = COMMON,
) -> int:
    """Have a video transcoded anew: all of it, or the named qualities. What is published plays until the new one is there.

    Example: holdfast media retranscode 01890a5d 720p 480p

    This command does the work and watches, as `transcode` does: Ctrl-C ends it after what runs, and the same command later goes
    on from there. Exit code 1 when it failed.

    Parameters
    ----------
    video
        Its id, or the beginning of it.
    qualities
        Only these; the others are taken over.
    ladder
        The qualities that are wanted from now on: `default`, or a TOML file. Else those that it was made with.
    chunk_seconds
        How much one job encodes. Else as it was made.
    transcribe
        Write down what is said, too (extra `speech`).
    fresh
        Encode everything again, also what is there and intact.
    replace
        Give up a version that is being made. What is published plays on.
    model
        What --transcribe listens with: a name, or a folder. Else HOLDFAST_MEDIA_SPEECH_MODEL, else small.
    encoder
        auto, x264, nvenc, qsv, vaapi or videotoolbox. Else by the settings, however it was made before.
    together
        Encode each chunk in all qualities at once, or with --no-together quality by quality. Else by the settings, however it
        was made before.
    workers
        How many jobs run at once in this process; 0 leaves the work to other workers.
    detach
        Only enqueue, and leave the work to other workers.
    """
    try:
        chunk = None if chunk_seconds is None else seconds(chunk_seconds)
    except ValueError as error:
        note(f"error: --chunk-seconds {error}")
        return USAGE
    path = ladder_path(ladder)

    async def work(media: Media) -> int:
        slots = slots_of(workers, detach=detach)
        asked = Asked(
            ladder=path,
            rungs=None if path is None else ladder_of(path).rungs,
            chunk_seconds=chunk,
            qualities=qualities or None,
            transcribe=transcribe,
            fresh=fresh,
        )
        if transcribe and slots:
            have_it_heard(media)
        found = await media.library.find(video)
        newest = found.newest
        if newest is not None and newest.active and not replace and _is_it(newest, asked):
            return await _gone_on_with(media, found, newest, slots, detach=detach, common=common)
        found = await media.library.retranscode(
            found.id,
            qualities=asked.qualities,
            ladder=path,
            chunk_seconds=chunk,
            transcribe=transcribe,
            fresh=fresh,
            replace=replace,
            by=actor(),
        )
        return left_to_others(media, found, common) if detach else await watched(media, [found.id], slots, common)

    return run(common, work, encoder=encoder, together=together, speech_model=model)


def retry(
    video: str,
    /,
    *,
    model: str | None = None,
    encoder: str | None = None,
    together: bool | None = None,
    workers: int | None = None,
    detach: Flag = False,
    common: Common = COMMON,
) -> int:
    """Have a failed video tried again; chunks that were completed are not encoded again.

    Example: holdfast media retry 01890a5d

    This command does the work and watches, as `transcode` does: Ctrl-C ends it after what runs, and the same command later goes
    on from there. Exit code 1 when it failed again.

    Parameters
    ----------
    video
        Its id, or the beginning of it.
    model
        What listens, where subtitles were asked for: a name, or a folder. Else HOLDFAST_MEDIA_SPEECH_MODEL, else small.
    encoder
        auto, x264, nvenc, qsv, vaapi or videotoolbox. Else by the settings, however it was made before.
    together
        Encode each chunk in all qualities at once, or with --no-together quality by quality. Else by the settings, however it
        was made before.
    workers
        How many jobs run at once in this process; 0 leaves the work to other workers.
    detach
        Only enqueue, and leave the work to other workers.
    """

    async def work(media: Media) -> int:
        slots = slots_of(workers, detach=detach)
        found = await media.library.find(video)
        if found.newest is not None and found.newest.asked.transcribe and slots:
            with nullcontext() if model is not None else suppress(MediaError):  # else its subtitles are missed in the end
                have_it_heard(media)
        if found.newest is not None and found.newest.active:
            return await _gone_on_with(media, found, found.newest, slots, detach=detach, common=common)
        found = await media.library.retry(found.id, by=actor())
        return left_to_others(media, found, common) if detach else await watched(media, [found.id], slots, common)

    return run(common, work, encoder=encoder, together=together, speech_model=model)


def _is_it(version: Version, asked: Asked) -> bool:
    """Tell whether a version is what is asked for: then the same command was given before."""
    same = (version.asked.qualities, version.asked.transcribe, version.asked.fresh) == (
        asked.qualities,
        asked.transcribe,
        asked.fresh,
    )
    return same and is_as_asked(version, asked)


async def _gone_on_with(media: Media, video: Video, version: Version, slots: int, *, detach: bool, common: Common) -> int:
    note(f"version {version.number} is being made already: going on with it")
    return left_to_others(media, video, common) if detach else await watched(media, [video.id], slots, common)
