"""The table of codes, and what an error carries."""

from __future__ import annotations

import pickle

import pytest

from holdfast_media import errors
from holdfast_media.errors import CODES, MediaError

RETRYABLE = {
    "CHECKSUM_MISMATCH",
    "STORAGE_READ_FAILED",
    *("STORAGE_UPLOAD_FAILED", "YTDLP_TIMEOUT", "CLIP_TIMEOUT", "UPSTREAM_FAILURE", "INTERNAL_TRANSIENT"),
    *("DISK_FULL", "PROBE_FAILED", "ENCODE_KILLED", "ENCODE_STALLED", "ENCODE_TIMEOUT", "OUTPUT_EMPTY", "OUTPUT_MISMATCH"),
}


def test_every_constant_is_in_the_table_and_the_other_way_round() -> None:
    constants = {value for name, value in vars(errors).items() if name.isupper() and isinstance(value, str)}
    assert constants == set(CODES)


def test_what_is_wrong_with_the_input_stays_wrong() -> None:
    assert {code for code, about in CODES.items() if about.retryable} == RETRYABLE
    assert not any(about.retryable for code, about in CODES.items() if code.startswith("INPUT_"))


def test_an_error_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(MediaError("DISK_FULL", "no space", detail="the end")))
    assert (error.code, error.message, error.detail, error.retryable) == ("DISK_FULL", "no space", "the end", True)
    assert str(error) == "DISK_FULL: no space"


def test_a_code_that_is_none_is_found_out() -> None:
    with pytest.raises(KeyError):
        _ = MediaError("NO_SUCH_CODE", "").retryable
