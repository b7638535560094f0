"""Downloads: resumed where they broke, ended where they must."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast_media.clip import fetching
from holdfast_media.clip.addresses import networks
from holdfast_media.clip.fetching import Limits, download
from holdfast_media.errors import MediaError, Stopped
from tests.media.clip.servers import Site, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = random.Random(1).randbytes(1_000_000)
HERE = Limits(networks=networks(["127.0.0.0/8"]), timeout=30, stall=10)


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PAUSE", 0.001)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site(content=CONTENT)) as made:
        yield made


def fetch(site: Site, target: Path, limits: Limits = HERE, **options: Any) -> list[float]:
    shares: list[float] = []
    stop = options.pop("stop", lambda: None)
    with download(site.url, limits, stop) as coming:
        coming.into(target, on_progress=shares.append, **options)
    return shares


def refused(site: Site, target: Path, limits: Limits = HERE) -> tuple[str, bool]:
    with pytest.raises(MediaError) as error:
        fetch(site, target, limits)
    return error.value.code, error.value.retryable


def test_a_file_arrives_whole(site: Site, tmp_path: Path) -> None:
    shares = fetch(site, tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == CONTENT
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_file_arrives_whole_also_when_only_the_end_of_the_connection_ends_it(site: Site, tmp_path: Path) -> None:
    site.with_length = False
    fetch(site, tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == CONTENT
    assert len(site.asked) == 1


def test_a_connection_that_is_cut_is_taken_up_where_it_broke(site: Site, tmp_path: Path) -> None:
    site.cut_after = 300_000
    fetch(site, tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == CONTENT
    assert [one.get("range") for one in site.asked] == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]
    assert site.sent == len(CONTENT), "bytes were sent twice"


@pytest.mark.parametrize("if_range", [True, False])
def test_a_file_that_changes_meanwhile_is_a_failure_that_passes(site: Site, tmp_path: Path, if_range: bool) -> None:  # noqa: FBT001
    """Also from a server that has never heard of If-Range, and sends a part of the new file."""
    site.cut_after, site.cuts, site.if_range = 300_000, 1, if_range

    def change() -> None:
        site.content, site.etag = random.Random(2).randbytes(700_000), '"two"'

    site.on_cut = change
    assert refused(site, tmp_path / "a.part") == ("UPSTREAM_FAILURE", True)
    assert (tmp_path / "a.part").read_bytes() == CONTENT[:300_000]


def test_without_an_etag_nothing_is_pieced_together(site: Site, tmp_path: Path) -> None:
    site.etag, site.cut_after, site.cuts = None, 300_000, 2
    fetch(site, tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == CONTENT
    assert not any("range" in one for one in site.asked)


def test_what_an_earlier_attempt_has_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    first, second = tmp_path / "1" / "a.part", tmp_path / "2" / "a.part"
    for path in (first, second):
        path.parent.mkdir()
    shares: list[float] = []
    with pytest.raises(Stopped), download(site.url, HERE, lambda: "shutdown" if shares else None) as coming:
        coming.into(first, on_progress=shares.append)
    had = first.read_bytes()
    assert had == CONTENT[: len(had)]
    assert had
    fetch(site, second, earlier=first)
    assert second.read_bytes() == CONTENT
    assert site.asked[-1]["range"] == f"bytes={len(had)}-"
    assert first.read_bytes() == had, "whoever made it may still write into it"


def test_an_earlier_attempt_at_another_file_is_of_no_use(site: Site, tmp_path: Path) -> None:
    first, second = tmp_path / "1.part", tmp_path / "2.part"
    fetch(site, first)
    site.content, site.etag = random.Random(3).randbytes(1_000_000), '"two"'
    fetch(site, second, earlier=first)
    assert second.read_bytes() == site.content


def test_a_server_that_brings_nothing_is_given_up(site: Site, tmp_path: Path) -> None:
    site.cut_after = 0
    assert refused(site, tmp_path / "a.part") == ("UPSTREAM_FAILURE", True)


def test_a_server_that_stands_still_is_given_up(site: Site, tmp_path: Path) -> None:
    site.stall = threading.Event()
    begun = time.monotonic()
    assert refused(site, tmp_path / "a.part", replace(HERE, stall=0.3)) == ("UPSTREAM_FAILURE", True)
    assert time.monotonic() - begun < 10


def test_a_download_that_takes_too_long_is_given_up(site: Site, tmp_path: Path) -> None:
    site.stall = threading.Event()
    assert refused(site, tmp_path / "a.part", replace(HERE, timeout=0.3)) == ("UPSTREAM_FAILURE", True)


def test_a_stop_is_heard_while_nothing_comes(site: Site, tmp_path: Path) -> None:
    site.stall = threading.Event()
    until = time.monotonic() + 0.3
    with pytest.raises(Stopped, match="canceled"):
        fetch(site, tmp_path / "a.part", stop=lambda: "canceled" if time.monotonic() > until else None)
    assert time.monotonic() - until < 5


@pytest.mark.parametrize("with_length", [True, False])
def test_more_than_is_allowed_is_not_fetched(site: Site, tmp_path: Path, with_length: bool) -> None:  # noqa: FBT001
    site.with_length = with_length
    assert refused(site, tmp_path / "a.part", replace(HERE, max_bytes=500_000)) == ("SOURCE_TOO_LARGE", False)
    target = tmp_path / "a.part"
    assert not target.exists() or target.stat().st_size <= 500_000 + fetching.BLOCK


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (404, "SOURCE_NOT_FOUND", False),
        (410, "SOURCE_NOT_FOUND", False),
        (401, "SOURCE_REFUSED", False),
        (403, "SOURCE_REFUSED", False),
        (429, "UPSTREAM_FAILURE", True),
        (503, "UPSTREAM_FAILURE", True),
    ],
)
def test_what_a_server_answers_decides(site: Site, tmp_path: Path, status: int, code: str, retryable: bool) -> None:  # noqa: FBT001
    site.status = status
    assert refused(site, tmp_path / "a.part") == (code, retryable)


def test_this_machine_is_refused_unless_it_is_allowed(site: Site, tmp_path: Path) -> None:
    assert refused(site, tmp_path / "a.part", Limits()) == ("ADDRESS_REFUSED", False)
    assert site.asked == []


def test_a_redirect_to_a_private_address_is_not_followed(site: Site, tmp_path: Path) -> None:
    """The first server is allowed, and what it leads to is not: nobody may be asked there."""
    with serving(Site(content=b"secret")) as inside:
        site.status, site.location = 302, inside.url.replace("127.0.0.1", "127.0.0.5")
        assert refused(site, tmp_path / "a.part", Limits(networks=networks(["127.0.0.1/32"]))) == ("ADDRESS_REFUSED", False)
        assert inside.asked == []


def test_an_allowed_redirect_is_followed(site: Site, tmp_path: Path) -> None:
    with serving(Site(status=302, location=site.url)) as first:
        fetch(first, tmp_path / "a.part")
    assert (tmp_path / "a.part").read_bytes() == CONTENT


def test_a_circle_of_redirects_ends(site: Site, tmp_path: Path) -> None:
    site.status, site.location = 302, site.url
    assert refused(site, tmp_path / "a.part") == ("SOURCE_REFUSED", False)
    assert len(site.asked) == fetching.REDIRECTS + 1


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://", "gopher://127.0.0.1/_x"])
def test_a_redirect_to_something_else_is_not_followed(site: Site, tmp_path: Path, location: str) -> None:
    site.status, site.location = 302, location
    code, retryable = refused(site, tmp_path / "a.part")
    assert (code in {"BAD_SOURCE", "SOURCE_REFUSED"}, retryable) == (True, False)


@pytest.mark.parametrize("url", ["http://", "https:///x", "http://[::1", "http://a b/", "http://a\r\nX: y/", "http://h:99999/"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(MediaError) as error, download(url, HERE, lambda: None):
        pass
    assert error.value.code == "BAD_SOURCE"


def test_a_query_never_shows_in_what_is_said(site: Site, tmp_path: Path) -> None:
    site.status = 403
    site.url = site.url.replace("http://", "http://user:word@") + "?signature=s3cret"
    with pytest.raises(MediaError) as error:
        fetch(site, tmp_path / "a.part")
    assert "s3cret" not in str(error.value)
    assert "word" not in str(error.value)
    assert site.asked[0]["path"].endswith("signature=s3cret")
