"""The control plane: a store as a service that people and machines use."""

from importlib.util import find_spec

from holdfast.errors import MissingExtra

for _package in ("starlette", "uvicorn", "jinja2", "sse_starlette", "prometheus_client", "standardwebhooks", "httpx2"):
    if find_spec(_package) is None:
        raise MissingExtra("server", "the server", _package)
