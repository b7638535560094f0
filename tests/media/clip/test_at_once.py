"""The same clips asked for by several at the same moment: encoded once each."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from holdfast_media.clip.recipe import job_key, make_request
from tests.media.clip import films
from tests.media.clip.conftest import build
from tests.media.clip.test_task import Echo

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast_media.clip.task import ClipResult


def counting(folder: Path) -> tuple[Path, Path]:
    """Return an encoder, and the file that has a line for each time it has encoded."""
    program, runs = folder / "ffmpeg", folder / "runs"
    program.write_text(f'#!/bin/sh\ncase "$*" in *clip.mp4*) echo run >> "{runs}";; esac\nexec "{films.program()}" "$@"\n')
    program.chmod(0o755)
    return program, runs


def test_two_clips_that_two_ask_for_at_once_are_encoded_once_each(url: str, tmp_path: Path, film: Path) -> None:
    """Two programs with a worker each. One writes its times with more digits, and wants to know what is said besides."""
    program, runs = counting(tmp_path)
    together = threading.Barrier(2)
    results: list[ClipResult] = []

    async def ask(number: int) -> None:
        studio = build(tmp_path, url=url, ffmpeg=program, transcriber=Echo())
        source = str(film) if number else film.as_uri()
        async with studio.app.worker(poll=0.05, concurrency=2):
            together.wait(30)
            third = 1 / 3 if number else 0.333
            handles = [
                await studio.task.enqueue(source, start + third, 3.0, asr=asr)
                for start in (1, 2)
                for asr in (number == 1, False)
            ]
            results.extend(await asyncio.gather(*(handle.result(timeout=60) for handle in handles)))
        await studio.app.close()

    threads = [threading.Thread(target=lambda number=number: asyncio.run(ask(number))) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert len({result.key for result in results}) == 2
    assert {result.frames for result in results} == {50, 20}
    assert sum(result.captions is not None for result in results) == 2
    assert runs.read_text().split() == ["run", "run"]


def test_the_same_clip_has_one_key_however_it_is_written(film: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.mp4"
    link.symlink_to(film)
    written = [
        (str(film), 1.0, 2.0),
        (film.as_uri(), 1, 2),
        (str(link), 1.0004, 1.9996),
        (f"{film.parent}/./{film.name}", 1.0, 2.0),
    ]
    assert len({job_key(make_request(*one)) for one in written}) == 1
    others = [(str(film), 1.001, 2.0), (str(film), 1.0, None), (str(tmp_path / "none.mp4"), 1.0, 2.0)]
    assert len({job_key(make_request(*one)) for one in [*written, *others]}) == 4
