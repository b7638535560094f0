"""Bad inputs, each made when asked for, and what the table in docs/media/inputs.md promises for them."""

from __future__ import annotations

import random
import re
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import av

from holdfast_media.ffmpeg import find_ffmpeg

if TYPE_CHECKING:
    from collections.abc import Callable

    Sources = Callable[[str], Path]

TABLE = Path(__file__).parents[3] / "docs/media/inputs.md"
PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:6\n#EXTINF:6,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
MANIFEST = '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>file:///etc/passwd</BaseURL></MPD>'


def no_file(path: Path, source: Sources) -> None:
    assert not path.exists()


def empty(path: Path, source: Sources) -> None:
    path.touch()


def random_bytes(path: Path, source: Sources) -> None:
    path.write_bytes(random.Random(7).randbytes(100_000))


def text(path: Path, source: Sources) -> None:
    path.write_text("Dear reader,\n" * 1000)


def zip_bomb(path: Path, source: Sources) -> None:
    """A megabyte of zeros, in a zip, a hundred times over."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        for number in range(100):
            bomb.writestr(f"{number}.mp4", bytes(1 << 20))


def no_index(path: Path, source: Sources) -> None:
    data = source("25.mp4").read_bytes()
    path.write_bytes(data[: data.rindex(b"moov") - 4])


def hls(path: Path, source: Sources) -> None:
    path.write_text(PLAYLIST)


def concat(path: Path, source: Sources) -> None:
    path.write_text(f"ffconcat version 1.0\nfile '{source('25.mp4')}'\n")


def dash(path: Path, source: Sources) -> None:
    path.write_text(MANIFEST)


def png(path: Path, source: Sources) -> None:
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=64x64:d=1", "-frames:v", "1", "-f", "image2", "-c:v", "png", "-update", "1", str(path)
    )


def subtitles(path: Path, source: Sources) -> None:
    (path.parent / "words.srt").write_text("1\n00:00:00,000 --> 00:00:02,000\nwords\n")
    ffmpeg("-i", str(path.parent / "words.srt"), "-f", "matroska", str(path))


def enormous(path: Path, source: Sources) -> None:
    """The size stands in the header of the container: nothing has to be there."""
    data = source("large.mkv").read_bytes()
    said = b"\xb0\x82" + (320).to_bytes(2) + b"\xba\x82" + (300).to_bytes(2)
    assert data.count(said) == 1
    path.write_bytes(data.replace(said, b"\xb0\x82" + (16000).to_bytes(2) + b"\xba\x82" + (16000).to_bytes(2)))


def half(path: Path, source: Sources) -> None:
    data = source("fast-start.mp4").read_bytes()
    path.write_bytes(data[: len(data) // 2])


def half_matroska(path: Path, source: Sources) -> None:
    data = source("24.mkv").read_bytes()
    path.write_bytes(data[: len(data) // 2])


def cut_matroska(share: float) -> Callable[[Path, Sources], None]:
    """Return what leaves this share of a Matroska file: an upload that was cut off shortly before its end."""

    def make(path: Path, source: Sources) -> None:
        data = source("24.mkv").read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    return make


def cut_index(path: Path, source: Sources) -> None:
    """The index stands last, and the sound last in it: what is left of it tells of the picture alone."""
    data = source("25.mp4").read_bytes()
    path.write_bytes(data[: data.rindex(b"trak") - 4])


def holed(path: Path, source: Sources) -> None:
    """What a download in pieces leaves where one never came; from one group of pictures to another, so the rest decodes."""
    data = bytearray(source("clusters.webm").read_bytes())
    starts = [found.start() for found in re.finditer(re.escape(b"\x1f\x43\xb6\x75"), data)]
    hole = range(starts[len(starts) // 2], starts[len(starts) * 3 // 4])
    data[hole.start : hole.stop] = bytes(len(hole))
    path.write_bytes(data)


def rotten_sound(share: float) -> Callable[[Path, Sources], None]:
    """Return what destroys this share of the packets of the sound, evenly, and leaves the picture as it is."""

    def make(path: Path, source: Sources) -> None:
        data = bytearray(source("25.mp4").read_bytes())
        with av.open(str(source("25.mp4"))) as container:
            packets = [(packet.pos, packet.size) for packet in container.demux(audio=0) if packet.size and packet.pos]
        for number, (at, size) in enumerate(packets):
            if int((number + 1) * share) > int(number * share):
                data[at : at + size] = random.Random(number).randbytes(size)
        path.write_bytes(data)

    return make


def rotten(path: Path, source: Sources) -> None:
    data = bytearray(source("25.mp4").read_bytes())
    rot(data, data.index(b"mdat") + 40_000)
    path.write_bytes(data)


def rotten_stream(path: Path, source: Sources) -> None:
    """Only inside of packets: the stream itself stays whole."""
    data = bytearray(source("open.ts").read_bytes())
    middle = len(data) // 2 // 188 * 188
    for packet in range(middle, middle + 188 * 200, 188):
        data[packet + 100 : packet + 140] = random.Random(packet).randbytes(40)
    path.write_bytes(data)


def rot(data: bytearray, start: int) -> None:
    chance = random.Random(11)
    for _ in range(400):
        data[start + chance.randrange(20_000)] ^= 1 << chance.randrange(8)


def ffmpeg(*arguments: str) -> None:
    subprocess.run([find_ffmpeg(), "-v", "error", "-y", *arguments], check=True)


FAILING = {
    "a file that is not there": no_file,
    "an empty file": empty,
    "random bytes": random_bytes,
    "text with the name of a video": text,
    "a zip bomb with the name of a video": zip_bomb,
    "an MP4 without its index": no_index,
    "an HLS playlist": hls,
    "a list of files": concat,
    "a DASH manifest": dash,
    "a picture (PNG": png,
    "a container without picture or sound": subtitles,
    "a picture of more than 67 million pixels": enormous,
    "an MP4 with its index first, cut in half": half,
    "a Matroska file cut in half": half_matroska,
    "a Matroska file without its last 3 %": cut_matroska(0.97),
    "a Matroska file without its last 1 %": cut_matroska(0.99),
    "an MP4 whose index, at the end, is cut": cut_index,
    "a WebM with a hole": holed,
    "an MP4 with rotten bits": rotten,
    "an MPEG transport stream with rotten bits": rotten_stream,
    "an MP4 with half of its sound rotten": rotten_sound(0.5),
    "an MP4 with all of its sound rotten": rotten_sound(1.0),
}


def promised(beginning: str) -> str:
    """Return the code that the table gives for the row that begins like this."""
    (code,) = re.findall(rf"^\| {re.escape(beginning)}[^|]*\| `(\w+)`", TABLE.read_text(), re.MULTILINE)
    return str(code)
