"""`holdfast` and `python -m holdfast`: the command line, where its packages are installed."""

from __future__ import annotations

from holdfast.cli.ending import run_and_exit


def main() -> None:
    """Run the command line and exit with its code; a user's mistake ends with one message, never with a traceback."""
    run_and_exit()


if __name__ == "__main__":
    main()
