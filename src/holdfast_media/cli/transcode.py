"""`holdfast media transcode`: add files, have them transcoded, and watch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from holdfast_media.cli.common import COMMON, USAGE, Common, Flag, actor, command, note, run
from holdfast_media.cli.finding import media_files
from holdfast_media.cli.videos import ladder_path, no_subtitles
from holdfast_media.cli.working import encoding_said, have_it_heard, is_as_asked, model_said, slots_of, told, watched
from holdfast_media.ladder import ladder_of
from holdfast_media.library import Asked, BadRequest, VersionState
from holdfast_media.settings import seconds

if TYPE_CHECKING:
    from holdfast_media.library import Version, Video
    from holdfast_media.media import Media


def transcode(
    *sources: Path,
    ladder: str | None = None,
    chunk_seconds: Annotated[str | None, Parameter(alias="--chunk")] = None,
    workers: int | None = None,
    encoder: str | None = None,
    together: bool | None = None,
    transcribe: Flag = False,
    model: str | None = None,
    detach: Flag = False,
    common: Common = COMMON,
) -> int:
    """Transcode files, or every media file of a folder, into HLS in several qualities.

    Example: holdfast media transcode film.mp4 --storage media

    The work is kept as jobs: Ctrl-C ends this program after what runs, and the same command later goes on from there. What is
    done is not done again. Exit code 1 when a video failed.

    Parameters
    ----------
    sources
        Files, or folders with media files.
    ladder
        The qualities: `default`, or a TOML file (see `holdfast media ladder`).
    chunk_seconds
        How much one job encodes: what a killed process costs at most for each job that it ran. Else about a tenth of the
        film, from 6 s to a minute; more where its key frames are farther apart.
    workers
        How many jobs run at once in this process; 0 leaves the work to other workers.
    encoder
        auto, x264, nvenc, qsv, vaapi or videotoolbox.
    together
        Encode each chunk in all qualities at once, which is the least work: there is something to watch when the last chunk is
        encoded. `--no-together`: quality by quality, the smallest first, which plays while the others are made.
    transcribe
        Write down what is said, too (extra `speech`).
    model
        What --transcribe listens with: a name, or a folder. Else HOLDFAST_MEDIA_SPEECH_MODEL, else small.
    detach
        Only enqueue, and leave the work to other workers.
    """
    if not sources:
        note("error: which file? holdfast media transcode FILE")
        return USAGE
    try:
        slots = slots_of(workers, detach=detach)
    except BadRequest as error:
        note(f"error: {error}")
        return USAGE
    try:
        chunk = None if chunk_seconds is None else seconds(chunk_seconds)
    except ValueError as error:
        note(f"error: --chunk-seconds {error}")
        return USAGE
    path = ladder_path(ladder)

    async def work(media: Media) -> int:
        files = media_files(sources, but=_folder(media))
        if transcribe and slots:
            have_it_heard(media)
        rungs = None if path is None else ladder_of(path).rungs
        asked = Asked(ladder=path, rungs=rungs, chunk_seconds=chunk, transcribe=transcribe)
        videos = [await _asked_for(media, file, asked, common) for file in files]
        if detach:
            return told(media, videos, common)
        return await watched(media, [video.id for video in videos], slots, common)

    return run(common, work, create=True, encoder=encoder, together=together, speech_model=model)


def _folder(media: Media) -> Path | None:
    storage = media.settings.storage
    return None if "://" in storage else Path(storage).expanduser().absolute()


async def _asked_for(media: Media, file: Path, asked: Asked, common: Common) -> Video:
    """Have a file transcoded, unless that is done or under way: so the same command may be given again and again."""
    library = media.library
    options: dict[str, Any] = {
        "ladder": asked.ladder,
        "chunk_seconds": asked.chunk_seconds,
        "transcribe": asked.transcribe,
        "by": actor(),
    }
    found = await library.by_reference(f"file:{file}")
    if found is None:
        return await library.add(file, reference=f"file:{file}", title=file.stem, **options)
    newest = found.newest
    if newest is not None and newest.active:
        if not is_as_asked(newest, asked):
            raise BadRequest(
                f"{file.name} is being transcoded with other settings. Wait until that has ended, or give it up for this; "
                f"what is published plays on: {_instead(media, found, asked, common)}"
            )
        return found
    if newest is None or newest.state is VersionState.CANCELED or not is_as_asked(newest, asked) or _changed(file, newest):
        return await library.retranscode(found.id, **options)
    if asked.transcribe and no_subtitles(newest):  # nobody could write them then
        return await library.retranscode(found.id, **options)
    return await library.retry(found.id, by=actor()) if newest.state is VersionState.FAILED else found


def _instead(media: Media, video: Video, asked: Asked, common: Common) -> str:
    """Return the command that gives up what is being made of a video, and has this made."""
    ladder = [] if asked.ladder is None else ["--ladder", _near(asked.ladder)]
    chunk = [] if asked.chunk_seconds is None else ["--chunk-seconds", f"{asked.chunk_seconds:g}"]
    heard = ["--transcribe", *model_said(media)] if asked.transcribe else []
    return command(common, "retranscode", video.id, *ladder, *chunk, *heard, *encoding_said(media), "--replace")


def _near(path: str) -> str:
    """Return a path as one would type it here."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path


def _changed(file: Path, version: Version) -> bool:
    """Tell whether a file has changed since it was probed."""
    origin: dict[str, Any] = (version.plan or {}).get("origin", {})
    now = file.stat()
    return bool(origin) and (origin.get("size"), origin.get("modified")) != (now.st_size, now.st_mtime_ns)
