"""What the processes of the demonstration run; where everything is, the environment says."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast_media.media import Media

app = Holdfast()
media = Media(app)
