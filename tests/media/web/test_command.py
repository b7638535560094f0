"""`holdfast media serve`: one process for a person with a folder of films."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.media.tasks.films import film, ladder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("media-web")
OWN = {"Sec-Fetch-Site": "same-origin"}


def test_a_folder_of_films_is_served_transcoded_and_watched(tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    film(tmp_path / "films" / "seals.mp4", seconds=2)
    rungs = ladder(tmp_path / "ladder.toml", ("90p", 90, True))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environment |= {"HOLDFAST_MEDIA_SCRATCH": str(tmp_path / "scratch"), "HOLDFAST_MEDIA_RESERVE": "0"}
    command = [sys.executable, "-m", "holdfast", "media", "serve", "films", "--root", "media", "--port", "0", "--workers", "2"]
    with subprocess.Popen(
        [*command, "--ladder", str(rungs)], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = [process.stderr.readline() for _ in range(2)]
            address = re.search(r"watch on (http://127\.0\.0\.1:\d+)/media", said[0])
            secret = re.search(r"the admin secret of this run: (\S+)", said[1])
            assert address is not None, said
            assert secret is not None, said
            with httpx2.Client(base_url=address[1], headers=OWN, follow_redirects=True, timeout=30) as client:
                assert client.post("/login", data={"secret": secret[1]}).status_code == 200
                end = time.monotonic() + 120
                while "No title matches" in client.get("/media?state=ready").text:
                    assert time.monotonic() < end, client.get("/media").text
                    time.sleep(0.1)
                page = client.get("/media").text
                assert page.count("seals") > 0
                title = re.search(r'href="(/media/[0-9a-f-]{36})"', page)
                assert title is not None
                master = re.search(r'data-master="([^"]+)"', client.get(title[1]).text)
                assert master is not None
                assert client.get(master[1]).text.startswith("#EXTM3U")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert (tmp_path / "media" / ".holdfast.db").exists()
