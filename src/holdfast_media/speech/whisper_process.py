"""The process that recognises speech: `python -m holdfast_media.speech.whisper_process ORDER`. Prints lines of JSON."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast_media.errors import SPEECH_FAILED, SPEECH_MISSING
from holdfast_media.speech.whisper import INSTALL, Done, Failed, Found, Heard, Order, Said, Search

if TYPE_CHECKING:
    from collections.abc import Iterator


def main(text: str) -> None:
    """Do as ordered, and tell line by line what was heard, or whether the model is here."""
    order = msgspec.json.decode(text, type=Order | Search)
    for told in look_for(order) if isinstance(order, Search) else recognise(order):
        sys.stdout.write(msgspec.json.encode(told).decode() + "\n")
        sys.stdout.flush()


def look_for(search: Search) -> Iterator[Found | Failed]:
    """Look for a model where it would be loaded from, without asking the network."""
    try:
        from faster_whisper import download_model  # noqa: PLC0415  an extra, and slow to load
    except ImportError as error:
        yield _not_whole(error)
        return
    try:
        folder = download_model(search.look_for, local_files_only=True, cache_dir=search.cache)
    except ValueError as error:  # it has no model of that name, and says which it has
        yield Failed(code=SPEECH_MISSING, message=f"there is no model {search.look_for}: {error}")
        return
    except Exception:  # noqa: BLE001  whatever a hub or a cache raises: the model is not there
        folder = None
    if folder is None or not (Path(folder) / "model.bin").is_file():
        yield Failed(
            code=SPEECH_MISSING,
            message=f"the model {search.look_for} is not there, and nothing is fetched unasked. Fetch it once: "
            f"{_fetch(search)}. Or name the folder of one",
        )
        return
    yield Found()


def _fetch(search: Search) -> str:
    where = "" if search.cache is None else ", cache_dir=…"
    return f"python -c \"from faster_whisper import download_model; download_model('{search.look_for}'{where})\""


def _not_whole(error: ImportError) -> Failed:
    return Failed(
        code=SPEECH_MISSING, message=f"speech recognition is not installed whole ({error.name}). Install it: {INSTALL}"
    )


def recognise(order: Order) -> Iterator[Heard | Said | Failed | Done]:
    """Load the model and yield what is said as it is found."""
    try:
        import av  # noqa: PLC0415  comes with faster-whisper
        from faster_whisper import WhisperModel  # noqa: PLC0415  an extra, and slow to load
    except ImportError as error:
        yield _not_whole(error)
        return
    try:
        model: Any = WhisperModel(
            order.model,
            device=order.device,
            compute_type=order.compute,
            cpu_threads=order.threads,
            download_root=order.cache,
            local_files_only=not order.download,
        )
    except Exception as error:  # noqa: BLE001  whatever a hub, a cache or a broken model raises: there is no model
        yield Failed(code=SPEECH_MISSING, message=_no_model(order, error))
        return
    try:
        with av.open(order.source) as container:
            silent = not container.streams.audio
        if silent:
            yield Done()
            return
        segments, info = model.transcribe(
            order.source, language=order.language, beam_size=order.beam, vad_filter=order.skip_silence
        )
        yield Heard(language=info.language, seconds=float(info.duration))
        for segment in segments:
            start, end = float(segment.start), float(segment.end)
            if segment.text.strip() and math.isfinite(start) and math.isfinite(end):
                yield Said(start=start, end=end, text=segment.text.strip())
    except Exception as error:  # noqa: BLE001  whatever the library makes of this file
        yield Failed(code=SPEECH_FAILED, message=f"speech recognition gave up: {type(error).__name__}: {error}")
        return
    yield Done()


def _no_model(order: Order, error: Exception) -> str:
    how = (
        "it could not be fetched"
        if order.download
        else "allow it to be fetched once (download=True), or fetch it by hand and name its folder"
    )
    name = order.model if "/" not in order.model else "in the folder that is set"
    return f"the model {name} is not there or does not load ({type(error).__name__}): {how}"


if __name__ == "__main__":
    main(sys.argv[1])
