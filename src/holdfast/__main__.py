"""`holdfast` and `python -m holdfast`: the command line, where its packages are installed."""

from __future__ import annotations

import sys

from holdfast.errors import HoldfastError, MissingExtra


def main() -> None:
    """Run the command line; a user's mistake ends with one message and exit code 1, never with a traceback."""
    try:
        from holdfast.cli.commands import run  # noqa: PLC0415  an extra, loaded on demand
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] not in {"cyclopts", "rich"}:
            raise
        sys.exit(f"error: {MissingExtra('cli', 'the command line', missing.name or '')}")
    try:
        run()
    except HoldfastError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
