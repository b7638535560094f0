"""A film made into a ladder of qualities: by plain ffmpeg, and by Holdfast with one and with two workers.

    ./dev bench media                          a film of 60 s in three qualities; three rounds in turn, then bytes and quality
    ./dev bench media --seconds 12 --rounds 1  a short look

All encode the same frames with the same settings: HLS in fragmented MP4, key frames every 6 s. Plain ffmpeg does it in each way
that could be its best: one command for all qualities, which decodes once; a command for each quality, in turn and all at once.
Each has the threads it likes. Holdfast does it in chunks, as jobs on SQLite, and its time is from adding the film to `ready`:
with the probe and the check of every segment, which plain ffmpeg does not make, and without poster and sprite sheets.

What chunks cost in bytes, SSIM and VMAF is measured once: each quality against the source, scaled in the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, report_of, tell, this_run
from benchmarks.machine import this_machine
from benchmarks.media_page import (
    AT_ONCE,
    BESIDE,
    IN_TURN,
    ONE_BY_ONE,
    ONE_WORKER,
    TOGETHER,
    TWO_WORKERS,
    price_table,
    times_table,
    verdicts,
)
from benchmarks.results import Reading
from holdfast import Holdfast
from holdfast_media import Media, VersionState
from holdfast_media.ffmpeg import choose_encoder, find_ffmpeg
from holdfast_media.ladder import choose, default_ladder
from holdfast_media.source import probe
from holdfast_media.transcode.chunk import quality_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from holdfast_media.ladder import Rendition
    from holdfast_media.library import Version

ROOT: Final = Path(__file__).parents[1]
RATE: Final = 30
SIZE: Final = "1280x720"
SEGMENT: Final = 6
PATIENCE: Final = 900.0
LOOK: Final = 0.5
"""Seconds between two looks whether a film is ready: each takes time of a processor, which plain ffmpeg has for itself."""


@dataclass(frozen=True, slots=True)
class Film:
    """What is encoded, and into what."""

    path: Path
    seconds: int
    chunk: int
    renditions: tuple[Rendition, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """What a contestant took and left."""

    seconds: float
    playlists: Mapping[str, Path]
    """By the name of the quality."""
    extra: Mapping[str, float]


def main(arguments: Sequence[str]) -> int:
    """Measure all in turn, print the tables, write the report; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        prog="./dev bench media", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=at_least_one, default=60, help="how long the film is (%(default)s)")
    parser.add_argument("--chunk", type=at_least_one, default=6, help="seconds of one chunk (%(default)s, as is usual for 60)")
    parser.add_argument("--rounds", type=at_least_one, default=3, help="how often; the median counts (%(default)s)")
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    options = parser.parse_args(arguments)
    run = this_run("media", arguments)
    whole = is_whole(parser, options, "seconds", "rounds") and options.chunk == parser.get_default("chunk")
    path = destination("media", options.json, whole=whole)
    with tempfile.TemporaryDirectory(prefix="holdfast-media-") as folder:
        found = measured(Path(folder), options)
    report = report_of("media", run, this_machine({"ffmpeg": version_of_ffmpeg()}), found)
    print("\n".join([*times_table(report), "", *price_table(report), ""]))
    for held, text in verdicts(report):
        print(f"{'held' if held else 'missed'}: {text}")
    keep(report, path)
    return 0 if all(held for held, _ in verdicts(report)) else 1


def measured(folder: Path, options: argparse.Namespace) -> list[Reading]:
    """Have every contestant make the film in every round, and look at what two of them have made."""
    film = made_film(folder, options.seconds, options.chunk)
    readings: list[Reading] = []
    kept: dict[str, Made] = {}
    for number in range(options.rounds):
        for name, contest in CONTESTANTS.items():
            place = folder / f"{number} {name}"
            place.mkdir()
            load = os.getloadavg()[0]
            made, cpu = timed(contest, film, place)
            tell(f"round {number + 1}: {name}: {made.seconds:.1f} s, {cpu:.1f} s of the processor")
            readings.append(
                Reading(
                    name,
                    "time",
                    number,
                    round(made.seconds, 3),
                    "s",
                    "lower",
                    {"cpu": round(cpu, 2), "load": round(load, 2), **made.extra},
                )
            )
            kept[name] = made
    for name in (TOGETHER, ONE_WORKER):
        tell(f"quality of {name}")
        readings += priced(film, name, kept[name])
    return readings


def timed(contest: Callable[[Film, Path], Made], film: Film, place: Path) -> tuple[Made, float]:
    """Return what a contestant made, and the seconds of the processor that it and its children used."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = contest(film, place)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return made, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


# --- the film -------------------------------------------------------------------------------------------------------------


def made_film(folder: Path, seconds: int, chunk: int) -> Film:
    """Synthesise a film: a zoom into a fractal, from calm to rich, with grain, and a tone. Easy and hard by turns for x264."""
    path = folder / "film.mp4"
    zoom = f"mandelbrot=size=320x180:rate={RATE}:maxiter=100:end_scale=0.3:end_pts={seconds * RATE}"
    picture = f"scale={SIZE.replace('x', ':')},gblur=sigma=2,noise=alls=4:allf=t:all_seed=7,format=yuv420p"
    ffmpeg(
        *("-f", "lavfi", "-i", zoom, "-f", "lavfi", "-i", f"sine=frequency=330:beep_factor=4:duration={seconds}"),
        *("-vf", picture, "-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-g", str(2 * RATE)),
        *("-c:a", "aac", "-t", str(seconds), str(path)),
    )
    renditions = choose(probe(path), default_ladder())
    tell(f"a film of {seconds} s, {path.stat().st_size * 8 / seconds / 1e6:.1f} Mbit/s, into {names(renditions)}")
    return Film(path, seconds, chunk, renditions)


def names(renditions: Iterable[Rendition]) -> str:
    """Return the qualities for people."""
    return ", ".join(one.name for one in renditions)


def ffmpeg(*arguments: str) -> str:
    """Run ffmpeg to its end and return what it said."""
    with started(*arguments) as process:
        _, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"ffmpeg ended with code {process.returncode}:\n{said[-2000:]}")
    return said


def started(*arguments: str) -> subprocess.Popen[str]:
    """Start ffmpeg."""
    words = [str(find_ffmpeg()), "-hide_banner", "-nostdin", "-nostats", "-y", *arguments]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def version_of_ffmpeg() -> str:
    """Return the version, as it says it itself."""
    said = subprocess.run([find_ffmpeg(), "-version"], capture_output=True, text=True, check=True).stdout
    return said.split()[2]


# --- plain ffmpeg ---------------------------------------------------------------------------------------------------------


def one_command(film: Film, place: Path) -> Made:
    """Have one command make all qualities: decoded once, split, each scaled and encoded."""
    begun = time.monotonic()
    ffmpeg(*ladder_arguments(film.path, film.renditions, place, sound=True))
    return Made(time.monotonic() - begun, {one.name: place / one.name / "index.m3u8" for one in film.renditions}, {})


def command_each(*, at_once: bool) -> Callable[[Film, Path], Made]:
    """Return how a command for each quality makes it, the first one the sound as well: one after another, or all at once."""

    def contest(film: Film, place: Path) -> Made:
        begun = time.monotonic()
        commands = [ladder_arguments(film.path, [one], place, sound=number == 0) for number, one in enumerate(film.renditions)]
        if at_once:
            for process in [started(*words) for words in commands]:
                with process:
                    process.communicate()
                if process.returncode:
                    raise SystemExit(f"ffmpeg ended with code {process.returncode}")
        else:
            for words in commands:
                ffmpeg(*words)
        return Made(time.monotonic() - begun, {one.name: place / one.name / "index.m3u8" for one in film.renditions}, {})

    return contest


def ladder_arguments(source: Path, renditions: Sequence[Rendition], place: Path, *, sound: bool) -> list[str]:
    """Return how ffmpeg by itself makes these qualities as HLS, with the settings that Holdfast encodes with."""
    encoder = choose_encoder()
    ends = "".join(f"[in{number}]" for number in range(len(renditions)))
    sizes = [
        f"[in{number}]scale={one.width}:{one.height}:flags=bicubic,setsar=1,{','.join(encoder.filters)}[out{number}]"
        for number, one in enumerate(renditions)
    ]
    words = ["-i", str(source), "-filter_complex", ";".join([f"[0:v]split={len(renditions)}{ends}", *sizes])]
    streams = []
    for number, one in enumerate(renditions):
        words += ["-map", f"[out{number}]", f"-c:v:{number}", encoder.name]
        settings = quality_options(encoder, one)
        for option, value in zip(settings[::2], settings[1::2], strict=True):
            words += [f"{option.removesuffix(':v')}:v:{number}", value]
        streams.append(f"v:{number},name:{one.name}" + (",agroup:sound" if sound else ""))
    words += ["-force_key_frames:v", f"expr:gte(t,n_forced*{SEGMENT})", "-g:v", "100000"]
    if sound:
        words += ["-map", "0:a", "-c:a", "aac", "-b:a", f"{max(one.audio_kbps for one in renditions)}k", "-ac", "2"]
        streams.append("a:0,name:audio,agroup:sound")
    words += ["-f", "hls", "-hls_time", str(SEGMENT), "-hls_playlist_type", "vod", "-hls_segment_type", "fmp4"]
    words += ["-hls_segment_filename", f"{place}/%v/segment_%05d.m4s", "-hls_fmp4_init_filename", "init.mp4"]
    return [
        *words,
        "-master_pl_name",
        f"master_{renditions[0].name}.m3u8",
        "-var_stream_map",
        " ".join(streams),
        f"{place}/%v/index.m3u8",
    ]


# --- Holdfast -------------------------------------------------------------------------------------------------------------


def workers(count: int, *, together: bool = True) -> Callable[[Film, Path], Made]:
    """Return how so many worker processes make it, one job at a time each."""

    def contest(film: Film, place: Path) -> Made:
        return asyncio.run(transcoded(film, place, count, together=together))

    return contest


async def transcoded(film: Film, place: Path, count: int, *, together: bool) -> Made:
    """Add the film to a library of its own, and wait until it is ready."""
    environment = {
        "HOLDFAST_URL": f"sqlite:///{place}/jobs.db",
        "HOLDFAST_MEDIA_STORAGE": f"{place}/media",
        "HOLDFAST_MEDIA_SCRATCH": f"{place}/scratch",
        "HOLDFAST_MEDIA_CHUNK_SECONDS": str(film.chunk),
        "HOLDFAST_MEDIA_SEGMENT_SECONDS": str(SEGMENT),
        "HOLDFAST_MEDIA_TOGETHER": str(together),
        "HOLDFAST_MEDIA_PICTURES": "false",
    }
    app = Holdfast(environment["HOLDFAST_URL"])
    media = Media(app, storage=environment["HOLDFAST_MEDIA_STORAGE"], scratch=environment["HOLDFAST_MEDIA_SCRATCH"])
    await app.stats()  # makes the tables
    words = [sys.executable, "-m", "holdfast", "worker", "holdfast_media.demo.app:app", "--concurrency", "1"]
    environment = os.environ | environment | {"PYTHONPATH": str(ROOT / "src")}
    running = [start([*words, "--log-level", "warning"], place, environment) for _ in range(count)]
    try:
        while len(await app.client().store.workers()) < count:  # noqa: ASYNC110  in other processes
            await asyncio.sleep(0.05)
        begun = time.time()
        video = await media.library.add(film.path)
        version = await ready(media, video.id, deadline=time.monotonic() + PATIENCE)
        assert version.finished_at is not None
        seconds = version.finished_at.timestamp() - begun  # by one clock: all of it runs on this machine
        extra = await account(media, version)
    finally:
        for worker in running:
            worker.terminate()
        for worker in running:
            await asyncio.to_thread(worker.wait, 60)
        await media.close()
        await app.close()
    playlists = {
        one.name: place / "media" / one.result["folder"] / one.result["facts"]["playlist"]
        for one in version.qualities
        if one.result is not None
    }
    return Made(seconds, playlists, extra)


def start(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a worker."""
    return subprocess.Popen(words, cwd=folder, env=environment)


async def ready(media: Media, video_id: str, *, deadline: float) -> Version:
    """Wait until a video is ready."""
    while time.monotonic() < deadline:
        version = (await media.library.get(video_id)).newest
        if version is not None and not version.active:
            if version.state is not VersionState.READY:
                raise SystemExit(f"the film is {version.state}: {version.code}: {version.message}")
            return version
        await asyncio.sleep(LOOK)
    raise SystemExit(f"the film was not ready within {PATIENCE:g} s")


async def account(media: Media, version: Version) -> dict[str, float]:
    """Return the seconds that stages and tasks took, each summed over all jobs, and how long jobs waited for a worker."""
    found: defaultdict[str, float] = defaultdict(float)
    for job_id in version.jobs.waiting_first:
        report = await media.app.job(job_id).report()
        found[report.task.removeprefix("media.")] += report.ran
        found["jobs"] += 1
        for stage in report.stages:
            if stage.name in BESIDE:
                found[stage.name] += stage.seconds or 0.0
    return {name: round(value, 3) for name, value in found.items()}


CONTESTANTS: Final[dict[str, Callable[[Film, Path], Made]]] = {
    TOGETHER: one_command,
    IN_TURN: command_each(at_once=False),
    AT_ONCE: command_each(at_once=True),
    ONE_WORKER: workers(1),
    TWO_WORKERS: workers(2),
    ONE_BY_ONE: workers(2, together=False),
}


# --- bytes and quality ----------------------------------------------------------------------------------------------------


def priced(film: Film, name: str, made: Made) -> list[Reading]:
    """Return bytes, SSIM and VMAF of each quality, each frame against the same frame of the source."""
    found = []
    for one in film.renditions:
        playlist = made.playlists[one.name]
        files = [path for path in playlist.parent.iterdir() if path.suffix in {".m4s", ".mp4"}]
        found.append(Reading(name, f"bytes {one.name}", 0, sum(path.stat().st_size for path in files), "bytes", "lower"))
        for what, value in likeness(film, one, playlist).items():
            found.append(Reading(name, f"{what} {one.name}", 0, round(value, 5), what, "higher"))
    return found


def likeness(film: Film, rendition: Rendition, playlist: Path) -> dict[str, float]:
    """Return how like the source a quality is: SSIM (0 to 1) and VMAF (0 to 100) where this ffmpeg has it."""
    size = f"scale={rendition.width}:{rendition.height}:flags=bicubic,format=yuv420p"
    # frame by frame, whatever the clocks say; on a clock of frames, for others are rounded, and frames fall beside their twins
    both = f"[0:v]settb=1/{RATE},setpts=N[made];[1:v]{size},settb=1/{RATE},setpts=N[meant]"
    inputs = ("-i", str(playlist), "-i", str(film.path))
    said = ffmpeg(*inputs, "-lavfi", f"{both};[made][meant]ssim", "-an", "-f", "null", "-")
    found = {"SSIM": float(_only(r"SSIM .*All:([0-9.]+)", said))}
    if " libvmaf " in subprocess.run([find_ffmpeg(), "-filters"], capture_output=True, text=True, check=True).stdout:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "vmaf.json"
            vmaf = f"libvmaf=log_fmt=json:log_path={log}:n_threads={os.cpu_count()}:n_subsample=3"
            ffmpeg(*inputs, "-lavfi", f"{both};[made][meant]{vmaf}", "-an", "-f", "null", "-")
            found["VMAF"] = json.loads(log.read_text())["pooled_metrics"]["vmaf"]["mean"]
    return found


def _only(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"ffmpeg did not say {pattern}:\n{text[-2000:]}")
    return found[1]
