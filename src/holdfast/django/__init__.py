"""Django: an app whose jobs are written with Django's own connections, and the commands to run them.

    INSTALLED_APPS = [..., "holdfast.django"]
    HOLDFAST = {"APP": "shop.jobs.app"}

and in `shop/jobs.py`:

    app = DjangoHoldfast()

Importing this package needs neither settings nor models: `INSTALLED_APPS` does so before there are any.
"""

from typing import TYPE_CHECKING, Any

from holdfast.errors import MissingExtra

try:
    import django as _django  # noqa: F401  to tell at once that it is not there
except ImportError as missing:
    raise MissingExtra("django", "holdfast.django", "django") from missing

if TYPE_CHECKING:
    from holdfast.django.app import DjangoHoldfast

__all__ = ["DjangoHoldfast"]


def __getattr__(name: str) -> Any:
    """Load the app when it is asked for."""
    if name != "DjangoHoldfast":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.django.app import DjangoHoldfast  # noqa: PLC0415  see above

    return DjangoHoldfast
