"""The master playlist: which qualities there are, and what each needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast_media.errors import PLAN_INVALID, MediaError
from holdfast_media.transcode.output import work_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast_media.transcode.facts import PackageFacts

MASTER: Final = "master.m3u8"
_GROUP: Final = "audio"


def write_master(folder: Path, renditions: Sequence[PackageFacts], sound: PackageFacts | None = None) -> Path:
    """Write `master.m3u8` for the packages that are ready, which lie or will lie in `<folder>/<package name>/`.

    Playable as soon as one is there, and replaced atomically; bandwidths, codecs and rates are those of the real files.
    Without renditions it is a playlist of sound alone.
    """
    target = folder / MASTER
    with work_file(target) as work:
        work.write_text(master_text(renditions, sound), encoding="utf-8")
    return target


def master_text(renditions: Sequence[PackageFacts], sound: PackageFacts | None = None) -> str:
    """Return the text of the master playlist, the best quality first."""
    if not renditions and sound is None:
        raise MediaError(PLAN_INVALID, "a master playlist needs at least one quality, or sound.")
    lines = ["#EXTM3U", "#EXT-X-VERSION:7", "#EXT-X-INDEPENDENT-SEGMENTS"]
    if not renditions and sound is not None:
        return "\n".join([*lines, _stream(sound), f"{sound.name}/{sound.playlist}", ""])
    if sound is not None:
        uri = f"{sound.name}/{sound.playlist}"
        lines.append(
            f'#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="{_GROUP}",NAME="audio",DEFAULT=YES,AUTOSELECT=YES,CHANNELS="2",URI="{uri}"'
        )
    for rendition in sorted(renditions, key=lambda one: -one.average_bandwidth):
        lines += [_stream(rendition, sound), f"{rendition.name}/{rendition.playlist}"]
    return "\n".join([*lines, ""])


def _stream(package: PackageFacts, sound: PackageFacts | None = None) -> str:
    """Return the line of one quality, with what the sound adds to it."""
    together = [package] if sound is None else [package, sound]
    parts = [
        f"BANDWIDTH={sum(one.peak_bandwidth for one in together)}",
        f"AVERAGE-BANDWIDTH={sum(one.average_bandwidth for one in together)}",
        f'CODECS="{",".join(one.codecs for one in together)}"',
    ]
    if package.width:
        parts += [f"RESOLUTION={package.width}x{package.height}", f"FRAME-RATE={package.frame_rate:.3f}"]
    if sound is not None:
        parts.append(f'AUDIO="{_GROUP}"')
    return "#EXT-X-STREAM-INF:" + ",".join(parts)
