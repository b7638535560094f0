"""The app: what users write against. Declares tasks, enqueues, makes workers."""

from holdfast.app.life import DEFAULT_RETENTION
from holdfast.app.working import Holdfast

__all__ = ["DEFAULT_RETENTION", "Holdfast"]
