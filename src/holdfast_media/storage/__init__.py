"""Where sources and artifacts are: a local folder, S3, or behind a Holdfast server."""

from holdfast_media.storage.hashing import sha256_of
from holdfast_media.storage.keys import checked_key, checked_prefix
from holdfast_media.storage.opening import storage_from
from holdfast_media.storage.port import Attempt, Storage, Stored
from holdfast_media.storage.tree import put_tree

__all__ = ["Attempt", "Storage", "Stored", "checked_key", "checked_prefix", "put_tree", "sha256_of", "storage_from"]
