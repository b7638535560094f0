"""An encoder's program: run by real worker processes, which are killed."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import holdfast_media.storage.http as client_side
from holdfast import Holdfast, Job
from holdfast_media.storage import Attempt, storage_from

app = Holdfast()


@app.task(name="encode", queue="video", lease=4.0, retry=5)
def encode(source: str, output: str, *, job: Job) -> list[int]:
    """Publish the source eight times over; the first attempt stands still after half of it, and waits to be killed."""
    storage = storage_from(f"{os.environ['MEDIA_STORAGE']}?part_mib=1", cache=Path("cache"))
    files = storage.bind(Attempt.of(job), stop=lambda: job.abort.reason)
    made = Path(f"made-{job.attempt}")
    with files.lend(source) as film:
        made.write_bytes(film.read_bytes() * 8)
    shares: list[float] = []

    def on_progress(share: float) -> None:
        shares.append(share)
        if job.attempt == 1 and share >= 0.5:
            Path("half").touch()
            time.sleep(60)

    before = client_side.HttpStorage._ask
    sent: list[str] = []

    def noted(self: client_side.HttpStorage, method: str, path: str, *rest: object, **options: object) -> object:
        if method == "PUT":
            sent.append(path)
        return before(self, method, path, *rest, **options)  # type: ignore[arg-type]

    client_side.HttpStorage._ask = noted  # type: ignore[method-assign, assignment]
    stored = files.put(f"{output}/film", made, on_progress=on_progress)
    storage.close()
    assert stored.sha256 == hashlib.sha256(made.read_bytes()).hexdigest()
    return [job.attempt, len(sent)]
