"""All bad and odd inputs at once, given to a real worker: each ends as docs/media/inputs.md says, and the worker lives on."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import av
import pytest

from holdfast import Holdfast
from holdfast_media import Media, VersionState
from tests.media.engine.bad_inputs import FAILING, TABLE, promised
from tests.media.engine.odd_inputs import ODD
from tests.media.tasks.films import ladder
from tests.media.tasks.studio import Studio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Sources = Callable[[str], Path]

GOOD = "a film with nothing wrong"
WORST = (
    *("an MP4 with its index first, cut in half", "an MP4 with rotten bits", "an MP4 without its index", "an empty file"),
    *("random bytes", "a wrong extension", "a zip bomb with the name of a video", "1 x 1 pixel", "variable frame rate"),
    *("a header with 0 frames per second", "10 bits", "a picture to be turned", "no sound", "sound alone"),
    *("a Matroska file without its last 1 %", "a WebM with a hole", "an MP4 with half of its sound rotten"),
)
"""What every change is tried with; the rest is slow."""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(WORST, id="the worst"),
        pytest.param((*FAILING, *ODD), id="all", marks=pytest.mark.slow),
    ],
)
async def test_every_input_ends_as_the_table_says_and_the_worker_lives_on(
    names: tuple[str, ...], source: Sources, tmp_path: Path
) -> None:
    paths = {name: made(name, tmp_path, source) for name in names}
    environment = {
        "HOLDFAST_URL": f"sqlite:///{tmp_path / 'jobs.db'}",
        "HOLDFAST_MEDIA_STORAGE": str(tmp_path / "media"),
        "HOLDFAST_MEDIA_SCRATCH": str(tmp_path / "scratch"),
        "HOLDFAST_MEDIA_LADDER": str(ladder(tmp_path / "ladder.toml", ("90p", 90, True))),
        "HOLDFAST_MEDIA_ENCODER": "x264",
        "HOLDFAST_MEDIA_RESERVE": "0",
        "HOLDFAST_MEDIA_DECODE": "true",
    }
    app = Holdfast(environment["HOLDFAST_URL"])
    media = Media(app, root=tmp_path / "media", scratch=tmp_path / "scratch")
    studio = Studio(environment["HOLDFAST_URL"], tmp_path, tmp_path, app, media)
    videos = {name: await media.library.add(path, title=name) for name, path in paths.items()}
    with worker(tmp_path, environment) as process:
        for name, video in videos.items():
            version = (await studio.ended(video)).newest
            assert version is not None
            if name in FAILING:
                assert (version.state, version.code) == (VersionState.FAILED, promised(name)), f"{name}: {version.message}"
                assert not studio.master(video).exists(), name
            else:
                assert version.state is VersionState.READY, f"{name}: {version.message}"
                assert (version.result or {})["frames"] == frames(paths[name]), name
        # whatever it was given before, it still does its work, and is the one that was started
        good = await studio.ended(await media.library.add(source("25.mp4"), title=GOOD))
        assert good.newest is not None
        assert good.newest.state is VersionState.READY
        assert process.poll() is None
    await studio.close()


def made(name: str, folder: Path, source: Sources) -> Path:
    """Make one of them, in a folder of its own, with a name that says nothing of it."""
    place = folder / f"input {len(list(folder.iterdir()))}"
    place.mkdir()
    (FAILING | ODD)[name](place / "film.avi", source)
    return place / "film.avi"


def frames(path: Path) -> int:
    """Return how many frames come out of a file that is decoded from beginning to end."""
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0)) if container.streams.video else 0


@contextmanager
def worker(folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Give a worker in a process of its own, as people start it."""
    words = [sys.executable, "-m", "holdfast", "worker", "holdfast_media.demo.app:app", "--concurrency", "2"]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=folder, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def test_every_odd_input_has_a_row() -> None:
    rows = TABLE.read_text().split("## Inputs that become")[1]
    assert [name for name in ODD if f"\n| {name}" not in rows] == []
