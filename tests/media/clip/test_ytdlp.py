"""Videos of web pages: by yt-dlp, which is ended when it takes too long, and kept to where sources may come from."""

from __future__ import annotations

import http.client
import importlib.util
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from holdfast import JobFailed, Retry
from holdfast_media.clip import resolving, ytdlp
from holdfast_media.clip.addresses import networks
from holdfast_media.clip.gate import gate
from holdfast_media.errors import MediaError
from tests.media.clip import films
from tests.media.clip.conftest import build
from tests.media.clip.servers import Site, serving
from tests.media.clip.test_cutting import ended
from tests.media.clip.test_task import content_of

if TYPE_CHECKING:
    from pathlib import Path

MANY = 10_000_000
"""Bytes: more than any of these sends."""
PAGE = b'<html><head><title>A film</title></head><body><video src="/movie.mp4"></video></body></html>'


def program(folder: Path, script: str) -> str:
    path = folder / "yt-dlp"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def fetch(folder: Path, script: str, **changes: Any) -> Path:
    options: dict[str, Any] = {
        "program": [program(folder, script)],
        "proxy": "http://127.0.0.1:9",
        "ffmpeg": films.program(),
        "wanted": "best",
        "max_bytes": 10_000_000,
        "timeout": 30.0,
        "on_progress": lambda _: None,
        "stop": lambda: None,
    }
    return ytdlp.fetch("https://films.example/watch?v=1", folder, **{**options, **changes})


def test_it_is_ended_with_all_it_started_when_it_takes_too_long(tmp_path: Path) -> None:
    with pytest.raises(MediaError) as error:
        fetch(tmp_path, f'echo $$ > "{tmp_path}/pids"; sleep 300 & echo $! >> "{tmp_path}/pids"; wait', timeout=0.5)
    assert (error.value.code, error.value.retryable) == ("YTDLP_TIMEOUT", True)
    assert ended([int(line) for line in (tmp_path / "pids").read_text().split()])


def test_it_says_how_far_it_is(tmp_path: Path) -> None:
    shares: list[float] = []
    script = 'echo "at  12.5%"; echo "at 100%"; printf film > "$(dirname "$0")/video.mp4"'
    made = fetch(tmp_path, script, on_progress=shares.append)
    assert made.read_text() == "film"
    assert shares == [0.125, 1.0]


@pytest.mark.parametrize(
    ("said", "code", "retryable"),
    [
        ("ERROR: Unsupported URL: https://films.example/x", "YTDLP_FAILED", False),
        ("ERROR: Video unavailable. This video is private", "YTDLP_FAILED", False),
        ("ERROR: unable to download: HTTP Error 503: Service Unavailable", "UPSTREAM_FAILURE", True),
        ("ERROR: The read operation timed out", "UPSTREAM_FAILURE", True),
    ],
)
def test_what_it_says_decides(tmp_path: Path, said: str, code: str, retryable: bool) -> None:  # noqa: FBT001
    with pytest.raises(MediaError) as error:
        fetch(tmp_path, f'echo "{said}" >&2; exit 1')
    assert (error.value.code, error.value.retryable) == (code, retryable)


def test_a_video_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError) as error:
        fetch(tmp_path, "echo 'File is larger than max-filesize'; exit 0")
    assert error.value.code == "SOURCE_TOO_LARGE"


def test_where_it_is_missing_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MediaError, match="pip install yt-dlp") as error:
        ytdlp.find_ytdlp()
    assert error.value.code == "YTDLP_MISSING"


async def test_a_page_without_ytdlp_fails_at_once(tmp_path: Path) -> None:
    with serving(Site(content=PAGE, content_type="text/html; charset=utf-8")) as site:
        studio = build(tmp_path, networks=("127.0.0.0/8",), ytdlp="/nowhere/yt-dlp")
        with pytest.raises(JobFailed) as failed:
            await studio.clip(site.url, 0.0, 1.0)
        assert failed.value.code == "YTDLP_MISSING"
        await studio.app.close()


async def test_a_video_that_turns_out_to_be_too_large_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server of it says beforehand how large it is; so what comes is counted."""
    monkeypatch.setattr(resolving, "AROUND", 0)
    greedy = tmp_path / "yt-dlp"
    greedy.write_text(
        f"#!{sys.executable}\nimport sys, urllib.request\n"
        "proxy = sys.argv[sys.argv.index('--proxy') + 1]\n"
        "opener = urllib.request.build_opener(urllib.request.ProxyHandler({'http': proxy}))\n"
        "movie = sys.argv[-1].replace('/watch', '/movie.mp4')\n"
        "while True:\n    opener.open(movie).read()\n"
    )
    greedy.chmod(0o755)
    site = Site(files={"/watch": ("text/html", PAGE), "/movie.mp4": ("video/mp4", b"film" * 10_000)})
    with serving(site):
        studio = build(tmp_path, networks=("127.0.0.0/8",), ytdlp=str(greedy), max_bytes=100_000, ytdlp_timeout=30.0)
        with pytest.raises(JobFailed) as failed:
            await studio.clip(site.url.replace("/film.mp4", "/watch"), 1.0, 2.0)
        assert failed.value.code == "SOURCE_TOO_LARGE"
        await studio.app.close()
    assert site.sent < 200_000


def test_no_other_proxy_and_no_way_past_it_is_in_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs that it starts have their proxy from there; no_proxy would lead them past it."""
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy", "FTP_PROXY"):
        monkeypatch.setenv(name, "http://elsewhere:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")
    made = fetch(tmp_path, 'env > "$(dirname "$0")/video.mp4"', proxy="http://127.0.0.1:9")
    told = dict(line.partition("=")[::2] for line in made.read_text().splitlines())
    proxies = {name.lower(): value for name, value in told.items() if name.lower().endswith("_proxy")}
    assert proxies == dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    assert told["PATH"] == os.environ["PATH"]


async def test_a_page_that_takes_too_long_is_tried_again_and_fails_with_its_code(tmp_path: Path) -> None:
    with serving(Site(content=PAGE, content_type="text/html")) as site:
        slow = program(tmp_path, "exec sleep 300")
        studio = build(tmp_path, networks=("127.0.0.0/8",), ytdlp=slow, ytdlp_timeout=0.3)
        with pytest.raises(JobFailed, match="YTDLP_TIMEOUT") as failed:
            await studio.clip(site.url, 0.0, 1.0)
        assert failed.value.code == "RETRIES_EXHAUSTED"
        assert studio.left() == []
        await studio.app.close()


@pytest.mark.parametrize("ends", ["exit 1", "exec sleep 300"])
async def test_the_end_of_what_it_said_is_in_the_log_of_the_job(tmp_path: Path, ends: str) -> None:
    """Also when it was ended: what it said before may tell what it was waiting for."""
    with serving(Site(content=PAGE, content_type="text/html")) as site:
        said = "[generic] looked into /home/ana/.netrc\\nERROR: Unsupported URL"
        speaking = program(tmp_path, f"printf '{said}\\n' >&2\n{ends}")
        once = Retry(max_attempts=1)
        studio = build(tmp_path, networks=("127.0.0.0/8",), ytdlp=speaking, ytdlp_timeout=3.0, retry=once)
        handle = await studio.task.enqueue(site.url, 0.0, 1.0)
        async with studio.app.worker(poll=0.05):
            with pytest.raises(JobFailed):
                await handle.result(timeout=60)
        log = "\n".join(line.message for line in await handle.logs())
        assert "the end of what yt-dlp said:\n[generic] looked into <path>\nERROR: Unsupported URL" in log
        await studio.app.close()


@pytest.mark.skipif(importlib.util.find_spec("yt_dlp") is None, reason="yt-dlp is not installed")
async def test_the_real_program_gets_a_video_out_of_a_page(tmp_path: Path, film: Path) -> None:
    site = Site(files={"/watch": ("text/html", PAGE), "/movie.mp4": ("video/mp4", content_of(film))})
    with serving(site):
        studio = build(tmp_path, networks=("127.0.0.0/8",))
        result = await studio.clip(site.url.replace("/film.mp4", "/watch"), 1.0, 2.0)
        assert films.numbers(studio.file_of(result)) == list(range(30, 60))
        await studio.app.close()


# --- the gate -------------------------------------------------------------------------------------------------------------


def through(proxy: str, url: str) -> tuple[int, bytes]:
    parts = urlsplit(proxy)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    try:
        connection.request("GET", url, headers={"Proxy-Connection": "keep-alive"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_gate_lets_through_what_is_allowed_and_nothing_else() -> None:
    with serving(Site(content=b"film" * 50_000)) as site:
        with gate(networks(["127.0.0.1/32"]), MANY) as proxy:
            assert through(proxy.address, site.url) == (200, site.content)
            assert through(proxy.address, site.url.replace("127.0.0.1", "127.0.0.7"))[0] == 403
            assert through(proxy.address, "http://localhost.invalid/")[0] == 502
            assert "proxy-connection" not in site.asked[0]
        with gate((), MANY) as proxy:
            assert through(proxy.address, site.url)[0] == 403
        assert len(site.asked) == 1


def test_the_gate_lets_no_more_in_than_it_may() -> None:
    with serving(Site(content=b"film" * 50_000, with_length=False)) as site, gate(networks(["127.0.0.1"]), 150_000) as proxy:
        assert len(through(proxy.address, site.url)[1]) <= 150_000
        assert proxy.exceeded
        assert through(proxy.address, site.url)[0] == 400, "nothing comes any more"


def test_the_gate_judges_tunnels_too() -> None:
    with serving(Site(content=b"inside")) as site:
        port = urlsplit(site.url).port
        for allowed, status in (("127.0.0.1/32", 200), ("10.0.0.0/8", 403)):
            with gate(networks([allowed]), MANY) as proxy:
                connection = http.client.HTTPConnection("127.0.0.1", urlsplit(proxy.address).port, timeout=10)
                connection.set_tunnel("127.0.0.1", port)
                if status == 200:
                    connection.request("GET", "/film.mp4")
                    assert connection.getresponse().read() == b"inside"
                else:
                    with pytest.raises(OSError, match="403"):
                        connection.request("GET", "/film.mp4")
                connection.close()
