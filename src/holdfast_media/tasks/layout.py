"""Where everything is in the storage. Keys hold recipes: what lies under one is always the same.

videos/<id>/master.m3u8              what plays now; the one file that changes
videos/<id>/v<number>/master.m3u8    the same of one version
videos/<id>/<quality>-<recipe>/      playlist and segments of a quality
videos/<id>/audio-<recipe>/          those of the sound
videos/<id>/pictures-<recipe>/       poster, sprite sheets and their track
videos/<id>/captions-<recipe>.vtt    what is said
videos/<id>/chunks/<recipe>.mp4      encoded chunks; gone once they are packaged and published
videos/<id>/chunks/<recipe>.json     what encoded each; likewise
videos/<id>/sound/<recipe>.mp4       the encoded sound; likewise
videos/<id>/source/<identity>        the source, where it was copied
uploads/<id>                         a source that somebody has sent; it goes with its video
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

UPLOADS = "uploads/"
"""Where sources are that people have sent."""
VIDEOS = "videos/"
"""Where everything of videos is."""
SHORT = 16
"""Digits of a recipe in the name of a folder."""


def home(video_id: str) -> str:
    """Return the prefix of everything of a video."""
    return f"{VIDEOS}{video_id}/"


def stable_master(video_id: str) -> str:
    """Return the key of the master playlist that plays whatever there is."""
    return f"{home(video_id)}master.m3u8"


def version_master(video_id: str, number: int) -> str:
    """Return the key of the master playlist of one version."""
    return f"{home(video_id)}v{number}/master.m3u8"


def chunk(video_id: str, recipe: str) -> str:
    """Return the key of an encoded chunk."""
    return f"{home(video_id)}chunks/{recipe}.mp4"


def note(chunk: str) -> str:
    """Return the key of what is said about a chunk."""
    return f"{chunk.removesuffix('.mp4')}.json"


def sound(video_id: str, recipe: str) -> str:
    """Return the key of the encoded sound."""
    return f"{home(video_id)}sound/{recipe}.mp4"


def folder(video_id: str, name: str, recipe: str) -> str:
    """Return the prefix of a package."""
    return f"{home(video_id)}{_plain(name)}-{recipe[:SHORT]}/"


def captions(video_id: str, recipe: str) -> str:
    """Return the key of what is said."""
    return f"{home(video_id)}captions-{recipe[:SHORT]}.vtt"


def source(video_id: str, identity: str, name: str) -> str:
    """Return the key of a source that is copied."""
    ending = PurePosixPath(name).suffix.lower()
    return f"{home(video_id)}source/{identity}{ending if re.fullmatch(r'[.][a-z0-9]{1,8}', ending) else ''}"


def pointed(master: str, folders: Mapping[str, str], *, base: str) -> str:
    """Return a master playlist whose packages lie where they do, seen from the folder `base`.

    The engine writes `<name>/index.m3u8`; what is under a name is in a folder that holds a recipe.
    """
    for name, prefix in folders.items():
        target = _relative(prefix, base)
        master = re.sub(rf"(?m)^{re.escape(name)}/", target.replace("\\", r"\\"), master)
        master = master.replace(f'URI="{name}/', f'URI="{target}')
    return master


def _relative(prefix: str, base: str) -> str:
    if prefix.startswith(base):
        return prefix.removeprefix(base)
    up = 0
    while not prefix.startswith(base):
        base = base.rstrip("/").rpartition("/")[0]
        base = f"{base}/" if base else ""
        up += 1
    return "../" * up + prefix.removeprefix(base)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:40] or "quality"
