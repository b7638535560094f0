"""Resumable transcoding and clipping, as an application on Holdfast's public API."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast_media.errors import MediaError
    from holdfast_media.library import Library, VersionState, Video, VideoState
    from holdfast_media.library.grid import Cell, CellState, Grid
    from holdfast_media.media import Media

_HOMES = {
    "Cell": "library.grid",
    "CellState": "library.grid",
    "Grid": "library.grid",
    "Library": "library",
    "Media": "media",
    "MediaError": "errors",
    "VersionState": "library",
    "Video": "library",
    "VideoState": "library",
}
"""Where the exported names live; each is loaded when it is first asked for."""

__all__ = ["Cell", "CellState", "Grid", "Library", "Media", "MediaError", "VersionState", "Video", "VideoState"]


def __getattr__(name: str) -> Any:
    """Load an exported name."""
    from importlib import import_module  # noqa: PLC0415  only when something is loaded

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
