"""What a worker behind a server may read and write for a job: what the args of that job name, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast_media.transfer.grants import Grant, grants_by_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELDS: Final = {
    "media.encode": grants_by_fields(
        reads=("work.origin.ref.key",), writes=("work.key", "work.note", "work.twins.key", "work.twins.note")
    ),
    "media.audio": grants_by_fields(reads=("work.origin.ref.key",), writes=("work.key", "work.folder")),
    "media.transcribe": grants_by_fields(reads=("origin.ref.key",), writes=("key",)),
}
"""Of the tasks that need no database. The others run beside it, and reach the storage themselves."""


def grants(task: str, args: Mapping[str, Any]) -> Grant:
    """Return what a job may use; for `with_transfer(…, grants=media.grants)`."""
    found = _FIELDS.get(task)
    return Grant() if found is None else found(task, args)
