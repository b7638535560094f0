"""The dashboard: pages that a server makes, kept live by asking again."""

from holdfast.server.ui.routes import Dashboard

__all__ = ["Dashboard"]
