"""Speech recognition by faster-whisper, in a process of its own: it can be ended, and what crashes is only that.

Extra `speech`: `pip install 'holdfast[speech]'`. The model is a folder, or a name such as `small` that faster-whisper knows; it
is looked for in its cache, and fetched only where that is allowed.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from holdfast_media.clip import child
from holdfast_media.errors import INTERNAL_TRANSIENT, SPEECH_MISSING, MediaError
from holdfast_media.ffmpeg.supervise import Late
from holdfast_media.speech.transcript import Segment, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_MODEL: Final = "small"
INSTALL: Final = "pip install 'holdfast[speech]'"
SPEAKER: Final = "speech recognition"
"""Who wrote what is told of a failure."""
LOOK_WITHIN: Final = 120.0
"""Seconds: the library takes some to load, and more on a busy machine."""
_found: Final[set[Search]] = set()
"""Models that this process has found: none is looked for twice."""


class Search(msgspec.Struct, frozen=True, kw_only=True, tag="look"):
    """Which model the process is to look for, and nothing else."""

    look_for: str
    cache: str | None


class Order(msgspec.Struct, frozen=True, kw_only=True, tag="listen"):
    """What the process is to do."""

    source: str
    model: str
    device: str
    compute: str
    threads: int
    cache: str | None
    download: bool
    beam: int
    skip_silence: bool
    language: str | None


class Heard(msgspec.Struct, frozen=True, kw_only=True, tag="heard"):
    """The beginning: what is spoken, and how long the file is."""

    language: str | None
    seconds: float


class Found(msgspec.Struct, frozen=True, kw_only=True, tag="found"):
    """The model that was looked for is here."""


class Said(msgspec.Struct, frozen=True, kw_only=True, tag="said"):
    """Something that is said."""

    start: float
    end: float
    text: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Why nothing came of it."""

    code: str
    message: str


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The end: without it, something is missing."""


def transcriber_of(model: str = DEFAULT_MODEL) -> FasterWhisper:
    """Return who listens with a model: a name, or a folder, which is found then wherever its worker was started."""
    folder = Path(model).expanduser()
    return FasterWhisper(model=str(folder.absolute()) if folder.is_dir() else model)


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterWhisper:
    """A `Transcriber` by faster-whisper."""

    model: str = DEFAULT_MODEL
    """A folder with a converted model, or a name: tiny, base, small, medium, large-v3, turbo, …"""
    device: str = "auto"
    """cpu, cuda or auto."""
    compute: str = "default"
    """How it computes: int8, float16, …"""
    threads: int = 0
    """Of the processor; 0: as many as it likes."""
    cache: Path | None = None
    """Where models are kept; else where faster-whisper keeps them."""
    download: bool = False
    """Whether a model that is not there is fetched."""
    beam: int = 5
    skip_silence: bool = True
    timeout: float = 14_400.0
    """Seconds for one file: `INTERNAL_TRANSIENT`, and the process is ended."""

    @property
    def recipe(self) -> str:
        """What determines its output."""
        return f"faster-whisper {self.model} beam={self.beam} skip_silence={self.skip_silence}"

    def check(self) -> None:
        """Raise `SPEECH_MISSING` when the package or the model is not there. A model that may be fetched need not be."""
        _package()
        if Path(self.model).is_absolute() or Path(self.model).is_dir():
            if not (Path(self.model) / "model.bin").is_file():
                raise MediaError(SPEECH_MISSING, "there is no model in the folder that is set: it has no file model.bin")
        elif not self.download:
            self._look()

    def _look(self) -> None:
        """Have a process look into the cache, as the one that listens will: where that is, the library alone knows."""
        search = Search(look_for=self.model, cache=None if self.cache is None else str(self.cache))
        if search in _found:
            return
        hearing = _Hearing(lambda _: None)
        try:
            ended = child.run(_process(search), timeout=LOOK_WITHIN, stop=lambda: None, on_line=hearing.line)
        except Late as late:
            raise MediaError(
                INTERNAL_TRANSIENT,
                f"looking for the model {self.model} took longer than {LOOK_WITHIN:g} s",
                detail=late.tail,
                said_by=SPEAKER,
            ) from None
        if hearing.failed is not None:
            raise MediaError(hearing.failed.code, hearing.failed.message, detail=ended.tail, said_by=SPEAKER)
        if not hearing.found:
            raise MediaError(
                INTERNAL_TRANSIENT,
                f"the process that looks for the model {self.model} ended early (exit {ended.returncode})",
                detail=ended.tail,
                said_by=SPEAKER,
            )
        _found.add(search)

    def transcribe(
        self,
        source: Path,
        *,
        language: str | None,
        on_progress: Callable[[float], None],
        stop: Callable[[], str | None],
    ) -> Transcript:
        """Return what is said in a file.

        Raises `MediaError`: `SPEECH_MISSING` when package or model are not there, `SPEECH_FAILED` when it gave up on this file,
        `INTERNAL_TRANSIENT` when its process died or took too long; and `Stopped`.
        """
        _package()
        order = Order(
            source=str(source),
            model=self.model,
            device=self.device,
            compute=self.compute,
            threads=self.threads,
            cache=None if self.cache is None else str(self.cache),
            download=self.download,
            beam=self.beam,
            skip_silence=self.skip_silence,
            language=language,
        )
        hearing = _Hearing(on_progress)
        try:
            ended = child.run(_process(order), timeout=self.timeout, stop=stop, on_line=hearing.line)
        except Late as late:
            raise MediaError(
                INTERNAL_TRANSIENT,
                f"speech recognition took longer than {self.timeout:g} s, and was ended",
                detail=late.tail,
                said_by=SPEAKER,
            ) from None
        if hearing.failed is not None:
            raise MediaError(hearing.failed.code, hearing.failed.message, detail=ended.tail, said_by=SPEAKER)
        if not hearing.done:
            raise MediaError(
                INTERNAL_TRANSIENT,
                f"the process that recognises speech ended early (exit {ended.returncode})",
                detail=ended.tail,
                said_by=SPEAKER,
            )
        return Transcript(tuple(hearing.segments), hearing.language or language)


def _package() -> None:
    if importlib.util.find_spec("faster_whisper") is None:
        raise MediaError(SPEECH_MISSING, f"faster-whisper, which recognises speech, is not installed. Install it: {INSTALL}")


def _process(told: Order | Search) -> list[str]:
    return [sys.executable, "-m", "holdfast_media.speech.whisper_process", msgspec.json.encode(told).decode()]


class _Hearing:
    """Collects what the process tells."""

    def __init__(self, on_progress: Callable[[float], None]) -> None:
        self._on_progress = on_progress
        self._seconds = 0.0
        self.segments: list[Segment] = []
        self.language: str | None = None
        self.failed: Failed | None = None
        self.done = False
        self.found = False

    def line(self, text: str) -> None:
        """Take a line; what is none of ours is the library's talk."""
        try:
            told = msgspec.json.decode(text, type=Heard | Found | Said | Failed | Done)
        except msgspec.MsgspecError:
            return
        match told:
            case Heard():
                self.language, self._seconds = told.language, told.seconds
            case Found():
                self.found = True
            case Said():
                self.segments.append(Segment(told.start, told.end, told.text))
                if self._seconds > 0:
                    self._on_progress(min(1.0, told.end / self._seconds))
            case Failed():
                self.failed = told
            case Done():
                self.done = True
                self._on_progress(1.0)
            case _:
                assert_never(told)
