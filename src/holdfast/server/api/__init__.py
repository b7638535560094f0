"""The HTTP API under `/api/v1`: for workers in any language, for clients, and for the remote workers of Holdfast itself."""

from holdfast.server.api.serving import Api

__all__ = ["Api"]
