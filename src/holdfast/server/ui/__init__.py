"""The dashboard: pages that a server makes, kept live by asking again."""

from holdfast.server.ui.routes import ui_routes
from holdfast.server.ui.sessions import Sessions

__all__ = ["Sessions", "ui_routes"]
