"""Which ffmpeg is used: the one that is set, else the one on PATH, else the one of the wheel `imageio-ffmpeg`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from holdfast_media.errors import FFMPEG_MISSING, MediaError

VARIABLE: Final = "HOLDFAST_FFMPEG"


def find_ffmpeg(setting: str | os.PathLike[str] | None = None) -> Path:
    """Return the program to run; raises FFMPEG_MISSING when there is none, or when the one that is set is none.

    A setting that leads nowhere is never passed over in silence: who set it wants that one.
    """
    named = setting or os.environ.get(VARIABLE)
    if named:
        if (found := shutil.which(named)) is None:
            raise MediaError(
                FFMPEG_MISSING,
                f"the ffmpeg that is set ({Path(named).name!r}) is no program that can be run. "
                f"Correct the setting or {VARIABLE}, or remove it to use the one on PATH.",
            )
        return Path(found).absolute()
    if (found := shutil.which("ffmpeg")) is not None:
        return Path(found).absolute()
    try:
        from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]  # noqa: PLC0415  where no other is

        return Path(get_ffmpeg_exe()).absolute()
    except (ImportError, RuntimeError) as error:
        raise MediaError(
            FFMPEG_MISSING,
            "no ffmpeg on this machine. Install one (apt install ffmpeg, or pip install 'holdfast[media]'), "
            f"or name it in {VARIABLE}.",
        ) from error
