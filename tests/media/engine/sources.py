"""How the sources of the tests are made, by name: small, and the same every time."""

from __future__ import annotations

from typing import Final

X264: Final = ("-c:v", "libx264", "-preset", "ultrafast", "-tune", "fastdecode")
B_FRAMES: Final = ("-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "12")
HIDDEN: Final = "-c:v libvpx -b:v 100k -auto-alt-ref 1 -lag-in-frames 16 -deadline good -cpu-used 5 -g 15"
VP8: Final = ("-c:v", "libvpx", "-b:v", "40k", "-deadline", "realtime", "-cpu-used", "8")
INTERLACED: Final = "-c:v mpeg2video -flags +ildct+ilme -g 12"
FINE_CLOCK: Final = ("-enc_time_base", "1:90000", "-video_track_timescale", "90000")


def picture(rate: str = "25", seconds: float = 5, size: str = "160x90", filters: str = "") -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"testsrc2=s={size}:r={rate}:d={seconds}{filters}")


def tone(seconds: float = 5) -> tuple[str, ...]:
    return ("-f", "lavfi", "-i", f"sine=d={seconds}")


RECIPES: Final[dict[str, tuple[str, ...]]] = {
    # constant rates, lengths that are no multiple of anything
    "24.mkv": (*picture("24", 5.7), *B_FRAMES),
    "25.mp4": (*picture("25", 5.32), *tone(5.32), *B_FRAMES, "-c:a", "aac"),
    "29.97.mp4": (*picture("30000/1001", 7.1), *B_FRAMES),
    "30.webm": (*picture("30", 5), "-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-g", "15", "-b:v", "80k"),
    "60.mp4": (*picture("60", 4.55), *B_FRAMES),
    "clusters.webm": (*picture("12", 10, "64x36"), *VP8, "-g", "6", "-cluster_time_limit", "500"),
    # times that vary, and times that stand still for long
    "vfr.mp4": (
        *picture("30", 7, filters=",select='not(mod(n,7))+gt(mod(n,50),30)'"),
        "-fps_mode",
        "vfr",
        *FINE_CLOCK,
        *B_FRAMES,
    ),
    "pause.mkv": (
        *picture("30", 6, filters=",select='lt(t,2)+gt(t,4)'"),
        *tone(6),
        "-fps_mode",
        "vfr",
        *B_FRAMES,
        "-c:a",
        "aac",
    ),
    "vfr.mkv": (*picture("30", 7, filters=",select='not(mod(n,40))+gt(mod(n,50),30)'"), "-fps_mode", "vfr", *B_FRAMES),
    "pause.mp4": (*picture("30", 14, filters=",select='lt(t,2)+gt(t,11)'"), "-fps_mode", "vfr", *FINE_CLOCK, *B_FRAMES),
    # groups of pictures that lean on each other, in a container without an index
    "open.ts": (
        *picture("25", 6),
        "-c:v",
        "libx264",
        "-preset",
        "veryfast",
        "-bf",
        "3",
        "-g",
        "25",
        "-x264-params",
        "open-gop=1",
    ),
    "mpeg2.ts": (*picture("25", 6), "-c:v", "mpeg2video", "-g", "12", "-bf", "2"),
    "closed.ts": (*picture("25", 6), *tone(6), *B_FRAMES, "-c:a", "aac"),
    "hidden.webm": (*picture("25", 5), *HIDDEN.split()),
    "raw.h264": (*picture("25", 4), *B_FRAMES, "-f", "h264"),
    "guessed.avi": (*picture("25", 4), *B_FRAMES),
    # pictures that are not as they seem
    "wide-pixels.mp4": (*picture(seconds=2, filters=",setsar=4/3"), *X264),
    "ten-bit.mkv": (*picture(seconds=2, size="160x90"), "-pix_fmt", "yuv420p10le", "-c:v", "ffv1"),
    "odd.mkv": (*picture(seconds=2, filters=",format=yuv444p,crop=151:83"), "-c:v", "ffv1"),
    "one-pixel.mkv": (*picture(seconds=2, filters=",format=yuv444p,crop=1:1"), "-c:v", "ffv1"),
    "large.mkv": (*picture(seconds=1, size="320x300"), "-frames:v", "1", "-c:v", "ffv1"),
    "8k.mp4": ("-f", "lavfi", "-i", "color=s=7680x4320:r=25", "-frames:v", "16", *X264),
    "one-frame.mp4": (*picture(seconds=2), "-frames:v", "1", *X264),
    "interlaced.ts": (*picture("50", 4, filters=",tinterlace=interleave_top,fieldorder=tff"), *INTERLACED.split()),
    "one-group.mp4": (*picture(seconds=4), *tone(4), *X264, "-g", "1000", "-c:a", "aac"),
    # sound
    "late.mp4": (*picture(seconds=5), "-itsoffset", "1.5", *tone(2), "-ac", "6", *X264, "-c:a", "aac"),
    "early.mkv": ("-itsoffset", "1.0", *picture(seconds=3), *tone(4), *X264, "-c:a", "aac"),
    "longer-sound.mp4": (*picture(seconds=2), *tone(5), *X264, "-c:a", "aac"),
    "silent.mp4": (*picture(seconds=2), *X264),
    "sound.m4a": (*tone(4.3), "-c:a", "aac"),
    "sound.mp3": (*tone(4.3), "-c:a", "libmp3lame"),
    "sound.flac": tone(8),
    "film.mxf": (*picture("25", 20, "64x36"), "-c:v", "mpeg2video", "-g", "12"),
    "fast-start.mp4": (*picture(seconds=6), *B_FRAMES, "-movflags", "+faststart"),
}
