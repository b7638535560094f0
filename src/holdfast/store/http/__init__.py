"""`HttpStore`: the store of a remote worker, which speaks to a Holdfast server."""

from holdfast.errors import MissingExtra

try:
    import httpx2 as _httpx2  # noqa: F401  looked for here, so that its lack is told in words
except ImportError as missing:
    raise MissingExtra("http", "a store behind HTTP", missing.name or "httpx2") from missing

from holdfast.store.http.line import Line
from holdfast.store.http.store import HttpStore

__all__ = ["HttpStore", "Line"]
