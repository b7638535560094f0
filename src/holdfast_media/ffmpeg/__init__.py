"""Finding ffmpeg, running it so that it can be watched and ended, and knowing which encoders work here."""

from holdfast_media.ffmpeg.cores import share_of_cores
from holdfast_media.ffmpeg.encoders import HARDWARE, SOFTWARE, Encoder, available, capabilities, choose_encoder
from holdfast_media.ffmpeg.find import find_ffmpeg, look_for_ffmpeg
from holdfast_media.ffmpeg.limits import time_limit
from holdfast_media.ffmpeg.progress import Progress
from holdfast_media.ffmpeg.redact import redact
from holdfast_media.ffmpeg.run import RunResult, run

__all__ = [
    "HARDWARE",
    "SOFTWARE",
    "Encoder",
    "Progress",
    "RunResult",
    "available",
    "capabilities",
    "choose_encoder",
    "find_ffmpeg",
    "look_for_ffmpeg",
    "redact",
    "run",
    "share_of_cores",
    "time_limit",
]
