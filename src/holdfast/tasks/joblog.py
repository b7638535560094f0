"""The log of a job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from holdfast.tasks.context import Job


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """A standard logger that knows its job: `job.log.info("rendered %s", name, width=1920)`."""

    def __init__(self, logger: logging.Logger, job: Job) -> None:
        super().__init__(logger, {})
        self.job = job

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Keep what is not logging's own as fields of the record."""
        known = {name: kwargs.pop(name) for name in ("exc_info", "stack_info", "stacklevel", "extra") if name in kwargs}
        fields = dict(kwargs)
        kwargs.clear()
        kwargs.update(known)
        kwargs["extra"] = {**(known.get("extra") or {}), "holdfast_fields": fields, "holdfast_job": self.job}
        return msg, kwargs

    def debug(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log for those who look closely."""
        self.log(logging.DEBUG, msg, *args, **kwargs)

    def info(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log what happens."""
        self.log(logging.INFO, msg, *args, **kwargs)

    def warning(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log what may need somebody."""
        self.log(logging.WARNING, msg, *args, **kwargs)

    def error(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log what went wrong."""
        self.log(logging.ERROR, msg, *args, **kwargs)
