"""The command line in this process."""

from __future__ import annotations

from tests.cli.conftest import cli  # noqa: F401  a fixture
