"""Settings: from a file, the environment and flags, each with its origin.

`holdfast.toml` or `[tool.holdfast]` in `pyproject.toml` < `HOLDFAST_*` < flags. Only the current folder is looked at: a
relative `sqlite:///jobs.db` must not depend on which parent folder happened to hold a file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.core.health import MOST_PORTS, host_and_port
from holdfast.core.scaling import LEAST_INTERVAL
from holdfast.errors import CENTURY, BadSetting
from holdfast.store.port import MOST_SLOTS, Retention

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX: Final = "HOLDFAST_"
OWN_FILE: Final = "holdfast.toml"
SHARED_FILE: Final = "pyproject.toml"
WORKERS: Final = "workers"
"""The table of the file that says how workers are run."""
OTHERS: Final = frozenset({"media"})
"""Tables of applications on Holdfast, which read them themselves."""
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
DISPATCH: Final = ("database", "redis", "hybrid")
LOG_FORMATS: Final = ("console", "json")
DAY: Final = 86_400.0
LEAST_BODY: Final = 2 * 2**20
SECRETS: Final = frozenset({"key", "admin_secret"})
"""Settings that are never shown."""

_IN_UNITS: Final = {
    "poll_interval_ms": ("poll", 0.001),
    "lease_timeout_seconds": ("lease", 1.0),
    "scale_interval_ms": ("scale_interval", 0.001),
}
"""What the table about workers says in a unit of its own: the setting that it is, and its unit in seconds."""
_OF_WORKERS: Final = (
    *("default_count", "max_count", "waiting_target", "scale_down_after", "max_jobs", "max_memory"),
    *("concurrency", "prefetch", "retry_share", "queues", "capabilities"),
    *("poll", "lease", "scale_interval", "shutdown_timeout"),
)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY, "w": 7 * DAY}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SIZES: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE: Final = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(_SIZES)})")
_MOST_BYTES: Final = 2**60
_PREFIX_PATH: Final = re.compile(r"(?:/(?!\.+(?:/|$))[A-Za-z0-9._~-]+)*")
_YES: Final = ("true", "yes", "on", "1")
_NO: Final = ("false", "no", "off", "0")
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be set. Checked when it is loaded."""

    url: str | None = None
    """The store."""
    redis_url: str | None = None
    """The Redis through which workers are told of new jobs; `None`: the database tells them."""
    dispatch: str | None = None
    """`database`, `redis` or `hybrid`; `None`: `hybrid` where there is a Redis, else `database`."""
    app: str | None = None
    """MODULE:APP, for `worker` and `enqueue`."""
    concurrency: int = 20
    """Slots of a worker."""
    queues: tuple[str, ...] | None = None
    """The queues a worker serves; `None`: all."""
    prefetch: int = 0
    """Jobs a worker may hold beyond its slots."""
    retry_share: float = 0.2
    """The share of a worker's claims that look for retries first."""
    capabilities: tuple[str, ...] | None = None
    """What a worker has that some jobs require; `None`: nothing in particular."""
    poll: float | None = None
    """Seconds between two looks for work; `None`: every minute where notifications arrive, every second where none do."""
    lease: float | None = None
    """Seconds that a silent worker keeps a job, for tasks that do not say it, of an app that is given no URL; `None`: 60."""
    shutdown_timeout: float = 30.0
    """Seconds that running jobs get to end when a worker is asked to stop."""
    health: str | None = None
    """`[HOST:]PORT` where a worker answers probes; `None`: nowhere."""
    default_count: int = 2
    """How many workers a manager keeps at least."""
    max_count: int = 8
    """How many it runs at most."""
    scale_interval: float = 1.0
    """Seconds between two of its decisions."""
    waiting_target: float = 5.0
    """Seconds that a job should wait at most: beyond that more workers come."""
    scale_down_after: float = 30.0
    """Seconds for which fewer workers must have been enough before one goes."""
    max_jobs: int | None = None
    """After about so many jobs a worker is replaced; `None`: never."""
    max_memory: int | None = None
    """Bytes beyond which a manager replaces a worker; `None`: never."""
    log_level: str = "info"
    log_format: str = "console"
    retention_succeeded: float | None = 7 * DAY
    """Seconds a job is kept once it has ended so; `None`: for ever."""
    retention_failed: float | None = 30 * DAY
    retention_canceled: float | None = 7 * DAY
    retention_signals: float | None = 30 * DAY
    """Seconds a signal is kept once it was emitted; `None`: for ever."""
    retention_enqueues: float | None = 30 * DAY
    """Seconds the audit log keeps lines about enqueues; `None`: for ever, as all others."""
    retention_workers: float | None = 7 * DAY
    """Seconds a worker that is offline is listed; `None`: for ever."""
    alerts: Mapping[str, Mapping[str, object]] = {}
    """Where a server sends alerts: tables of `url`, `secret`, `events`, `form`, `cooldown`, `allow_private`, by name."""
    server: str | None = None
    """The server that a remote worker takes its jobs from."""
    key: str | None = None
    """The key with which a server lets one in."""
    host: str = "127.0.0.1"
    """Where a server listens."""
    port: int = 7878
    admin_secret: str | None = None
    """Whoever knows it is an admin of the server."""
    prefix: str = ""
    """The path that a server is reached under; empty: the root."""
    secure_cookies: bool = False
    """Whether a server's cookies are for HTTPS alone."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies that a server believes when they say for whom they ask."""
    redact: tuple[str, ...] = ()
    """Names of fields of args and results that the dashboard never shows, besides those that look like secrets."""
    key_rate: int = 1000
    """Requests a second that one key may make of a server."""
    failure_rate: int = 10
    """Refused logins and keys a minute from one address, after which it has to wait."""
    body_limit: int = 2 * 2**20
    """Bytes that a request to a server may have."""
    longest_poll: float = 30.0
    """Seconds that a claim may wait for jobs at a server."""
    page_timeout: float = 5.0
    """Seconds that a statement may take for a page of a server."""

    @property
    def retention(self) -> Retention:
        """How long ended jobs and signals are kept."""
        return Retention(
            succeeded=self.retention_succeeded,
            failed=self.retention_failed,
            canceled=self.retention_canceled,
            signals=self.retention_signals,
            enqueues=self.retention_enqueues,
            workers=self.retention_workers,
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and where each value comes from."""

    settings: Settings
    origins: Mapping[str, str]
    file: str | None
    """The file that was read, if there is one."""

    @property
    def retention(self) -> Retention | None:
        """How long ended jobs and signals are kept, if anybody said so; `None`: as the app says."""
        if all(self.origins[name] == "default" for name in Settings.__struct_fields__ if name.startswith("retention_")):
            return None
        return self.settings.retention


def load(
    flags: Mapping[str, object] | None = None,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    spelled: Mapping[str, str] | None = None,
) -> Loaded:
    """Read the settings. `flags` holds those given on the command line (`None`: not given); raises `BadSetting`.

    `spelled` names the flags that are not called as their settings are.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(_READERS, "default")
    file, table = _read_file(folder or Path())
    for name, (value, origin) in table.items():
        values[name], origins[name] = _read(name, value, origin), origin
    for name, (text, origin) in _from_environment(os.environ if environment is None else environment).items():
        values[name], origins[name] = _read(name, text, origin), origin
    for name, given in (flags or {}).items():
        if given is not None:
            origin = (spelled or {}).get(name, f"--{name.replace('_', '-')}")
            values[name], origins[name] = _read(name, given, origin), "flag"
    return Loaded(Settings(**values), origins, file)


def configured_url() -> str:
    """Return the store's URL for an app that was given none; raises `BadSetting` when no setting says it either."""
    url = load().settings.url
    if url is None:
        raise BadSetting(
            "which store? The app was given no URL (or None: is the variable it is read from set?), and no setting says it. "
            "Say it in one of three ways:\n"
            '  Holdfast("sqlite:///jobs.db")\n'
            "  export HOLDFAST_URL=postgresql://user@host/database\n"
            f'  url = "…" in {OWN_FILE}, or in [tool.holdfast] of {SHARED_FILE}, in the folder it is started in ({Path.cwd()})'
        )
    return url


def configured_lease() -> float | None:
    """Return the lease of tasks that do not say it, if a setting does."""
    return load().settings.lease


def configured_key(url: str) -> str:
    """Return the key for a server for whom none was given; raises `BadSetting` when no setting says it."""
    key = load().settings.key
    if key is None:
        raise BadSetting(
            f"{url} is a Holdfast server, and lets in whoever has a key. Have one made there, with "
            "`holdfast keys add NAME --role worker`, and give it here: export HOLDFAST_KEY=hf_…, or --key"
        )
    return key


def configured_redis() -> tuple[str | None, str | None]:
    """Return the URL of Redis and the mode of dispatch for an app that was given neither."""
    settings = load().settings
    return settings.redis_url, settings.dispatch


def duration(value: object) -> float:
    """Return seconds: a number, or a text such as `90`, `500ms`, `30s`, `5m`, `1h30m`, `7d`, `2w`. Raises `ValueError`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    else:
        text = str(value).strip().lower().replace(" ", "")
        if _DURATION.fullmatch(text):
            seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))
        else:
            seconds = _plain_number(text)
    if not 0 <= seconds <= CENTURY:
        raise ValueError(f"{value!r} is no duration: use a number of seconds or 500ms, 30s, 5m, 1h30m, 7d, 2w")
    return seconds


def size(value: object) -> int:
    """Return bytes: a number, or a text such as `512MB`, `1.5GB`, `64KiB`. Raises `ValueError`."""
    text = str(value).strip().lower().replace(" ", "")
    found = _SIZE.fullmatch(text)
    if isinstance(value, bool) or found is None or not 1 <= (number := float(found[1]) * _SIZES[found[2]]) < _MOST_BYTES:
        raise ValueError(f"must be a size such as 512MB or 2GB, not {value!r}")
    return round(number)


def path_prefix(value: object) -> str:
    """Return the path that a server is reached under, without a slash at its end; empty: the root. Raises `ValueError`."""
    text = value.strip().removesuffix("/") if isinstance(value, str) else None
    if text is None or not _PREFIX_PATH.fullmatch(text):
        raise ValueError(f"must be a path such as /jobs (letters, digits, - . _ ~ between slashes), not {value!r}")
    return text


def networks(value: object) -> tuple[str, ...]:
    """Return addresses and networks, as they are written. Raises `ValueError`."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        names = tuple(str(part).strip() for part in parts)  # type: ignore[attr-defined]  # what is no list is told below
        for name in names:
            ip_network(name)
    except (TypeError, ValueError):
        raise ValueError(f"must be addresses or networks such as 10.0.0.7,10.1.0.0/16, not {value!r}") from None
    return names


def _plain_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


# --- the file -----------------------------------------------------------------------------------------------------------


def _read_file(folder: Path) -> tuple[str | None, dict[str, tuple[object, str]]]:
    """Return the file of a folder and its settings, each with file and line."""
    for name, keys in ((OWN_FILE, ()), (SHARED_FILE, ("tool", "holdfast"))):
        path = folder / name
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"{name} cannot be read: {error}") from error
        table = _parsed(text, name)
        for key in keys:
            table = table.get(key, {}) if isinstance(table, dict) else {}
        if not isinstance(table, dict):
            raise BadSetting(f'{name}: [tool.holdfast] must be a table, such as:\n[tool.holdfast]\nurl = "sqlite:///jobs.db"')
        if table or not keys:
            return name, _located(table, text, name, header=".".join(keys))
    return None, {}


def _parsed(text: str, name: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{name} is not valid TOML: {error}") from error


def _located(table: Mapping[str, object], text: str, file: str, *, header: str) -> dict[str, tuple[object, str]]:
    found: dict[str, tuple[object, str]] = {}
    for key, value in table.items():
        origin = f"{file}{_line(text, key, header)}"
        if key in OTHERS and isinstance(value, dict):
            continue
        if key == WORKERS:
            inside = f"{header}.{WORKERS}".lstrip(".")
            for name, said in _workers(value, text, file, header=inside).items():
                _add(found, name, *said)
            continue
        name = key.replace("-", "_")
        if name not in _READERS:
            raise BadSetting(f"{origin}: there is no setting {key!r}{_nearest(name)}")
        _add(found, name, value, origin)
    return found


def _add(found: dict[str, tuple[object, str]], name: str, value: object, origin: str) -> None:
    if name in found:
        raise BadSetting(f"{origin}: {name!r} is set twice, here and at {found[name][1]}")
    found[name] = (value, origin)


def _workers(table: object, text: str, file: str, *, header: str) -> dict[str, tuple[object, str]]:
    """Return the settings of the table about workers, under their own names and in seconds."""
    if not isinstance(table, dict):
        raise BadSetting(f"{file}: {WORKERS} must be a table, such as:\n[{header}]\nmax_count = 8")
    found: dict[str, tuple[object, str]] = {}
    for key, value in table.items():
        name, origin = key.replace("-", "_"), f"{file}{_line(text, key, header)}"
        if name in _IN_UNITS:
            name, unit = _IN_UNITS[name]
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise BadSetting(f"{origin}: {key} must be a number, not {value!r}")
            written, value = value, value * unit  # noqa: PLW2901  the same in seconds
            _read(name, value, f"{origin}: {key} = {written}")
        elif name not in _OF_WORKERS:
            known = (*_IN_UNITS, *_OF_WORKERS)
            near = get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f": do you mean {near[0]!r}?" if near else f". There are: {', '.join(known)}"
            raise BadSetting(f"{origin}: [{header}] has no setting {key!r}{hint}")
        _add(found, name, value, origin)
    return found


def _line(text: str, key: str, header: str) -> str:
    """Return `:line` of a key; the parser does not keep lines, so the text is looked through. Empty when not found."""
    inside = not header
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("["):
            inside = stripped.strip("[] ") == header
        elif inside and re.match(rf"""["']?{re.escape(key)}["']?\s*=""", stripped):
            return f":{number}"
    return ""


# --- the environment ----------------------------------------------------------------------------------------------------


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the settings of the environment. A name that is nearly one of ours is refused: it would be ignored silently."""
    found = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in _READERS:
            found[name] = (text, variable)
        elif near := get_close_matches(name, _READERS, n=1, cutoff=0.8):
            raise BadSetting(f"the environment has {variable}, which is no setting: do you mean {PREFIX}{near[0].upper()}?")
    return found


# --- values -------------------------------------------------------------------------------------------------------------


def _read(name: str, value: object, origin: str) -> object:
    try:
        return _READERS[name](value)
    except ValueError as error:
        raise BadSetting(f"{origin}: {name} {error}") from None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a text that is not empty, not {value!r}")
    return value.strip()


def _redis_url(value: object) -> str:
    text = _text(value)
    if not text.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("must be redis://host:6379/0, rediss://… or unix://…")  # not what was given: it may hold a password
    return text


def _whole(least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        text = str(value).strip()
        if isinstance(value, (bool, float)) or not re.fullmatch(r"[+-]?\d{1,9}", text) or not least <= int(text) <= MOST_SLOTS:
            raise ValueError(f"must be a whole number from {least} to {MOST_SLOTS:,}, not {value!r}")
        return int(text)

    return read


def _port(value: object) -> int:
    text = str(value).strip()
    if isinstance(value, (bool, float)) or not re.fullmatch(r"\d{1,5}", text) or not 0 <= int(text) <= MOST_PORTS:
        raise ValueError(f"must be a port from 0 (any that is free) to {MOST_PORTS}, not {value!r}")
    return int(text)


def _address(value: object) -> str:
    text = str(value).strip()
    host_and_port(text)
    return text


def _yes_or_no(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in _YES + _NO:
        raise ValueError(f"must be true or false, not {value!r}")
    return word in _YES


def _names(none: str) -> Callable[[object], tuple[str, ...]]:
    """Return a reader of names; `none` is what it says where there are none."""

    def read(value: object) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"must be names such as mail,video, not {value!r}")
        names = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
        if not names:
            raise ValueError(none)
        return names

    return read


def _seconds(value: object) -> float:
    try:
        return duration(value)
    except ValueError:
        raise ValueError(f"must be a duration (seconds, or 500ms, 30s, 5m, 1h30m, 7d, 2w), not {value!r}") from None


def _some_time(value: object) -> float:
    seconds = _seconds(value)
    if not seconds:
        raise ValueError("must be more than 0")
    return seconds


def _interval(value: object) -> float:
    seconds = _some_time(value)
    if seconds < LEAST_INTERVAL:
        raise ValueError(f"must be {LEAST_INTERVAL:g} s or more, not {seconds:g}: every decision asks the store")
    return seconds


def _share(value: object) -> float:
    try:
        found = float(value)  # type: ignore[arg-type]  # what is none is told below
    except (TypeError, ValueError):
        found = -1.0
    if isinstance(value, bool) or not 0 <= found <= 1:
        raise ValueError(f"must be from 0 to 1, not {value!r}")
    return found


def _body(value: object) -> int:
    # workers send batches of 1 MiB, and a result may have as much: one that is refused could never be written
    if (found := size(value)) < LEAST_BODY:
        raise ValueError(f"must be at least 2MiB, for a worker sends as much at once, not {value!r}")
    return found


def _retention(value: object) -> float | None:
    if value == "never":
        return None
    try:
        return duration(value)
    except ValueError:
        raise ValueError(f"must be a duration such as 7d, or never, not {value!r}") from None


def _tables(value: object) -> Mapping[str, Mapping[str, object]]:
    """Return tables by name: of the file, or of JSON text in the environment."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            value = None
    if not isinstance(value, dict) or not all(isinstance(one, dict) for one in value.values()):
        raise ValueError('must be tables by name, such as [alerts.ops] with url = "https://…", or the same as JSON text')
    return value


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        word = str(value).strip().lower()
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}, not {value!r}")
        return word

    return read


_READERS: Final[Mapping[str, Callable[[object], object]]] = {
    "url": _text,
    "redis_url": _redis_url,
    "dispatch": _one_of(*DISPATCH),
    "app": _text,
    "concurrency": _whole(1),
    "queues": _names("names no queue: leave it out to serve all"),
    "prefetch": _whole(0),
    "retry_share": _share,
    "capabilities": _names("names no capability: leave it out"),
    "poll": _some_time,
    "lease": _some_time,
    "shutdown_timeout": _seconds,
    "health": _address,
    "default_count": _whole(1),
    "max_count": _whole(1),
    "scale_interval": _interval,
    "waiting_target": _some_time,
    "scale_down_after": _some_time,
    "max_jobs": _whole(1),
    "max_memory": size,
    "log_level": _one_of(*LOG_LEVELS),
    "log_format": _one_of(*LOG_FORMATS),
    "retention_succeeded": _retention,
    "retention_failed": _retention,
    "retention_canceled": _retention,
    "retention_signals": _retention,
    "retention_enqueues": _retention,
    "retention_workers": _retention,
    "alerts": _tables,
    "server": _text,
    "key": _text,
    "host": _text,
    "port": _port,
    "admin_secret": _text,
    "prefix": path_prefix,
    "secure_cookies": _yes_or_no,
    "trusted_proxies": networks,
    "redact": _names("names no field: leave it out"),
    "key_rate": _whole(1),
    "failure_rate": _whole(1),
    "body_limit": _body,
    "longest_poll": _seconds,
    "page_timeout": _some_time,
}


def _nearest(name: str) -> str:
    near = get_close_matches(name, _READERS, n=1, cutoff=0.6)
    return f": do you mean {near[0]!r}?" if near else f". There are: {', '.join(_READERS)}"
