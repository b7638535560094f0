"""What the worker of `benchmarks.dispatch` runs."""

from __future__ import annotations

from benchmarks.dispatch import declare
from holdfast import Holdfast

app = Holdfast()
declare(app)
