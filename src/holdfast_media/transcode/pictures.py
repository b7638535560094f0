"""Poster and sprite sheet: what is seen before and while a video plays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from holdfast_media.errors import OUTPUT_EMPTY, PLAN_INVALID, MediaError
from holdfast_media.ffmpeg.limits import memory_limit, time_limit
from holdfast_media.ffmpeg.run import run
from holdfast_media.transcode.facts import PictureFacts
from holdfast_media.transcode.output import reading, work_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from holdfast_media.ffmpeg.progress import Progress
    from holdfast_media.source.facts import VideoFacts
    from holdfast_media.transcode.plan import Plan

POSTER: Final = "poster.jpg"
TRACK: Final = "sprites.vtt"
_POSTER_SIDE: Final = 1280
_TILE_SIDE: Final = 160
_COLUMNS: Final = 10
_TILES: Final = _COLUMNS * _COLUMNS
_SHORTEST_STEP: Final = 1
_LONGEST_STEP: Final = 10
_DECODED_WHOLE: Final = 120.0
"""Seconds of film that are decoded frame by frame for the sprites; of a longer one, key frames will do."""
_JPEG: Final = ("-c:v", "mjpeg", "-q:v", "4", "-flags", "+bitexact", "-fflags", "+bitexact")


def pictures(
    source: Path,
    plan: Plan,
    folder: Path,
    *,
    on_progress: Callable[[float], None] | None = None,
    stop: Callable[[], str | None] | None = None,
    ffmpeg: Path | None = None,
    timeout: float | None = None,
) -> PictureFacts:
    """Write `poster.jpg`, `sprites_000.jpg`… and `sprites.vtt` into the folder. Call it only for a plan with `video`.

    The poster is the most telling of the frames after the first tenth. A tile stands for each second, of long films for each
    tenth second, with what is seen then or at the key frame before. Raises as `encode_chunk` does.
    """
    video = plan.video
    if video is None:
        raise MediaError(PLAN_INVALID, "the plan has no picture, so there is no poster.")
    folder.mkdir(parents=True, exist_ok=True)
    limit = time_limit(plan.seconds) if timeout is None else timeout
    step = min(max(math.ceil(plan.seconds / _TILES), _SHORTEST_STEP), _LONGEST_STEP)
    tile = _fitted(video, _TILE_SIDE)
    count = max(1, math.ceil(plan.seconds / step))
    sheets = tuple(f"sprites_{number:03}.jpg" for number in range(math.ceil(count / _TILES)))

    def tell(progress: Progress) -> None:
        if on_progress is not None:
            on_progress(progress.fraction)

    def make(arguments: list[str], on_report: Callable[[Progress], None] | None = None) -> None:
        run(
            arguments,
            ffmpeg=ffmpeg,
            duration=plan.seconds,
            on_progress=on_report,
            stop=stop,
            timeout=limit,
            stall_after=None,  # a sheet is written when a hundred tiles are there
            memory=memory_limit(video.frame_bytes),
            scratch=folder.absolute(),
            hidden=(source.absolute(),),
        )

    with work_file(folder / POSTER) as work:
        for start in (plan.seconds / 10, 0.0) if video.steady else (0.0,):
            make(_poster(source, plan, video, start, work))
            if work.exists() and work.stat().st_size:
                break
    make(_sprites(source, plan, video, folder, step=step, tile=tile, sheets=len(sheets)), tell)
    if missing := [name for name in sheets if not (folder / name).is_file() or not (folder / name).stat().st_size]:
        raise MediaError(OUTPUT_EMPTY, f"ffmpeg ended well and did not write {missing[0]}.")
    (folder / TRACK).write_text(_track(plan.seconds, step, tile), encoding="utf-8")
    return PictureFacts(files=(POSTER, *sheets, TRACK), poster=POSTER, sprites=sheets, track=TRACK)


def _poster(source: Path, plan: Plan, video: VideoFacts, start: float, work: Path) -> list[str]:
    width, height = _fitted(video, _POSTER_SIDE)
    filters = f"thumbnail=25,scale={width}:{height}:out_range=pc,setsar=1,format=yuvj420p"
    output = ["-frames:v", "1", *_JPEG, "-f", "image2", "-update", "1", "-y", f"file:{work.absolute()}"]
    seek = ("-ss", f"{start:.3f}") if start else ()
    return [*reading(source, plan, *seek), "-map", f"0:{video.index}", "-vf", filters, *output]


def _sprites(
    source: Path, plan: Plan, video: VideoFacts, folder: Path, *, step: int, tile: tuple[int, int], sheets: int
) -> list[str]:
    keys_will_do = plan.seconds > _DECODED_WHOLE or video.key_frame_gap <= 2 * step
    filters = [
        f"fps=fps=1/{step}:start_time=0:round=up",  # tile n is what is seen at n steps
        f"scale={tile[0]}:{tile[1]}:flags=fast_bilinear:out_range=pc,setsar=1,format=yuvj420p",
        f"tile={_COLUMNS}x{_COLUMNS}",
    ]
    output = ["-frames:v", str(sheets), *_JPEG, "-f", "image2", "-start_number", "0", "-y", _pattern(folder)]
    before = ("-skip_frame", "nokey") if keys_will_do else ()
    return [*reading(source, plan, *before), "-map", f"0:{video.index}", "-vf", ",".join(filters), *output]


def _pattern(folder: Path) -> str:
    """Return where the sheets go, numbered; a percent sign of the folder is not part of the pattern."""
    return f"file:{folder.absolute()}".replace("%", "%%") + "/sprites_%03d.jpg"


def _fitted(video: VideoFacts, side: int) -> tuple[int, int]:
    """Return the size of a picture whose longer side is at most this, even and never larger than the source."""
    scale = min(1.0, side / max(video.width, video.height))
    return max(2, int(video.width * scale) // 2 * 2), max(2, int(video.height * scale) // 2 * 2)


def _track(seconds: float, step: int, tile: tuple[int, int]) -> str:
    """Return the WebVTT track: which tile of which sheet shows which time."""
    width, height = tile
    cues = ["WEBVTT"]
    for number in range(max(1, math.ceil(seconds / step))):
        sheet, place = divmod(number, _TILES)
        row, column = divmod(place, _COLUMNS)
        end = min((number + 1) * step, seconds) if seconds > number * step else (number + 1) * step
        area = f"{column * width},{row * height},{width},{height}"
        cues.append(f"{_clock(number * step)} --> {_clock(end)}\nsprites_{sheet:03}.jpg#xywh={area}")
    return "\n\n".join(cues) + "\n"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}"
