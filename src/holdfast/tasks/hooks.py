"""What msgspec does not encode by itself: pydantic models, and subclasses of str, int and float.

pydantic is never imported here. A class is a model when it carries pydantic's validator, so users who have pydantic pay for
it and others do not.
"""

from __future__ import annotations

from typing import Any

import msgspec


def is_model(cls: type) -> bool:
    """Say whether the class is a pydantic (2) model."""
    return hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_validate_json")


def encode_hook(value: Any) -> Any:
    """Give what msgspec can encode in place of `value`; NotImplementedError when there is nothing."""
    cls = type(value)
    if is_model(cls):
        # By alias, because that is what validation reads; round_trip leaves computed fields out, which it would not accept.
        return msgspec.Raw(value.model_dump_json(by_alias=True, round_trip=True, warnings=False).encode())
    # A subclass (a template's safe string, a NumPy float) is equal to the plain value that comes back. The base's own
    # method is called because the subclass may override it.
    if issubclass(cls, str):
        return str.__str__(value)
    if issubclass(cls, int):
        return int.__int__(value)
    if issubclass(cls, float):
        return float.__float__(value)
    raise NotImplementedError


def decode_hook(cls: type[Any], tree: Any) -> Any:
    """Build a pydantic model from decoded JSON; NotImplementedError for any other class."""
    if is_model(cls):
        # Validated as JSON, not as Python objects: a strict model takes a date from text only there.
        return cls.model_validate_json(msgspec.json.encode(tree))
    raise NotImplementedError
