"""`holdfast media doctor`: whether this machine can transcode, each line with the fix."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast import HoldfastError
from holdfast_media import settings as configuration
from holdfast_media.cli.common import (
    COMMON,
    ERROR,
    OK,
    OTHER_SCRATCH,
    Common,
    local_folder,
    nearest,
    print_json,
    print_table,
    unusable,
)
from holdfast_media.errors import MediaError
from holdfast_media.ffmpeg import available, look_for_ffmpeg
from holdfast_media.ladder import ladder_of
from holdfast_media.speech.whisper import INSTALL, transcriber_of
from holdfast_media.storage import storage_from
from holdfast_media.words import size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from holdfast_media.settings import Settings

LITTLE = 5 * 10**9
"""Bytes free below which a film may not fit."""


def doctor(*, common: Common = COMMON) -> int:
    """Look for what keeps this machine from transcoding: ffmpeg, encoders that really work, disk, storage, settings.

    Example: holdfast media doctor

    Each line says ok, warn or fail, and how to mend it. Exit code 1 when something fails.
    """
    checks = list(_checks(common))
    if common.as_json:
        print_json([{"name": name, "level": level, "text": text, "fix": fix} for name, level, text, fix in checks])
    else:
        print_table(("", "", "", "FIX"), [(level, name, text, fix) for name, level, text, fix in checks], empty="")
    return ERROR if any(level == "fail" for _, level, _, _ in checks) else OK


def _checks(common: Common) -> Iterator[tuple[str, str, str, str]]:
    try:
        settings = configuration.load({"storage": common.out})
    except HoldfastError as error:
        yield "settings", "fail", str(error), "mend the setting"
        return
    yield "settings", "ok", f"output to {settings.storage}, scratch in {settings.scratch}", ""
    yield from _ffmpeg(settings)
    if find_spec("av") is None:
        yield "probe", "fail", "the package av is missing", "pip install 'holdfast[media]'"
    else:
        yield "probe", "ok", "av is installed", ""
    try:
        found = ladder_of(settings.ladder)
        yield "ladder", "ok", ", ".join(rung.name for rung in found.rungs), ""
    except MediaError as error:
        yield "ladder", "fail", error.message, "holdfast media ladder shows one that works"
    yield from _speech(settings)
    yield from _room(settings)


def _ffmpeg(settings: Settings) -> Iterator[tuple[str, str, str, str]]:
    try:
        found = look_for_ffmpeg(settings.ffmpeg)
    except MediaError as error:
        yield "ffmpeg", "fail", error.message, "apt install ffmpeg, or pip install 'holdfast[media]'"
        return
    said = f"{found.version} {found.program}".strip()
    if found.passed_over:
        yield "ffmpeg", "warn", f"{said}: {found.passed_over}", "install a newer one, or leave it: the one named here is used"
    else:
        yield "ffmpeg", "ok", said, ""
    families = sorted(available(found.program))
    if not families:
        yield "encoders", "fail", "not even libx264 encodes a frame", "use another ffmpeg: HOLDFAST_FFMPEG=/path/to/ffmpeg"
        return
    yield "encoders", "ok", ", ".join(families), ""
    wanted = settings.hardware
    if wanted is not None and wanted not in families:
        yield (
            "encoder",
            "warn",
            f"{wanted} is set and does not work here: libx264 does it",
            "look at the driver, or encoder = auto",
        )
    hardware = [one for one in families if one in configuration.FAMILIES]
    if hardware:
        yield "workers", "ok", f"publish as capabilities: {', '.join(hardware)}", ""


def _speech(settings: Settings) -> Iterator[tuple[str, str, str, str]]:
    """Look for what writes down what is said, where that is wanted."""
    if settings.speech_model is None:
        return
    try:
        transcriber_of(settings.speech_model).check()
        yield "speech", "ok", f"faster-whisper with the model {settings.speech_model}", ""
    except MediaError as error:
        fix = INSTALL if find_spec("faster_whisper") is None else "fetch it, or name another: speech_model"
        yield "speech", "fail", error.message, fix


def _room(settings: Settings) -> Iterator[tuple[str, str, str, str]]:
    yield _folder("scratch", settings.scratch, OTHER_SCRATCH)
    fix = "name another place: HOLDFAST_MEDIA_STORAGE"
    if (folder := local_folder(settings.storage)) is not None:
        yield _folder("storage", folder, fix)
        return
    try:
        storage = storage_from(settings.storage)
        free = storage.free_bytes()
        storage.close()
    except (MediaError, OSError) as error:
        yield "storage", "fail", str(error), "mend storage in [media] of holdfast.toml"
        return
    if free is None:
        yield "storage", "ok", f"{settings.storage}; nobody can say how much room there is", ""
    else:
        yield _disk("storage", free, settings.storage, fix)


def _folder(name: str, folder: Path, fix: str) -> tuple[str, str, str, str]:
    if why := unusable(folder):
        return name, "fail", why, fix
    return _disk(name, shutil.disk_usage(nearest(folder)).free, str(folder), fix)


def _disk(name: str, free: int, place: str, fix: str) -> tuple[str, str, str, str]:
    return name, "ok" if free >= LITTLE else "warn", f"{size(free)} free in {place}", "" if free >= LITTLE else fix
