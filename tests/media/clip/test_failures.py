"""Which failures are worth another attempt: five codes, and nothing else."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from holdfast import Aborted, AbortReason, Fatal, Retryable, Verdict
from holdfast_media.clip.failures import CODES, RETRYABLE, classify, translated
from holdfast_media.errors import CODES as ALL
from holdfast_media.errors import MediaError, Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

FIVE = {"STORAGE_UPLOAD_FAILED", "YTDLP_TIMEOUT", "CLIP_TIMEOUT", "UPSTREAM_FAILURE", "INTERNAL_TRANSIENT"}


def outcome(
    error: BaseException, *, shown: Callable[[str], str] = str, aborted: Callable[[], None] = lambda: None
) -> BaseException:
    with pytest.raises(BaseException) as raised, translated(shown, aborted):  # noqa: PT011
        raise error
    return raised.value


def test_the_five_codes_are_retryable_and_no_other() -> None:
    assert sorted(RETRYABLE) == sorted(FIVE)
    assert dict.fromkeys(FIVE, Verdict.RETRYABLE) == CODES


@pytest.mark.parametrize("code", sorted(ALL))
def test_every_code_becomes_one_of_the_five_or_fatal(code: str) -> None:
    given = MediaError(code, "so it is")
    told = outcome(given)
    if given.retryable:
        assert isinstance(told, Retryable)
        assert told.code in FIVE
    else:
        assert isinstance(told, Fatal)
        assert told.code == code


def test_what_storage_calls_otherwise_is_one_of_the_five() -> None:
    assert outcome(MediaError("CHECKSUM_MISMATCH", "")).code == "STORAGE_UPLOAD_FAILED"  # type: ignore[attr-defined]
    assert outcome(MediaError("STORAGE_READ_FAILED", "")).code == "UPSTREAM_FAILURE"  # type: ignore[attr-defined]
    assert outcome(MediaError("OUTPUT_EMPTY", "none")).code == "INTERNAL_TRANSIENT"  # type: ignore[attr-defined]


def test_a_full_disk_may_be_emptied() -> None:
    told = outcome(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/srv/secret.mp4"))
    assert isinstance(told, Retryable)
    assert "secret" not in str(told)


def test_what_nobody_foresaw_is_fatal_and_shows_no_path() -> None:
    lines: list[str] = []
    with (
        pytest.raises(Fatal) as told,
        translated(lambda text: text.replace("/srv/secret", "<path>"), lambda: None, lines.append),
    ):
        raise RuntimeError("broken at /srv/secret")
    assert told.value.code == "INTERNAL"
    assert "secret" not in str(told.value)
    assert told.value.__suppress_context__
    assert "RuntimeError: broken at <path>" in lines[0]


def test_an_attempt_that_was_asked_to_stop_says_so() -> None:
    def aborted() -> None:
        raise Aborted(AbortReason.SHUTDOWN)

    assert isinstance(outcome(Stopped("shutdown"), aborted=aborted), Aborted)
    assert isinstance(outcome(MediaError("ENCODE_KILLED", "by it"), aborted=aborted), Aborted)


def test_what_the_queue_says_itself_passes() -> None:
    for error in (Fatal("x", code="Y"), Retryable("x"), Aborted(AbortReason.CANCELED)):
        assert outcome(error) is error


def test_whatever_escapes_is_judged_by_its_code() -> None:
    assert classify(MediaError("CLIP_TIMEOUT", "")) is Verdict.RETRYABLE
    assert classify(MediaError("BAD_RANGE", "")) is Verdict.FATAL
    assert classify(ValueError("x")) is Verdict.FATAL
    assert classify(Retryable("x")) is None
