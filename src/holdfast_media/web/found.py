"""What a server asks when it starts: has this app videos to show? Loads nothing where it has none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.server import Extension


def pages_of(app: Holdfast) -> Extension | None:
    """Return the pages of the media application that was made on an app; `None`: none was."""
    loaded = sys.modules.get("holdfast_media.media")  # whoever has made one has loaded it
    media = None if loaded is None else loaded.media_of(app)
    if media is None:
        return None
    from holdfast_media.web.pages import media_pages  # noqa: PLC0415  only for an app with videos

    return media_pages(media)
