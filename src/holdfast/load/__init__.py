"""Simulated work: a catalog of kinds, an app that runs them, and a load of them at a rate.

`holdfast worker holdfast.load:app` runs the kinds of the catalog that comes with the package, or of the file that
`HOLDFAST_LOAD_CATALOG` names; the store is that of the settings.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import Holdfast

    app: Holdfast

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    """Make the app when it is first asked for: nothing is read before."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.load.kinds import configured_app  # noqa: PLC0415  see above

    value = globals()[name] = configured_app()
    return value
