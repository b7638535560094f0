"""Bytes that pass: counted for who shows progress, watched for a reason to stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast_media.storage.retrying import POLL, check

if TYPE_CHECKING:
    from holdfast_media.storage.port import OnProgress, Stop


class Passing:
    """Takes note of bytes that have passed, of a total."""

    def __init__(self, total: int, on_progress: OnProgress | None, stop: Stop | None) -> None:
        self._total = total
        self._on_progress = on_progress
        self._stop = stop
        self._looked_at = 0.0
        self.passed = 0

    def __call__(self, count: int) -> None:
        """Note that so many more bytes have passed."""
        self.passed += count
        now = time.monotonic()
        if now - self._looked_at >= POLL:
            self._looked_at = now
            check(self._stop)
        if self._on_progress is not None and self._total:
            self._on_progress(min(1.0, self.passed / self._total))

    def back_to(self, passed: int) -> None:
        """Note that what came after so many bytes has to pass again."""
        self.passed = passed
