"""What S3 answers when it does not work: what passes by itself, and what a person has to mend, with how."""

from __future__ import annotations

from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from holdfast_media.errors import MediaError
from holdfast_media.storage.retrying import Transient

ABSENT: Final = frozenset({"404", "NoSuchKey", "NotFound"})
TAKEN: Final = frozenset({"412", "PreconditionFailed"})
"""Something is under the key already."""
BUSY: Final = frozenset({"409", "ConditionalRequestConflict", "OperationAborted"})
"""Somebody else writes the same key this moment."""
UNKNOWN_UPLOAD: Final = frozenset({"NoSuchUpload"})
NOT_UNDERSTOOD: Final = frozenset({"NotImplemented", "501", "InvalidRequest", "InvalidArgument", "400"})
FULL: Final = frozenset({"XMinioStorageFull", "InsufficientStorage", "507", "QuotaExceeded"})
PASSING: Final = frozenset(
    {
        "RequestTimeout",
        "SlowDown",
        "InternalError",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "BadDigest",  # damaged on its way
        "InvalidDigest",
        "XAmzContentSHA256Mismatch",
        "IncompleteBody",
    }
    | BUSY
)
DENIED: Final = {
    "AccessDenied": "let it read, write, list and delete there: s3:GetObject, PutObject, DeleteObject, AbortMultipartUpload, "
    "and s3:ListBucket, without which what is missing looks forbidden",
    "403": "the keys may be wrong, or lack s3:ListBucket, without which what is missing looks forbidden",
    "401": "check the access key and its secret",
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID, or the profile that is used",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "renew the session's credentials",
    "InvalidToken": "renew the session's credentials",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "AuthorizationHeaderMalformed": "name the bucket's region: s3://bucket/prefix?region=…",
    "PermanentRedirect": "name the bucket's region: s3://bucket/prefix?region=…",
    "301": "name the bucket's region: s3://bucket/prefix?region=…",
    "AllAccessDisabled": "ask whoever owns the bucket",
}
LINES: Final = (
    EndpointConnectionError,
    ConnectionClosedError,
    ConnectTimeoutError,
    ReadTimeoutError,
    IncompleteReadError,
    ResponseStreamingError,
    HTTPClientError,
)
FIRST_OF_SERVER: Final = 500


def code_of(error: ClientError) -> str:
    """Return the code of an answer; a HEAD has no body, so that its status stands for it."""
    return str(error.response.get("Error", {}).get("Code", ""))


def raise_for(error: Exception, where: str, key: str, code: str) -> None:
    """Raise what an error of the client means: `Transient`, or a `MediaError`. `code` is for what may pass."""
    if isinstance(error, ClientError):
        _raise_answer(error, where, key, code)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError)):
        why = f"there are no credentials for {where}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
        raise MediaError("ACCESS_DENIED", why) from error
    if isinstance(error, (*LINES, OSError)):
        raise Transient(MediaError(code, f"{where} does not answer: {_short(error)}")) from error
    if isinstance(error, BotoCoreError):
        raise MediaError("BAD_STORAGE", f"{where} cannot be used: {_short(error)}") from error
    raise error


def _raise_answer(error: ClientError, where: str, key: str, code: str) -> None:
    found = code_of(error)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    said = error.response.get("Error", {}).get("Message") or found
    if found == "NoSuchBucket":
        why = f"{where} is not there. Make the bucket (aws s3 mb s3://NAME), or correct its name or the endpoint"
        raise MediaError("NO_SUCH_BUCKET", why) from error
    if found in DENIED:
        raise MediaError("ACCESS_DENIED", f"{where} refuses {key}: {said}. Fix: {DENIED[found]}") from error
    if found in ABSENT:
        raise MediaError("NOT_FOUND", f"nothing is stored under {key}") from error
    if found in ("EntityTooLarge", "MaxMessageLengthExceeded"):
        raise MediaError("TOO_LARGE", f"{where} refuses {key}: {said}") from error
    if found in FULL:
        raise Transient(MediaError("DISK_FULL", f"{where} has no room left: {said}")) from error
    trouble = MediaError(code, f"{where}: {said} ({found}, status {status})")
    if found in PASSING or status >= FIRST_OF_SERVER or status in (408, 429):
        raise Transient(trouble) from error
    raise MediaError("BAD_STORAGE", f"{where} refuses {key}: {said} ({found}, status {status})") from error


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]
