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

INSTALL: Final = "pip install 'holdfast[speech]'"


class Order(msgspec.Struct, frozen=True, kw_only=True):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterWhisper:
    """A `Transcriber` by faster-whisper."""

    model: str = "small"
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
        """Raise `SPEECH_MISSING` when the package is not installed, or a model that is a folder is not there."""
        if importlib.util.find_spec("faster_whisper") is None:
            raise MediaError(
                SPEECH_MISSING, f"faster-whisper, which recognises speech, is not installed. Install it: {INSTALL}"
            )
        if "/" in self.model and Path(self.model).is_absolute() and not (Path(self.model) / "model.bin").is_file():
            raise MediaError(SPEECH_MISSING, "there is no model in the folder that is set: it has no file model.bin")

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
        self.check()
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
        command = [sys.executable, "-m", "holdfast_media.speech.whisper_process", msgspec.json.encode(order).decode()]
        try:
            ended = child.run(command, timeout=self.timeout, stop=stop, on_line=hearing.line)
        except Late:
            raise MediaError(
                INTERNAL_TRANSIENT, f"speech recognition took longer than {self.timeout:g} s, and was ended"
            ) from None
        if hearing.failed is not None:
            raise MediaError(hearing.failed.code, hearing.failed.message, detail=ended.tail)
        if not hearing.done:
            raise MediaError(
                INTERNAL_TRANSIENT,
                f"the process that recognises speech ended early (exit {ended.returncode})",
                detail=ended.tail,
            )
        return Transcript(tuple(hearing.segments), hearing.language or language)


class _Hearing:
    """Collects what the process tells."""

    def __init__(self, on_progress: Callable[[float], None]) -> None:
        self._on_progress = on_progress
        self._seconds = 0.0
        self.segments: list[Segment] = []
        self.language: str | None = None
        self.failed: Failed | None = None
        self.done = False

    def line(self, text: str) -> None:
        """Take a line; what is none of ours is the library's talk."""
        try:
            told = msgspec.json.decode(text, type=Heard | Said | Failed | Done)
        except msgspec.MsgspecError:
            return
        match told:
            case Heard():
                self.language, self._seconds = told.language, told.seconds
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
