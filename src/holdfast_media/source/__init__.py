"""What a source is: its facts, read where a hostile file can do no harm, and its identity."""

from holdfast_media.source.check import check
from holdfast_media.source.facts import AudioFacts, Facts, VideoFacts
from holdfast_media.source.identity import identity
from holdfast_media.source.probe import probe

__all__ = ["AudioFacts", "Facts", "VideoFacts", "check", "identity", "probe"]
