"""The commands of `holdfast media`, by name, in the order in which help shows them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

if find_spec("av") is None:  # said here, where nothing else is loaded yet: later it would end in a failed job
    raise ImportError("No module named 'av'", name="av")

COMMANDS: Final = {
    "transcode": "holdfast_media.cli.transcode:transcode",
    "serve": "holdfast_media.web.command:serve",
    "clip": "holdfast_media.clip.command:clip",
    "ls": "holdfast_media.cli.videos:ls",
    "show": "holdfast_media.cli.videos:show",
    "watch": "holdfast_media.cli.watch:watch",
    "retranscode": "holdfast_media.cli.again:retranscode",
    "retry": "holdfast_media.cli.again:retry",
    "delete": "holdfast_media.cli.videos:delete",
    "ladder": "holdfast_media.cli.ladder:ladder",
    "demo": "holdfast_media.cli.demo:demo",
    "doctor": "holdfast_media.cli.doctor:doctor",
}
