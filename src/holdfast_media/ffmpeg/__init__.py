"""Finding ffmpeg, running it so that it can be watched and ended, and knowing which encoders work here."""

from holdfast_media.ffmpeg.encoders import Encoder, available, choose_encoder
from holdfast_media.ffmpeg.find import find_ffmpeg
from holdfast_media.ffmpeg.limits import time_limit
from holdfast_media.ffmpeg.progress import Progress
from holdfast_media.ffmpeg.redact import redact
from holdfast_media.ffmpeg.run import RunResult, run

__all__ = ["Encoder", "Progress", "RunResult", "available", "choose_encoder", "find_ffmpeg", "redact", "run", "time_limit"]
