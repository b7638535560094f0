"""The control plane: a store as a service that people and machines use.

What other packages may use is here: `create_server` and `serve` to run it, `Extension` and what belongs to it to add pages.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.errors import MissingExtra

if TYPE_CHECKING:
    from holdfast.server.asgi import Server, create_server
    from holdfast.server.extending import Extension, Page
    from holdfast.server.principal import Right
    from holdfast.server.running import secured, serve
    from holdfast.server.settings import ServerSettings
    from holdfast.server.ui.frame import Problem, Visit

for _package in ("starlette", "uvicorn", "jinja2", "sse_starlette", "prometheus_client", "standardwebhooks", "httpx2"):
    if find_spec(_package) is None:
        raise MissingExtra("server", "the server", _package)

_HOMES = {
    "Extension": "extending",
    "Page": "extending",
    "Problem": "ui.frame",
    "Right": "principal",
    "Server": "asgi",
    "ServerSettings": "settings",
    "Visit": "ui.frame",
    "create_server": "asgi",
    "secured": "running",
    "serve": "running",
}
"""Where the exported names live; each is loaded when it is first asked for."""

__all__ = [
    "Extension",
    "Page",
    "Problem",
    "Right",
    "Server",
    "ServerSettings",
    "Visit",
    "create_server",
    "secured",
    "serve",
]


def __getattr__(name: str) -> Any:
    """Load an exported name."""
    from importlib import import_module  # noqa: PLC0415  only when something is loaded

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
