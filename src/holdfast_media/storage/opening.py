"""From a URL to a storage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast_media.errors import MediaError
from holdfast_media.storage.cache import Cache
from holdfast_media.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    from holdfast_media.storage.port import Storage

HOW: Final = "use /path, file:///path, s3://bucket/prefix?endpoint=…&region=… or https://server/path"
MEBI: Final = 1024 * 1024


def storage_from(url: str, *, key: str | None = None, cache: Path | None = None) -> Storage:
    """Return the storage behind a URL. Nothing is opened before it is used.

    `/path` and `file:///path` are a folder, `s3://bucket/prefix?endpoint=…&region=…` is S3, `https://server/…` is a Holdfast
    server with the transfer routes, to which `key` (or `HOLDFAST_KEY`) lets in. `cache` is where downloads are kept.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return LocalStorage(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return _s3(parts, Cache(cache))
    if parts.scheme in ("http", "https") and parts.netloc:
        return _http(parts, key, Cache(cache))
    if not parts.scheme and url:
        return LocalStorage(Path(url).expanduser())
    raise MediaError("BAD_STORAGE", f"{url!r} is no storage: {HOW}")


def _s3(parts: SplitResult, cache: Cache) -> Storage:
    from holdfast_media.storage.s3 import S3Settings, S3Storage  # noqa: PLC0415  boto3 is an extra, and slow to load

    known = {
        "endpoint": str,
        "region": str,
        "profile": str,
        "conditional": _one_of("auto", "yes", "no"),
        "checksum": _one_of("auto", "sha256", "md5"),
        "path_style": lambda text: _one_of("yes", "no")(text) == "yes",
        "part_mib": int,
    }
    given = _options(parts, known, "S3", least=5, most=5000)  # what S3 takes
    if parts.username or parts.password:
        why = "keys do not belong into a URL, which is logged. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
        raise MediaError("BAD_STORAGE", why)
    return S3Storage(parts.netloc, unquote(parts.path).strip("/"), S3Settings(**given), cache=cache)


def _http(parts: SplitResult, key: str | None, cache: Cache) -> Storage:
    from holdfast_media.storage.http import HttpStorage  # noqa: PLC0415  httpx2 is an extra

    given = key or os.environ.get("HOLDFAST_KEY", "")
    if not given:
        where = f"{parts.scheme}://{parts.hostname}"
        raise MediaError("BAD_STORAGE", f"{where} needs a key: give one (--key), or set HOLDFAST_KEY")
    options = _options(parts, {"part_mib": int}, "a server", least=1, most=1024)
    return HttpStorage(parts._replace(query="").geturl(), given, cache=cache, **options)


def _options(parts: SplitResult, known: Mapping[str, Any], whose: str, *, least: int, most: int) -> dict[str, Any]:
    """Return what follows the `?` of a URL."""
    given: dict[str, Any] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            raise MediaError("BAD_STORAGE", f"{name!r} is no option of {whose}: there are {', '.join(known)}")
        try:
            given[name] = known[name](text)
        except ValueError as error:
            raise MediaError("BAD_STORAGE", f"{name}={text} of {whose} is not possible: {error}") from None
    if (size := given.pop("part_mib", None)) is not None:
        if not least <= size <= most:
            raise MediaError("BAD_STORAGE", f"part_mib={size} of {whose} is not possible: {least} to {most}")
        given["part_size"] = size * MEBI
    return given


def _one_of(*choices: str) -> Any:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"it is one of {', '.join(choices)}")
        return text

    return read
