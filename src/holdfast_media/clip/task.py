"""The task that makes clips: resolve, clip, upload, asr, finalize."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import Aborted, AbortReason, Holdfast, Job, Limit, Retryable, StaleLease, Task
from holdfast_media import ffmpeg, room
from holdfast_media.clip import artifacts, recipe
from holdfast_media.clip.addresses import networks
from holdfast_media.clip.cutting import Cut, check_range, container_for, cut, room_for
from holdfast_media.clip.deadline import Deadline
from holdfast_media.clip.failures import CODES, classify, translated
from holdfast_media.clip.reading import read_stretch
from holdfast_media.clip.recipe import Manifest, Request, make_request
from holdfast_media.clip.redaction import Redaction
from holdfast_media.clip.resolving import Resolved, Source, is_address, resolve
from holdfast_media.clip.scratch import Scratch, scratch, sweep
from holdfast_media.errors import OUTPUT_EMPTY, SPEECH_MISSING, STORAGE_UPLOAD_FAILED, MediaError
from holdfast_media.speech import webvtt
from holdfast_media.speech.transcribing import transcribe
from holdfast_media.storage import Attempt, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast_media.clip.settings import ClipSettings
    from holdfast_media.speech.transcript import Transcriber
    from holdfast_media.storage import Stored

NAME: Final = "media.clip"
SHARES: Final = {"resolve": (0, 20), "clip": (20, 80), "upload": (80, 88), "asr": (88, 99), "finalize": (99, 100)}
"""From which percent to which each stage goes."""
LONGEST: Final = 86_400.0
"""Seconds of one attempt: more than the time-outs of its stages come to."""


class ClipResult(msgspec.Struct, frozen=True, kw_only=True):
    """A clip that is there. Times are seconds of the source, from its first frame."""

    key: str
    """In the storage."""
    url: str
    """Where that is, for people."""
    size: int
    sha256: str
    asked_start: float
    asked_end: float | None
    start: float
    """Of its first frame. A fast clip begins at the key frame before what was asked for."""
    end: float
    """Where its last frame ends."""
    key_frame: float | None
    """The key frame that a fast clip begins with; `None`: it was encoded, and is exact."""
    frames: int
    container: str
    encoder: str
    """`libx264`, `aac` for sound alone, or `copy`."""
    reused: bool
    """Whether it was there before, and nothing was cut."""
    captions: str | None = None
    """The key of what is said in it, as WebVTT."""
    language: str | None = None
    captions_reused: bool = False


def declare(app: Holdfast, settings: ClipSettings) -> Task[..., ClipResult]:
    """Declare the task `media.clip` on an app.

    `await task.enqueue("/films/a.mp4", 3.3, 5.3)` asks for a clip. While one is on its way, asking again for the same gives the
    same job; once it is there, asking again finds it and cuts nothing. Raises `BadSetting`.
    """
    networks(settings.networks)  # refused now, and not by every job

    @app.task(
        name=NAME,
        queue=settings.queue,
        retry=settings.retry,
        timeout=LONGEST,
        lease=settings.lease,
        executor="thread",
        key=lambda *args, **options: recipe.job_key(make_request(*args, **options)),
        # with and without subtitles are two jobs for one clip: the second waits, and finds what the first has cut
        limit=Limit(1, key=lambda *args, **options: recipe.work_key(make_request(*args, **options))),
        codes=CODES,
        classify=classify,
    )
    def clip(
        source: str,
        start: float = 0.0,
        end: float | None = None,
        *,
        fast: bool = False,
        asr: bool = False,
        language: str | None = None,
        job: Job,
    ) -> ClipResult:
        return _Clip(job, settings, make_request(source, start, end, fast=fast, asr=asr, language=language)).run()

    return clip


class _Clip:
    """One attempt at a clip."""

    def __init__(self, job: Job, settings: ClipSettings, request: Request) -> None:
        self._job, self._settings, self._request = job, settings, request
        known = [] if is_address(request.source) else [request.source]
        self._shown = Redaction(settings.scratch, known)
        self._stage = "resolve"

    def run(self) -> ClipResult:
        with translated(self._shown, self._job.abort.check, self._job.log.error), ExitStack() as stack:
            recipe.check(self._request)
            place = stack.enter_context(scratch(self._settings.scratch, self._job.id, self._job.attempt))
            try:
                for name in sweep(self._settings.scratch, self._settings.keep_scratch, but=self._job.id):
                    self._job.log.info("swept what job %s has left", name)
                with translated(self._shown, self._job.abort.check, self._job.log.error):
                    result = self._stages(place, stack)
            except StaleLease:
                raise  # somebody else works in there now
            except Aborted as aborted:
                if aborted.reason == AbortReason.CANCELED:
                    place.forget()
                raise
            except Retryable:
                if self._job.failures + 1 >= (self._settings.retry.max_attempts or float("inf")):
                    place.forget()
                raise
            except BaseException:
                place.forget()
                raise
            place.forget()
            return result

    def _stages(self, place: Scratch, stack: ExitStack) -> ClipResult:
        self._storage = self._settings.storage().bind(Attempt.of(self._job), stop=self._stop)
        transcriber = self._transcriber()
        with self._in("resolve"):
            source = stack.enter_context(
                resolve(
                    self._request.source,
                    place,
                    self._settings,
                    earlier=self._earlier("resolve", Resolved),
                    stop=self._stop,
                    on_progress=self._share,
                )
            )
            self._job.checkpoint("resolve", data=msgspec.to_builtins(source.resolved))
            folder = recipe.clip_folder(self._request, source.resolved.identity)
            found = artifacts.find(self._storage, folder)
            if found is not None:
                self._job.log.info("the clip is there already: nothing is cut")
        manifest = found or self._made(place, source, folder)
        captions = self._captions(place, folder, manifest, transcriber)
        with self._in("finalize"):
            self._check_there(manifest)
            return self._result(manifest, reused=found is not None, captions=captions)

    # --- the stages ---

    def _made(self, place: Scratch, source: Source, folder: str) -> Manifest:
        with self._in("clip"):
            made, path = self._cut(place, source)
        with self._in("upload"):
            stored = self._uploaded(recipe.clip_key(folder, made.container), path)
            manifest = artifacts.describe(
                self._storage, folder, made, stored, work=place.work("clip.json"), before_publish=self._job.abort.check
            )
            self._job.checkpoint("upload", data={"key": stored.key, "size": stored.size})
            return manifest

    def _cut(self, place: Scratch, source: Source) -> tuple[Cut, Path]:
        """Cut, or take what an earlier attempt on this machine has cut out of the same bytes."""
        earlier = self._job.data("clip") or {}
        kept = place.done / str(earlier.get("file", "-"))
        same = earlier.get("source") == source.resolved.identity  # the source may have been replaced meanwhile
        if same and kept.is_file() and sha256_of(kept) == earlier["sha256"]:
            self._job.log.info("attempt %s has cut it already", earlier["attempt"])
            return msgspec.convert(earlier["cut"], Cut), kept
        request, stop = self._request, self._stop
        path = source.fetch(lambda share: self._share(share * 0.3))
        limit = self._settings.clip_timeout
        deadline = Deadline(ffmpeg.time_limit(0.0) if limit is None else limit)
        stretch = read_stretch(path, request.start, request.end, stop=stop, deadline=deadline)
        check_range(stretch, request.start, request.end, fast=request.fast)
        places = [("storage", self._storage.free_bytes()), ("scratch", room.free_bytes(place.folder))]
        room.check_room(room_for(path, stretch, request.start, request.end), self._settings.reserve, places)
        container = container_for(stretch, fast=request.fast)
        work = place.work(f"clip.{container}")
        if limit is None:
            seconds = (request.end if request.end is not None else stretch.seconds or 0.0) - request.start
            deadline = replace(deadline, seconds=ffmpeg.time_limit(seconds, 3.5))
        made = cut(
            path,
            work,
            stretch,
            request.start,
            request.end,
            fast=request.fast,
            program=self._settings.ffmpeg,
            deadline=deadline,
            stall_after=self._settings.stall_after,
            scratch=self._settings.scratch,
            on_progress=lambda share: self._share(0.3 + share * 0.7),
            stop=stop,
        )
        source.check_unchanged()
        done = place.finish(work, f"final.{container}")
        data = {
            "source": source.resolved.identity,
            "cut": msgspec.to_builtins(made),
            "file": done.name,
            "sha256": sha256_of(done),
            "attempt": self._job.attempt,
        }
        self._job.checkpoint("clip", data=data)
        self._job.log.info("cut %d frames from %.3f s to %.3f s by %s", made.frames, made.start, made.end, made.encoder)
        return made, done

    def _uploaded(self, key: str, path: Path) -> Stored:
        if path.stat().st_size == 0:
            raise MediaError(OUTPUT_EMPTY, "the clip has no bytes")
        try:
            return artifacts.publish(self._storage, key, path, on_progress=self._share, before_publish=self._job.abort.check)
        except OSError as error:
            raise MediaError(STORAGE_UPLOAD_FAILED, f"the storage did not take the clip: {error.strerror or error}") from None

    def _captions(
        self, place: Scratch, folder: str, manifest: Manifest, transcriber: Transcriber | None
    ) -> tuple[str, str | None, bool] | None:
        """Return the key of what is said, its language, and whether it was there before."""
        if transcriber is None:
            return None
        with self._in("asr"):
            key = recipe.captions_key(folder, transcriber.recipe, self._request.language)
            if artifacts.intact(self._storage, key):
                with self._storage.open(key) as file:
                    return key, webvtt.parse(file.read().decode()).language, True
            work = place.work("captions.vtt")
            with self._storage.lend(manifest.key) as path:
                said = transcribe(
                    transcriber, path, work, language=self._request.language, on_progress=self._share, stop=self._stop
                )
            artifacts.publish(self._storage, key, work, before_publish=self._job.abort.check)
            self._job.checkpoint("asr", data={"key": key, "language": said.language})
            return key, said.language, False

    def _check_there(self, manifest: Manifest) -> None:
        """Look once more before it is said that the clip is there."""
        stored = self._storage.head(manifest.key)
        # not every storage keeps the SHA-256; of what was found, and of what was just put, every byte was seen
        if stored is None or stored.size != manifest.size or stored.sha256 not in {None, manifest.sha256}:
            raise MediaError(STORAGE_UPLOAD_FAILED, "the storage took the clip, and does not have it now")

    def _result(self, manifest: Manifest, *, reused: bool, captions: tuple[str, str | None, bool] | None) -> ClipResult:
        self._job.progress(100)
        made = manifest.cut
        key, language, captions_reused = captions or (None, None, False)
        return ClipResult(
            key=manifest.key,
            url=self._storage.url_for(manifest.key),
            size=manifest.size,
            sha256=manifest.sha256,
            asked_start=self._request.start,
            asked_end=self._request.end,
            start=made.start,
            end=made.end,
            key_frame=made.key_frame,
            frames=made.frames,
            container=made.container,
            encoder=made.encoder,
            reused=reused,
            captions=key,
            language=language,
            captions_reused=captions_reused,
        )

    # --- what they share ---

    def _transcriber(self) -> Transcriber | None:
        """Return who writes down what is said; asked before anything is done, so that nothing is done in vain."""
        if not self._request.asr:
            return None
        if self._settings.transcriber is None:
            raise MediaError(SPEECH_MISSING, "no transcriber is set up: give one to the settings, or leave out asr")
        self._settings.transcriber.check()
        return self._settings.transcriber

    @contextmanager
    def _in(self, name: str) -> Iterator[None]:
        self._job.abort.check()
        self._stage = name
        self._job.progress(SHARES[name][0])
        with self._job.stage(name):
            yield

    def _share(self, share: float) -> None:
        begin, end = SHARES[self._stage]
        self._job.progress(begin + (end - begin) * min(1.0, max(0.0, share)))

    def _stop(self) -> str | None:
        return str(self._job.abort.reason) if self._job.abort.is_set() else None

    def _earlier(self, name: str, kind: Any) -> Any:
        data = self._job.data(name)
        return None if data is None else msgspec.convert(data, kind)
