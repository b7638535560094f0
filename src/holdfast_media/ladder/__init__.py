"""Which qualities a video is wanted in, and which of them its source can give."""

from holdfast_media.ladder.choose import choose
from holdfast_media.ladder.load import default_ladder, ladder_of, load_ladder
from holdfast_media.ladder.rungs import Ladder, Rendition, Rung

__all__ = ["Ladder", "Rendition", "Rung", "choose", "default_ladder", "ladder_of", "load_ladder"]
