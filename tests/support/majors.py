"""Which versions of PostgreSQL a test runs on."""

from __future__ import annotations

import pytest

from tests.support.postgres import MAJORS

NEWEST = [pytest.param(major, id=f"pg{major}", marks=() if major == MAJORS[-1] else pytest.mark.slow) for major in MAJORS]
"""The newest one, and the others with `--slow`: for tests that wait or fill tables for long. The parameter of a fixture."""
