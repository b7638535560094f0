"""Text that every store can keep."""

from __future__ import annotations

from holdfast.errors import BadJob

NAME_LIMIT = 200
"""Characters in a queue, task, key, tag or scope name."""


def flaw(text: str) -> str | None:
    """Say why no store can keep `text`, or `None` when all can."""
    if (position := text.find("\0")) >= 0:
        return f"NUL character at position {position}: PostgreSQL cannot store it"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"lone surrogate {text[error.start]!r} at position {error.start}: it cannot be written as UTF-8"
    return None


def name_flaw(text: object) -> str | None:
    """Say why `text` cannot be a name (queue, task, key, tag), or `None` when it can."""
    if not isinstance(text, str):
        return f"expected str, got {type(text).__name__}"
    if not text:
        return "must not be empty"
    if len(text) > NAME_LIMIT:
        return f"{len(text)} characters, the limit is {NAME_LIMIT}"
    return flaw(text)


def checked_name(text: str, path: str) -> str:
    """Return a name, or refuse it, naming its path."""
    if (reason := name_flaw(text)) is not None:
        raise BadJob(reason, path=path)
    return text


def clean(text: str, limit: int) -> str:
    """Return `text` made storable: NUL and lone surrogates replaced, cut to `limit` characters with a note."""
    if len(text) > limit:
        note = f"\n… cut: {len(text)} characters, {limit} kept"
        text = text[: max(0, limit - len(note))] + note
    if flaw(text) is None:
        return text
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
