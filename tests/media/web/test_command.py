"""`holdfast media serve`: one process for a person with a folder of films."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from holdfast import Holdfast
from holdfast_media.web import media_pages
from tests.media.tasks.films import film, frames, ladder
from tests.media.worlds import media_on

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("media-web")
OWN = {"Sec-Fetch-Site": "same-origin"}
ENCODERS = """
from holdfast import Holdfast
from holdfast_media import Media

app = Holdfast()
media = Media(app)
"""


ROOT = Path(__file__).parents[3]


@contextmanager
def serve(folder: Path, *words: str) -> Iterator[tuple[str, str]]:
    """Serve what is in a folder in a process of its own; gives its address and the admin secret."""
    rungs = ladder(folder / "ladder.toml", ("90p", 90, True))
    command = [sys.executable, "-m", "holdfast", "media", "serve", *words, "--root", "media", "--port", "0"]
    with subprocess.Popen(
        [*command, "--ladder", str(rungs)], cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            said = [process.stderr.readline() for _ in range(2)]
            address = re.search(r"watch on (http://127\.0\.0\.1:\d+)/media", said[0])
            secret = re.search(r"the admin secret of this run: (\S+)", said[1])
            assert address is not None, said
            assert secret is not None, said
            yield address[1], secret[1]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


def environment(folder: Path, **told: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    common = {"SCRATCH": str(folder / "scratch"), "RESERVE": "0", "PICTURES": "no", "SEGMENT_SECONDS": "2"}
    return own | {f"HOLDFAST_MEDIA_{name}": value for name, value in common.items()} | told


def ready(client: httpx2.Client, secret: str) -> str:
    """Log in and wait for a title that is ready; returns its path."""
    assert client.post("/login", data={"secret": secret}).status_code == 200
    end = time.monotonic() + 120
    while "No title matches" in client.get("/media?state=ready").text:
        assert time.monotonic() < end, client.get("/media").text
        time.sleep(0.1)
    title = re.search(r'href="(/media/[0-9a-f-]{36})"', client.get("/media").text)
    assert title is not None
    return title[1]


def test_a_folder_of_films_is_served_transcoded_and_watched(tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    film(tmp_path / "films" / "seals.mp4", seconds=2)
    with (
        serve(tmp_path, "films", "--workers", "2", "--no-together", "--trusted-proxies", "127.0.0.1") as (address, secret),
        httpx2.Client(base_url=address, headers=OWN, follow_redirects=True, timeout=30) as client,
    ):
        title = ready(client, secret)
        assert "seals" in client.get("/media").text
        master = re.search(r'data-master="([^"]+)"', client.get(title).text)
        assert master is not None
        assert client.get(master[1]).text.startswith("#EXTM3U")
        proxied = client.post("/login", data={"secret": secret}, headers={"X-Forwarded-Proto": "https"}, follow_redirects=False)
        assert "secure" in proxied.headers["Set-Cookie"].lower(), "the proxy in front is believed"
    assert (tmp_path / "media" / ".holdfast.db").exists()


def test_a_proxy_that_is_no_address_is_told_of_in_a_line(tmp_path: Path) -> None:
    words = ["media", "serve", "--root", "media", "--port", "0", "--trusted-proxies", "front.example"]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: trusted_proxies must be addresses or networks such as 10.0.0.7,"), done.stderr
    assert "Traceback" not in done.stderr


def test_an_encoder_that_reaches_nothing_but_the_server_encodes_a_film(tmp_path: Path) -> None:
    """As the documentation says: two programs, a key and a URL between them."""
    (tmp_path / "films").mkdir()
    film(tmp_path / "films" / "seals.mp4", seconds=2)
    far = tmp_path / "far"
    far.mkdir()
    (far / "encoders.py").write_text(ENCODERS)
    with (
        serve(tmp_path, "films", "--workers", "1", "--remote") as (address, secret),
        httpx2.Client(base_url=address, headers=OWN, follow_redirects=True, timeout=30) as client,
    ):
        made = ["keys", "add", "encoder", "--role", "worker", "--queues", "media-encode", "--actions", "work,get"]
        made += ["--url", f"sqlite:///{tmp_path / 'media' / '.holdfast.db'}"]
        key = subprocess.run(
            [sys.executable, "-m", "holdfast", *made], env=environment(tmp_path), check=True, capture_output=True, text=True
        ).stdout.strip()
        worker = [sys.executable, "-m", "holdfast", "worker", "encoders:app", "--server", address, "--queues", "media-encode"]
        told = environment(far, HOLDFAST_KEY=key, HOLDFAST_MEDIA_STORAGE=address, PYTHONPATH=str(far))
        with subprocess.Popen([*worker, "--name", "far-away-1"], cwd=far, env=told, stderr=subprocess.PIPE) as encoder:
            try:
                title = ready(client, secret)
            finally:
                encoder.terminate()
                _, log = encoder.communicate(timeout=60)
        assert encoder.returncode == 0, log
        assert "far-away-1" in client.get(title).text, "the grid says who encoded it"
    assert len(frames(tmp_path / "media" / "videos" / title.removeprefix("/media/") / "master.m3u8")) == 20
    assert not list((far / "scratch").rglob("*.mp4"))


def test_the_shortcut_in_the_docs_is_that_of_the_pages(tmp_path: Path) -> None:
    key = media_pages(media_on(Holdfast("memory://"), tmp_path)).key
    assert f"**Media** in the navigation (`g {key}`)" in (ROOT / "docs" / "media" / "watching.md").read_text()
