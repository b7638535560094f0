"""`holdfast media ladder`: which qualities there are."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  read by the command line at run time
from typing import Annotated

import msgspec
from cyclopts import Parameter

from holdfast_media.cli.common import ERROR, OK, note, print_json, print_table
from holdfast_media.errors import MediaError
from holdfast_media.ladder import ladder_of


def ladder(file: Path | None = None, /, *, as_json: Annotated[bool, Parameter(name="--json", negative="")] = False) -> int:
    """Show the qualities of the ladder that comes with the package, or check one of your own.

    Example: holdfast media ladder mine.toml

    Parameters
    ----------
    file
        A TOML file with a ladder; without it the default one is shown.
    as_json
        Print JSON.
    """
    try:
        found = ladder_of("default" if file is None else str(file))
    except MediaError as error:
        note(f"error: {error}")
        return ERROR
    if as_json:
        print_json(msgspec.to_builtins(found))
        return OK
    rows = [
        (
            rung.name,
            str(rung.height),
            f"{rung.video_kbps} kbit/s",
            f"{rung.audio_kbps} kbit/s",
            "required" if rung.required else "optional",
        )
        for rung in found.rungs
    ]
    print_table(("QUALITY", "HEIGHT", "PICTURE", "SOUND", ""), rows, empty="no qualities")
    return OK
