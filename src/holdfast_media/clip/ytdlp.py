"""Videos of web pages, by yt-dlp where that is installed. A process of its own: it is ended when its time is up."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Final

from holdfast_media.clip import child
from holdfast_media.clip.redaction import shown_url
from holdfast_media.errors import SOURCE_TOO_LARGE, UPSTREAM_FAILURE, YTDLP_FAILED, YTDLP_MISSING, YTDLP_TIMEOUT, MediaError
from holdfast_media.ffmpeg.supervise import Late

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_PERCENT: Final = re.compile(r"^at\s+(\d+(?:\.\d+)?)%")
_PASSING: Final = re.compile(
    r"timed? ?out|temporar|connection (?:reset|refused|aborted)|HTTP Error (?:408|429|5\d\d)|unable to connect|name resolution|"
    r"remote end closed|IncompleteRead|Network is unreachable",
    re.IGNORECASE,
)
"""What yt-dlp says of troubles that pass."""
NAME: Final = "video"


def find_ytdlp(setting: str | None = None) -> list[str]:
    """Return the words that start yt-dlp; raises `YTDLP_MISSING` where there is none."""
    if (found := shutil.which(setting or "yt-dlp")) is not None:
        return [found]
    if setting is None and importlib.util.find_spec("yt_dlp") is not None:
        return [sys.executable, "-m", "yt_dlp"]
    raise MediaError(
        YTDLP_MISSING,
        "the address is a web page, and yt-dlp, which gets videos out of pages, is not there. Install it "
        "(pip install yt-dlp), or give the address of the video file itself",
    )


def fetch(
    url: str,
    folder: Path,
    *,
    program: Sequence[str],
    proxy: str,
    ffmpeg: Path,
    wanted: str,
    max_bytes: int,
    timeout: float,
    on_progress: Callable[[float], None],
    stop: Callable[[], str | None],
) -> Path:
    """Have yt-dlp write the video of a page into a folder; returns the file.

    Raises `YTDLP_TIMEOUT` after `timeout` seconds: then it and all it started are gone. `YTDLP_FAILED` when it found nothing,
    `UPSTREAM_FAILURE` for what may pass, `SOURCE_TOO_LARGE`, and `Stopped`. All its connections go through `proxy`.
    """

    def hear(line: str) -> None:
        if (found := _PERCENT.match(line)) is not None:
            on_progress(min(1.0, float(found[1]) / 100))

    command = [
        *program,
        *("--ignore-config", "--no-playlist", "--no-cache-dir", "--no-plugin-dirs", "--no-warnings", "--no-colors"),
        *("--newline", "--progress", "--progress-template", "download:at %(progress._percent_str)s"),
        *("--retries", "3", "--fragment-retries", "3", "--socket-timeout", "20"),
        *("--format", wanted, "--merge-output-format", "mkv", "--max-filesize", str(max_bytes)),
        *("--ffmpeg-location", str(ffmpeg), "--paths", str(folder), "--output", f"{NAME}.%(ext)s"),
        *("--proxy", proxy),
        "--",
        url,
    ]
    try:
        ended = child.run(command, timeout=timeout, stop=stop, on_line=hear, environment=_through(proxy))
    except Late as late:
        message = f"yt-dlp took longer than {timeout:g} s for {shown_url(url)}, and was ended"
        raise MediaError(YTDLP_TIMEOUT, message, detail=late.tail, said_by="yt-dlp") from None
    made = sorted(folder.glob(f"{NAME}.*"), key=lambda path: path.stat().st_size, reverse=True)
    if ended.returncode == 0 and made and not made[0].name.endswith((".part", ".ytdl")):
        if made[0].stat().st_size > max_bytes:
            raise MediaError(SOURCE_TOO_LARGE, f"the video has more than {max_bytes:,} bytes")
        return made[0]
    said = next((line for line in reversed(ended.tail.splitlines()) if line.startswith("ERROR:")), ended.tail[-200:]).strip()
    if ended.returncode == 0:
        raise MediaError(SOURCE_TOO_LARGE, f"yt-dlp fetched nothing: the video has more than {max_bytes:,} bytes")
    code = UPSTREAM_FAILURE if _PASSING.search(said) or ended.returncode < 0 else YTDLP_FAILED
    raise MediaError(code, f"yt-dlp gave up on {shown_url(url)}: {said}", detail=ended.tail, said_by="yt-dlp")


def _through(proxy: str) -> dict[str, str]:
    """Return this process's environment with one proxy in it: programs that yt-dlp starts know no other way to it.

    Nobody is exempt from it (`no_proxy`): that would lead past it, to whatever is next to this machine.
    """
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return kept | dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), proxy)
