"""Damage to what is stored, behind the storage's back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast_media.storage.local import LocalStorage
from holdfast_media.storage.s3 import S3Storage

if TYPE_CHECKING:
    from holdfast_media.storage import Storage


def damage(storage: Storage, key: str) -> None:
    """Change one byte of a content, as a bad disk does."""
    if isinstance(storage, LocalStorage):
        path = storage.folder / key
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif isinstance(storage, S3Storage):
        where = {"Bucket": storage.bucket, "Key": storage.prefix + key}
        found = storage.client.get_object(**where)
        data = bytearray(found["Body"].read())
        data[len(data) // 2] ^= 1
        storage.client.put_object(**where, Body=bytes(data), Metadata=found["Metadata"])
    else:
        behind: Any = storage  # through a server: the tests know what is behind it
        damage(behind.behind, key)
