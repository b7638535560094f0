"""Files for encoders that reach nothing but the server: routes that stand beside Holdfast's."""

from holdfast_media.transfer.grants import Grant, grants_by_fields
from holdfast_media.transfer.limits import Limits
from holdfast_media.transfer.routes import Transfer, add_transfer, with_transfer

__all__ = ["Grant", "Limits", "Transfer", "add_transfer", "grants_by_fields", "with_transfer"]
