"""The settings of the media application: keyword arguments, the environment, and `[media]` of holdfast.toml.

What is given to `Media(…)` wins over `HOLDFAST_MEDIA_…`, that over the file, and that over the defaults.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX: Final = "HOLDFAST_MEDIA_"
FAMILIES: Final = ("nvenc", "qsv", "vaapi", "videotoolbox", "amf")
"""What encodes in hardware, by the names that workers publish as capabilities."""

_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_SIZES: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_FILES: Final = (("holdfast.toml", ("media",)), ("pyproject.toml", ("tool", "holdfast", "media")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set. Checked when it is loaded."""

    storage: str = "media"
    """Where artifacts go: a folder, `s3://bucket/prefix`, or `https://server/…`."""
    scratch: Path = field(default_factory=lambda: Path(tempfile.gettempdir()) / f"holdfast-media-{os.getuid()}")
    """Where jobs work; one folder for each job and attempt in it. Unless it is said: one for each user."""
    cache: Path | None = None
    """Where downloads from a storage elsewhere are kept; else in the user's cache folder."""
    ladder: str = "default"
    """The ladder that comes with the package, or the path of a TOML file."""
    chunk_seconds: float | None = None
    """How much a killed worker costs for each job it ran; unless it is said, about a tenth of the film, 6 s to a minute."""
    segment_seconds: int = 6
    encoder: str = "auto"
    """`auto`, `x264`, or a family of hardware, which then is preferred."""
    ffmpeg: str | None = None
    threads: int = 0
    """Of one encode; 0: as many as ffmpeg likes, or its share of the processors where others encode on the machine."""
    together: bool = True
    """Whether a chunk is encoded in all qualities at once: the source is decoded once then, and nothing plays early."""
    stall_after: float = 60.0
    """Seconds without a frame after which an encode is killed and tried again."""
    attempts: int = 5
    """How often a chunk may fail, killed workers included."""
    lease: float = 30.0
    """Seconds that a silent worker keeps a chunk."""
    retry_after: float = 2.0
    """Seconds before the second attempt; each further one waits twice as long."""
    keep_completed: bool = True
    """Whether chunks that were completed outlive the failure of their version, so that a retry need not make them again."""
    cleanup_partial_on_failure: bool = True
    """Whether what an attempt has left is removed when it fails."""
    keep_replaced: float = 3600.0
    """Seconds that the files of a replaced version stay, for those who are still watching it."""
    keep_failed: float = 7 * 86_400.0
    """Seconds that the chunks of a failed version stay, for a retry."""
    reserve: int = 256 * 10**6
    """Bytes that must stay free wherever something is written."""
    pictures: bool = True
    """Whether a poster and sprite sheets are made."""
    decode: bool = False
    """Whether the last check decodes every frame, and not only counts them."""
    speech_model: str | None = None
    """What writes down what is said (extra `speech`): a model of faster-whisper by its name, or a folder with one."""
    queue: str = "media"
    """The queue of what needs the database: prepare, package, finalize, sweep."""
    encode_queue: str = "media-encode"
    """The queue of what needs a processor: encode, audio."""
    clip_queue: str = "media-clip"
    """The queue of clips."""
    clip_folders: tuple[str, ...] | None = None
    """Where local sources of clips may be; anywhere unless it is said."""
    clip_networks: tuple[str, ...] = ()
    """Private networks that sources of clips may be fetched from, such as 10.0.0.0/8."""
    clip_max_bytes: int = 20 * 10**9
    """The most that is fetched for a clip."""
    clip_timeout: float | None = None
    """Seconds that cutting may take; by the length of the clip unless it is said."""
    fetch_timeout: float = 3600.0
    """Seconds that fetching a source may take."""
    ytdlp: str | None = None
    """The program that gets videos out of web pages; else the one that is found."""
    ytdlp_timeout: float = 1800.0
    """Seconds that it may take."""

    @property
    def hardware(self) -> str | None:
        """The family of hardware that is preferred, if one is."""
        return self.encoder if self.encoder in FAMILIES else None


def load(given: Mapping[str, Any], *, folder: Path | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings; `None` in `given` means that nothing was said. Raises `BadSetting` with the place and what to do."""
    values: dict[str, Any] = {}
    for name, value, origin in _from_file(folder or Path()):
        values[name] = _read(name, value, origin)
    for variable, text in (os.environ if environment is None else environment).items():
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower()
            values[name] = _read(_known(name, f"the environment has {variable}, which"), text, variable)
    for name, value in given.items():
        if value is not None:
            values[name] = _read(_known(name, f"{name}="), value, f"{name}=")
    settings = Settings(**values)
    if why := too_short(settings.chunk_seconds, settings.segment_seconds):
        raise BadSetting(f"chunk_seconds {why}")
    return settings


def too_short(chunk: float | None, segment: int) -> str:
    """Return why a chunk of this length cannot be made of segments of that length, and what to do; empty: it can."""
    if chunk is None or chunk >= segment:
        return ""
    return (
        f"is {chunk:g} s and segment_seconds {segment} s: a chunk holds at least one segment. Make chunks of {segment} s or "
        f"more, or segments of {max(1, int(chunk))} s: HOLDFAST_MEDIA_SEGMENT_SECONDS, or segment_seconds in holdfast.toml"
    )


def seconds(value: object) -> float:
    """Return seconds: a number, or a text such as `500ms`, `30s`, `5m`, `1h30m`, `7d`. Raises `ValueError`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < 0:
            raise ValueError("must not be negative")
        return float(value)
    text = str(value).strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w|)", text)
    if (
        not text
        or "".join(number + unit for number, unit in parts) != text
        or (len(parts) > 1 and any(not u for _, u in parts))
    ):
        raise ValueError(f"must be a duration (seconds, or 500ms, 30s, 5m, 1h30m, 7d), not {value!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _from_file(folder: Path) -> list[tuple[str, Any, str]]:
    for file, keys in _FILES:
        try:
            table: Any = tomllib.loads((folder / file).read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise BadSetting(f"{file} cannot be read: {error}") from error
        for key in keys:
            table = table.get(key, {}) if isinstance(table, dict) else {}
        if not isinstance(table, dict):
            raise BadSetting(f'{file}: {".".join(keys)} must be a table, such as:\n[{".".join(keys)}]\nstorage = "media"')
        return [
            (_known(key.replace("-", "_"), f"{file}: [{'.'.join(keys)}] {key}"), table[key], f"{file}: {key}") for key in table
        ]
    return []


def _known(name: str, said: str) -> str:
    if name in _READERS:
        return name
    near = get_close_matches(name, _READERS, n=1, cutoff=0.6)
    hint = f": do you mean {near[0]!r}?" if near else f". There are: {', '.join(_READERS)}"
    raise BadSetting(f"{said} is no setting of the media application{hint}")


def _read(name: str, value: object, origin: str) -> Any:
    try:
        return _READERS[name](value)
    except ValueError as error:
        raise BadSetting(f"{origin}: {name} {error}") from None


def _text(value: object) -> str:
    if not isinstance(value, (str, os.PathLike)) or not str(value).strip():
        raise ValueError(f"must be a text that is not empty, not {value!r}")
    return str(value).strip()


def _texts(value: object) -> tuple[str, ...]:
    """Read a list, which the environment writes with commas."""
    return tuple(_text(part) for part in (value if isinstance(value, (list, tuple)) else _text(value).split(",")))


def _folder(value: object) -> Path:
    return Path(_text(value)).expanduser().absolute()


def _whole(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        text = str(value).strip()
        if isinstance(value, (bool, float)) or not re.fullmatch(r"\d{1,9}", text) or int(text) < least:
            raise ValueError(f"must be a whole number from {least}, not {value!r}")
        return int(text)

    return read


def _some_time(value: object) -> float:
    found = seconds(value)
    if not found:
        raise ValueError("must be more than 0")
    return found


def _size(value: object) -> int:
    text = str(value).strip().lower().replace(" ", "")
    found = re.fullmatch(rf"(\d+(?:\.\d+)?)({'|'.join(_SIZES)})", text)
    if isinstance(value, bool) or found is None:
        raise ValueError(f"must be a size such as 512MB or 2GB, not {value!r}")
    return round(float(found[1]) * _SIZES[found[2]])


def _yes_or_no(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in {"true", "yes", "on", "1", "false", "no", "off", "0"}:
        raise ValueError(f"must be true or false, not {value!r}")
    return word in {"true", "yes", "on", "1"}


def _encoder(value: object) -> str:
    word = str(value).strip().lower()
    if word not in {"auto", "x264", *FAMILIES}:
        raise ValueError(f"must be one of auto, x264, {', '.join(FAMILIES)}, not {value!r}")
    return word


_READERS: Final[dict[str, Callable[[object], Any]]] = {
    "storage": _text,
    "scratch": _folder,
    "cache": _folder,
    "ladder": _text,
    "chunk_seconds": _some_time,
    "segment_seconds": _whole(1),
    "encoder": _encoder,
    "ffmpeg": _text,
    "threads": _whole(0),
    "together": _yes_or_no,
    "stall_after": _some_time,
    "attempts": _whole(1),
    "lease": _some_time,
    "retry_after": seconds,
    "keep_completed": _yes_or_no,
    "cleanup_partial_on_failure": _yes_or_no,
    "keep_replaced": seconds,
    "keep_failed": seconds,
    "reserve": _size,
    "pictures": _yes_or_no,
    "decode": _yes_or_no,
    "speech_model": _text,
    "queue": _text,
    "encode_queue": _text,
    "clip_queue": _text,
    "clip_folders": _texts,
    "clip_networks": _texts,
    "clip_max_bytes": _size,
    "clip_timeout": _some_time,
    "fetch_timeout": _some_time,
    "ytdlp": _text,
    "ytdlp_timeout": _some_time,
}
if set(_READERS) != {one.name for one in fields(Settings)}:  # pragma: no cover  said where it is noticed first
    raise AssertionError("a setting has no reader")
