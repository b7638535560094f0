"""From what goes wrong to what the queue does about it. In one place: nothing else here decides whether to try again."""

from __future__ import annotations

import errno
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from holdfast import Fatal, HoldfastError, Retryable, Verdict
from holdfast_media.errors import (
    CLIP_TIMEOUT,
    INTERNAL_TRANSIENT,
    STORAGE_UPLOAD_FAILED,
    UPSTREAM_FAILURE,
    YTDLP_TIMEOUT,
    MediaError,
    Stopped,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RETRYABLE: Final = frozenset({STORAGE_UPLOAD_FAILED, YTDLP_TIMEOUT, CLIP_TIMEOUT, UPSTREAM_FAILURE, INTERNAL_TRANSIENT})
"""Another attempt may help. Everything else is fatal: it would only fail again."""

CODES: Final = dict.fromkeys(RETRYABLE, Verdict.RETRYABLE)

_SAME_AS: Final = {
    "CHECKSUM_MISMATCH": STORAGE_UPLOAD_FAILED,  # bytes that changed on their way
    "STORAGE_READ_FAILED": UPSTREAM_FAILURE,
}
"""What other parts call it."""


def classify(error: BaseException) -> Verdict | None:
    """Judge what a clip raised and `translated` did not see: fatal, unless its code is one of the five."""
    if isinstance(error, HoldfastError):
        return None  # says itself what it is
    return CODES.get(getattr(error, "code", ""), Verdict.FATAL)


@contextmanager
def translated(
    shown: Callable[[str], str], aborted: Callable[[], None], log: Callable[[str], object] = lambda _: None
) -> Iterator[None]:
    """Turn what is raised inside into what the queue understands, in words that may be shown.

    `aborted` raises when the attempt was asked to stop: then that, and not what came of it, is what happened. The cause is not
    kept: its own words may hold what `shown` takes out. `log` gets the end of what a program said that failed, and the
    traceback of what nobody foresaw.
    """
    try:
        yield
    except HoldfastError:
        raise
    except MediaError as error:
        aborted()
        if error.detail:
            log(shown(f"the end of what {error.said_by} said:\n{error.detail}"))
        raise _told(error.code, shown(error.message), retryable=error.retryable) from None
    except Stopped as stopped:
        aborted()
        raise Retryable(f"it was stopped: {stopped.reason}", code=INTERNAL_TRANSIENT) from None
    except OSError as error:
        aborted()
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        what = (
            "there is no room left where it works; make room, or name another folder" if full else error.strerror or str(error)
        )
        raise Retryable(shown(what), code=INTERNAL_TRANSIENT) from None
    except Exception as error:  # noqa: BLE001  its message may hold a path, so it must not go on as it is
        aborted()
        log(shown(traceback.format_exc()))
        raise Fatal(shown(f"{type(error).__name__}: {error}"), code="INTERNAL") from None


def _told(code: str, message: str, *, retryable: bool) -> Fatal | Retryable:
    if code in RETRYABLE:
        return Retryable(message, code=code)
    if code in _SAME_AS:
        return Retryable(message, code=_SAME_AS[code])
    if retryable:
        return Retryable(f"{code}: {message}", code=INTERNAL_TRANSIENT)
    return Fatal(message, code=code)
