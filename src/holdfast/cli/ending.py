"""How a command ends: one message for a mistake, never a traceback, and an exit code that says what it was."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn

from holdfast.errors import BadArgs, BadJob, BadSetting, BadUrl, HoldfastError, JobNotFound, MissingExtra


def run_and_exit() -> NoReturn:
    """Run what `sys.argv` says and exit with its code."""
    # A shell starts background commands of a script with interrupts ignored: then there would be no way to end one in peace.
    with contextlib.suppress(ValueError):  # not in the main thread: then whoever called it minds the signals
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        from holdfast.cli.commands import run  # noqa: PLC0415  an extra, loaded on demand
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] not in {"cyclopts", "rich"}:
            raise
        sys.exit(f"error: {MissingExtra('cli', 'the command line', missing.name or '')}")
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader has seen enough (`| head`): what is still buffered has nowhere to go
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (HoldfastError, TimeoutError) as error:
        sys.stderr.write(f"error: {error}\n")
        code = _code(error)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _code(error: Exception) -> int:
    """Return 3 for what is not there, 2 for what was written wrongly, 1 for the rest."""
    from holdfast.finding import Mistake, NotThere  # noqa: PLC0415  as above

    if isinstance(error, (JobNotFound, NotThere)):
        return 3
    return 2 if isinstance(error, (Mistake, BadSetting, BadUrl, BadArgs, BadJob)) else 1
