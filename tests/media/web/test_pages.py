"""The media pages without a browser: which files are served, who may what, and uploads that go wrong."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin
from uuid import UUID

import msgspec
import pytest
from starlette.testclient import TestClient

from holdfast import Holdfast
from holdfast.server import ServerSettings, create_server
from holdfast.store.port import Action, Role
from holdfast_media.errors import MediaError
from holdfast_media.library import VideoNotFound, moves
from holdfast_media.library.grid import Cell, CellState, Grid, Row
from holdfast_media.library.records import text_of
from holdfast_media.transfer import Limits, uploads
from holdfast_media.web import files, incoming, media_pages
from tests.media.web.stage import lines_of, with_captions
from tests.server.ui.conftest import OWN
from tests.server.ui.serving import SECRET, new_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from holdfast.server import Server
    from holdfast_media import Media
    from tests.media.web.making import Made

pytestmark = pytest.mark.xdist_group("media-web")
PART = 64 * 1024


@dataclass
class Place:
    """The pages of a library with one title that is ready."""

    made: Made
    media: Media
    server: Server
    client: TestClient
    """Of the admin."""

    @property
    def title(self) -> str:
        return f"/media/{self.made.video_id}"

    def do(self, coroutine: Any) -> Any:
        async def work() -> Any:
            return await coroutine

        assert self.client.portal is not None
        return self.client.portal.call(work)

    def having(self, role: Role, **options: Any) -> TestClient:
        """Return a client with a fresh key of this role."""
        key = self.do(new_key(self.server.context.store, f"{role} one", role, **options))
        client = TestClient(self.server, headers=OWN, follow_redirects=False)
        client.portal = self.client.portal
        assert client.post("/login", data={"secret": key}).status_code == 303
        return client

    def audited(self) -> list[tuple[str, tuple[str, ...], str]]:
        lines = self.do(self.server.context.store.audits(limit=20, action=Action.EXTENSION))
        return [(line.actor, line.targets, line.detail) for line in lines]


@pytest.fixture
def place(made: Made, films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(incoming, "PART", PART)
    own = made.copied(tmp_path / "world")
    with_captions(own)
    app = Holdfast(own.url)
    media = own.media(app, films)
    pages = media_pages(media, limits=Limits(total=1_000_000))
    server = create_server(app, ServerSettings(admin_secret=SECRET), housekeeping=False, extensions=[pages])
    with ExitStack() as stack:
        client = stack.enter_context(TestClient(server, headers=OWN, follow_redirects=False))
        assert client.post("/login", data={"secret": SECRET}).status_code == 303
        yield Place(own, media, server, client)


# -- files -----------------------------------------------------------------------------------------------------------------


def test_everything_that_a_playlist_names_is_served_and_may_be_kept(place: Place) -> None:
    base = f"{place.title}/files/"
    master = place.client.get(f"{base}v1/master.m3u8")
    assert master.headers["cache-control"] == "private, no-cache"
    playlists = [urljoin(f"{base}v1/master.m3u8", line) for line in lines_of(master.text)]
    assert len(playlists) == 3, "two qualities and the sound"
    kinds = set()
    for address in playlists:
        playlist = place.client.get(address)
        assert playlist.headers["content-type"] == "application/vnd.apple.mpegurl"
        segments = [urljoin(address, line) for line in lines_of(playlist.text)]
        assert len(segments) >= 5, "the beginning and a segment for each two seconds"
        for segment in segments:
            answer = place.client.get(segment)
            assert answer.status_code == 200
            assert answer.content
            assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
            assert answer.headers["x-content-type-options"] == "nosniff"
            kinds.add(answer.headers["content-type"])
    assert kinds == {"video/mp4", "video/iso.segment"}


def test_parts_of_files_and_files_that_have_not_changed(place: Place) -> None:
    address = f"{place.title}/files/master.m3u8"
    whole = place.client.get(address)
    tag, size = whole.headers["etag"], len(whole.content)
    assert whole.headers["accept-ranges"] == "bytes"
    part = place.client.get(address, headers={"Range": "bytes=2-5"})
    assert (part.status_code, part.content) == (206, whole.content[2:6])
    assert part.headers["content-range"] == f"bytes 2-5/{size}"
    assert place.client.get(address, headers={"Range": "bytes=-3"}).content == whole.content[-3:]
    beyond = place.client.get(address, headers={"Range": f"bytes={size}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{size}")
    assert place.client.get(address, headers={"If-None-Match": tag}).status_code == 304
    head = place.client.head(address)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(size), b"")


def test_nothing_else_of_the_storage_is_served(place: Place) -> None:
    storage, video = place.media.storage, place.made.video_id
    keys = [one.key for one in storage.list(f"videos/{video}/")]
    folder = next(key for key in keys if "180p-" in key).rpartition("/")[0]
    for key in (f"videos/{video}/chunks/a.mp4", f"videos/{video}/source/a.mp4", f"{folder}/note.txt", "uploads/a.mp4"):
        path = place.made.folder / "note"
        path.write_text("not for you")
        storage.put(key, path)
    below = f"{place.title}/files"
    refused = [
        f"{below}/chunks/a.mp4",
        f"{below}/source/a.mp4",
        f"{below}/{folder.rpartition('/')[2]}/note.txt",
        f"{below}/{folder.rpartition('/')[2]}/package.json",
        f"{below}/{folder.rpartition('/')[2]}/.init.mp4.sha256",
        f"{below}/..%2f..%2fuploads/a.mp4",
        f"{below}/%2e%2e/%2e%2e/uploads/a.mp4",
        f"{below}//etc/passwd",
        f"{below}/",
        f"/media/{'0' * 8}-0000-7000-8000-{'0' * 12}/files/master.m3u8",
    ]
    assert {address: place.client.get(address).status_code for address in refused} == dict.fromkeys(refused, 404)
    # what was encoded is tidied away once the title is ready, perhaps just now
    kept = [key for key in keys if "/chunks/" not in key and "/sound/" not in key]
    served = [key for key in kept if key.rpartition("/")[2] not in ("package.json", "pictures.json")]
    for key in served:
        answer = place.client.get(f"{below}/{key.removeprefix(f'videos/{video}/')}")
        assert answer.status_code == 200, key


def test_files_of_a_deleted_title_are_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"{place.title}/files/master.m3u8"
    assert place.client.get(address).status_code == 200
    place.do(place.media.library.delete(place.made.video_id))
    monkeypatch.setattr(files, "FRESH", 0.0)  # a second has passed
    assert place.client.get(address).status_code == 404
    assert place.client.get(place.title).status_code == 404


# -- who may what ----------------------------------------------------------------------------------------------------------


def test_nobody_gets_anything_without_a_login(place: Place) -> None:
    client = TestClient(place.server, headers=OWN, follow_redirects=False)
    client.portal = place.client.portal
    for path in ("/media", place.title, f"{place.title}/files/master.m3u8", "/media/upload"):
        assert client.get(path).headers["location"].startswith("/login"), path
    assert client.post(f"{place.title}/delete").status_code == 401
    assert client.put("/media/upload/x/parts/1", content=b"x").status_code == 401


def test_a_viewer_watches_and_no_more(place: Place) -> None:
    viewer = place.having(Role.VIEWER)
    page = viewer.get(place.title)
    assert page.status_code == 200
    assert "Re-transcode" not in page.text
    assert "Upload" not in viewer.get("/media").text
    assert viewer.get(f"{place.title}/files/master.m3u8").status_code == 200
    for path in (f"{place.title}/retranscode", f"{place.title}/delete", f"{place.title}/retry", "/media/upload"):
        assert viewer.post(path).status_code == 403, path
    assert viewer.put("/media/upload/x/parts/1", content=b"x").status_code == 403


def test_a_key_for_other_queues_sees_nothing_of_it(place: Place) -> None:
    other = place.having(Role.OPERATOR, queues=("mail",))
    assert 'href="/media"' not in other.get("/queues").text
    assert other.get(place.title).status_code == 403
    assert other.get(f"{place.title}/files/master.m3u8").status_code == 403
    assert 'href="/media"' in place.having(Role.OPERATOR, queues=("media",)).get("/queues").text


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_what_another_site_has_a_browser_send_is_refused(place: Place, method: str) -> None:
    path = "/media/upload" if method == "POST" else "/media/upload/x/parts/1"
    answer = place.client.request(method, path, headers={"Sec-Fetch-Site": "cross-site"}, content=b"{}")
    assert answer.status_code == 403


# -- actions ---------------------------------------------------------------------------------------------------------------


def test_chosen_qualities_are_made_anew_and_the_log_says_who_asked(place: Place) -> None:
    operator = place.having(Role.OPERATOR)
    answer = operator.post(f"{place.title}/retranscode", data={"which": "some", "quality": ["90p"]})
    assert answer.headers["location"] == place.title
    video = place.do(place.media.library.get(place.made.video_id))
    assert video.newest.number == 2
    assert video.newest.asked.qualities == ("90p",)
    assert place.audited() == [
        ("operator one", (f"video {video.id}",), "media: re-transcode 90p of 'Otters at dusk'"),
    ]
    page = place.client.get(place.title).text
    assert f'data-master="{place.title}/files/v1/master.m3u8"' in page, "what there was plays on"
    again = operator.post(f"{place.title}/retranscode", data={"which": "all"})
    assert again.status_code == 409
    assert "is being made at this moment" in again.text


def test_a_title_is_made_anew_with_the_ladder_that_it_was_made_with(place: Place) -> None:
    """Whatever the settings of this server say: another one may have added it."""
    for chosen in ({"which": "all"}, {"which": "some", "quality": ["90p"]}):
        assert place.client.post(f"{place.title}/retranscode", data=chosen | {"replace": "on"}).status_code == 303
        asked = place.do(place.media.library.get(place.made.video_id)).newest.asked
        assert [one.name for one in asked.rungs or ()] == ["180p", "90p"]


def test_what_cannot_be_done_is_said(place: Place) -> None:
    assert "has not failed" in place.client.post(f"{place.title}/retry").text
    assert "No quality is chosen" in place.client.post(f"{place.title}/retranscode", data={"which": "some"}).text
    unknown = place.client.post(f"{place.title}/retranscode", data={"which": "some", "quality": ["4320p"]})
    assert (unknown.status_code, "has no quality 4320p: there are 180p, 90p" in unknown.text) == (400, True)
    gone = f"/media/{'0' * 8}-0000-7000-8000-{'0' * 12}"
    assert place.client.post(f"{gone}/delete").status_code == 404
    assert place.audited() == [], "nothing was done"


def test_titles_are_found_by_state_and_words(place: Place, films: Path) -> None:
    place.do(place.media.library.add(films / "other.mp4", title="100 % seals_"))
    assert "seals_" in place.client.get("/media", params={"q": "100 %"}).text
    assert "Otters at dusk" not in place.client.get("/media", params={"q": "100 %"}).text
    assert "Otters at dusk" in place.client.get("/media?state=ready").text
    assert "No title matches" in place.client.get("/media?state=failed").text
    assert place.client.get("/media?state=nonsense&after=nonsense").status_code == 200


def test_a_title_that_is_being_made_says_truly_when_it_can_be_watched(place: Place, films: Path) -> None:
    library = place.media.library
    video = place.do(library.add(films / "other.mp4", title="seals"))
    assert "as soon as all chunks of one quality are there." in place.client.get(f"/media/{video.id}").text

    async def made_together() -> None:
        async with library.database.transaction() as on:
            known = video.newest.jobs
            jobs = text_of(msgspec.structs.replace(known, together=True, encode={"180p": (known.prepare,)}))
            await on.execute("UPDATE media_version SET jobs = ? WHERE id = ?", jobs, video.newest.id)

    place.do(made_together())
    assert "with those of the others, so that is near the end." in place.client.get(f"/media/{video.id}").text


def test_a_title_that_is_ready_stays_done_when_its_jobs_are_pruned(place: Place) -> None:
    store, jobs = place.server.context.store, place.do(place.media.library.get(place.made.video_id)).newest.jobs
    assert place.do(store.delete([UUID(one) for one in jobs.waiting_first], by="test"))
    video = place.do(place.media.library.get(place.made.video_id))
    grid = place.do(place.media.grid(video.newest))
    single = [one for one in (grid.prepare, grid.audio, grid.finalize, *(row.package for row in grid.rows)) if one is not None]
    assert len(single) == 5
    assert {(one.state, one.percent, one.gone) for one in (*grid.cells, *single)} == {("done", 100.0, True)}
    page = place.client.get(place.title).text
    assert "180p, chunk 1 (0:00 to 0:02): done; its job was pruned" in page
    assert 'href="/jobs/' not in page, "a cell leads nowhere"


def test_the_page_of_a_long_film_is_small(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hours in six qualities; an open page is sent this each second."""

    def cell(number: int) -> Cell:
        state = CellState.DONE if number < 60 else CellState.RUNNING if number < 64 else CellState.WAITING
        return Cell(job_id=str(UUID(int=number)), state=state, percent=41, attempt=1, worker="encoder-3:41722")

    rows = tuple(Row(name=f"{name}p", required=True, cells=tuple(map(cell, range(180)))) for name in range(6))

    async def read(_: Any) -> Grid:
        return Grid(version_id="1", state="processing", rows=rows, prepare=cell(0))

    monkeypatch.setattr(place.media, "grid", read)
    update = place.client.get(place.title, headers={"HX-Request": "true"})
    assert len(update.content) < 30_000
    assert f'href="{place.title}?version=1&amp;chunk=65"' in update.text
    stretch = place.client.get(f"{place.title}?version=1&chunk=65").text
    assert "Chunks 65 to 94 of 180" in stretch
    assert stretch.count('class="cell waiting"') == 6 * 30 + 1, "and that of the legend"
    for odd in ("", "x", "-1", "0", "181", "9" * 30, "\u0661"):
        assert place.client.get(place.title, params={"chunk": odd}).status_code == 200


def test_a_card_says_in_words_why_its_title_failed(place: Place) -> None:
    library = place.media.library
    why = "no media file, or one whose beginning is missing."
    broken = place.do(library.add(place.made.folder / "broken.mp4", title="The lost reel"))
    place.client.post(f"{place.title}/retranscode", data={"which": "all"})
    again = place.do(library.get(place.made.video_id))

    async def fail() -> None:
        async with library.database.transaction() as on:
            for one in (broken, again):
                await moves.fail(on, one.newest.id, "INPUT_UNREADABLE", why, driving=one.newest.jobs.driving)

    place.do(fail())
    cards = place.client.get("/media").text
    assert f'title="INPUT_UNREADABLE: {why}">{why}</p>' in cards
    assert f'title="INPUT_UNREADABLE: {why}">Version 2 failed: {why}</p>' in cards


# -- uploads ---------------------------------------------------------------------------------------------------------------


def begin(client: TestClient, content: bytes, name: str = "seals.mp4", **fields: Any) -> Any:
    return client.post("/media/upload", json={"name": name, "size": len(content), "modified": 7, **fields})


def send(client: TestClient, upload: str, number: int, content: bytes, digest: str | None = None) -> Any:
    headers = {"Holdfast-Sha256": digest or hashlib.sha256(content).hexdigest()}
    return client.put(f"/media/upload/{upload}/parts/{number}", content=content, headers=headers)


def test_an_upload_becomes_a_title_once(place: Place, films: Path) -> None:
    content = (films / "other.mp4").read_bytes()
    begun = begin(place.client, content, title="Seals").json()
    parts = [content[at : at + PART] for at in range(0, len(content), PART)]
    assert (begun["parts"], begun["part_size"], begun["have"]) == (len(parts), PART, [])
    missing = place.client.post(f"/media/upload/{begun['id']}/complete")
    assert (missing.status_code, missing.json()["code"]) == (409, "INCOMPLETE")
    for number, part in enumerate(parts, start=1):
        assert send(place.client, begun["id"], number, part).json() == {"part": number}
    assert begin(place.client, content).json()["have"] == list(range(1, len(parts) + 1))
    done = place.client.post(f"/media/upload/{begun['id']}/complete").json()
    assert place.client.get(done["video"]).status_code == 200
    video = place.do(place.media.library.get(done["video"].rpartition("/")[2]))
    assert video.title == "Seals"
    with place.media.storage.open(video.source.key) as file:
        assert file.read() == content
    assert place.audited() == [("admin", (f"video {video.id}",), "media: add 'Seals'")]
    assert place.client.post(f"/media/upload/{begun['id']}/complete").json() == done, "the answer may have been lost"
    assert begin(place.client, content).json() == done, "and the file chosen again"
    assert len(place.audited()) == 1
    assert len(list(place.media.storage.list("uploads/"))) == 1
    assert place.client.post(f"/media/upload/{'0' * 32}/complete").status_code == 404


def test_who_dies_before_there_is_a_title_goes_on_with_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"a film"
    begun = begin(place.client, content).json()
    send(place.client, begun["id"], 1, content)
    add = place.media.library.add

    async def die(**_: Any) -> Any:
        raise VideoNotFound("the database is away")

    monkeypatch.setattr(place.media.library, "add", die)
    assert place.client.post(f"/media/upload/{begun['id']}/complete").status_code == 400
    monkeypatch.setattr(place.media.library, "add", add)
    video = place.client.post(f"/media/upload/{begun['id']}/complete").json()["video"]
    assert place.client.get(video).status_code == 200
    assert [one.size for one in place.media.storage.list("uploads/")] == [len(content)]


def grown_old(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have all uploads left alone for two days; returns them."""
    folder = place.made.folder / "scratch" / "uploads"
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (time.time() - 2 * 86_400,) * 2)
    monkeypatch.setattr(incoming, "SWEEP_EVERY", 0.0)
    monkeypatch.setattr(uploads, "SWEEP_EVERY", 0.0)
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("added", [1, 0])
def test_the_source_of_a_title_is_never_swept(place: Place, monkeypatch: pytest.MonkeyPatch, added: int) -> None:
    """The server dies after the content is in the storage: with the title, or before there is one."""
    begun = begin(place.client, b"a film").json()
    send(place.client, begun["id"], 1, b"a film")

    def die(*_: Any, **__: Any) -> Any:
        raise LookupError("the server dies here")

    with monkeypatch.context() as dying:
        if added:
            dying.setattr(incoming.Incoming, "discard", die)
        else:
            dying.setattr(place.media.library, "add", die)
        assert place.client.post(f"/media/upload/{begun['id']}/complete").status_code == 500
    assert begun["id"] in grown_old(place, monkeypatch)
    other = begin(place.client, b"another film", name="other.mp4").json()
    assert not (place.made.folder / "scratch" / "uploads" / begun["id"]).exists()
    assert (place.made.folder / "scratch" / "uploads" / other["id"]).exists()
    assert len(list(place.media.storage.list("uploads/"))) == added
    if added:
        (video,) = place.do(place.media.library.list(text="seals"))
        with place.media.storage.open(video.source.key) as file:
            assert file.read() == b"a film"


def test_uploads_are_swept_once_a_minute(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def counted(number: int, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def look(self: Any) -> Any:
            looked.append(number)
            return work(self)

        return look

    monkeypatch.setattr(uploads.Uploads, "sweep", counted(1, uploads.Uploads.sweep))
    monkeypatch.setattr(incoming.Incoming, "_folders", counted(2, incoming.Incoming._folders))
    for number in range(3):
        assert begin(place.client, b"a film", name=f"{number}.mp4").status_code == 200
    assert sorted(looked) == [1, 2]


def test_a_disk_that_is_full_is_said_to_the_script(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, status in ((errno.ENOSPC, 507), (errno.EIO, 503)):

        def fail(*_: Any, number: int = number) -> Any:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as broken:
            broken.setattr(incoming, "write", fail)
            answer = begin(place.client, b"a film", name=f"{number}.mp4")
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
        assert answer.json()["message"]


def test_a_file_that_vanishes_is_not_found(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(key: str, start: int = 0) -> Any:
        del start
        raise MediaError("NOT_FOUND", key)

    monkeypatch.setattr(place.media.storage, "open", gone)
    assert place.client.get(f"{place.title}/files/master.m3u8").status_code == 404


def test_parts_that_are_wrong_do_not_count(place: Place) -> None:
    begun = begin(place.client, b"x" * (PART + 10)).json()
    wrong = send(place.client, begun["id"], 1, b"y" * PART, hashlib.sha256(b"x" * PART).hexdigest())
    assert (wrong.status_code, wrong.json()["code"]) == (422, "CHECKSUM_MISMATCH")
    assert send(place.client, begun["id"], 1, b"x" * 100).status_code == 422
    assert send(place.client, begun["id"], 2, b"x" * 11).status_code == 413
    assert send(place.client, begun["id"], 3, b"x").status_code == 413
    assert send(place.client, begun["id"], 1, b"x" * PART, "no hash").status_code == 400
    assert begin(place.client, b"x" * (PART + 10)).json()["have"] == []


def test_what_is_too_large_or_nothing_is_refused_before_it_is_sent(place: Place) -> None:
    assert begin(place.client, b"", size=1_000_001).status_code == 413
    assert begin(place.client, b"").status_code == 413
    assert place.client.post("/media/upload", content=b"no json").status_code == 400
    assert place.client.post("/media/upload", content=b"[" * 20_000).status_code == 413
    assert list(place.media.storage.list("uploads/")) == []


def test_an_upload_is_seen_by_who_began_it_alone_and_can_be_forgotten(place: Place) -> None:
    operator = place.having(Role.OPERATOR)
    begun = begin(operator, b"x" * (PART + 10), name="<b>mine</b>.mp4").json()
    send(operator, begun["id"], 1, b"x" * PART)
    page = operator.get("/media/upload").text
    assert "&lt;b&gt;mine&lt;/b&gt;.mp4" in page
    assert "65.5 kB of 65.5 kB" in page
    assert "mine" not in place.client.get("/media/upload").text
    assert send(place.client, begun["id"], 2, b"x" * 10).status_code == 404
    assert operator.post(f"/media/upload/{begun['id']}/discard").status_code == 303
    assert "is forgotten" in operator.get("/media/upload").text
    assert "mine" not in operator.get("/media/upload").text


def test_hostile_names_of_uploads_reach_no_path(place: Place) -> None:
    for name in ("../../etc/passwd", "a/b.mp4", "\u202e.mp4", ".", "x" * 5000 + ".mp4"):
        begun = begin(place.client, b"a film", name=name).json()
        send(place.client, begun["id"], 1, b"a film")
        assert place.client.post(f"/media/upload/{begun['id']}/complete").status_code == 200
    keys = [one.key for one in place.media.storage.list("uploads/")]
    assert len(keys) == 5
    assert all(key.removeprefix("uploads/").partition(".")[0].count("-") == 4 for key in keys)


def test_what_was_sent_goes_with_its_title(place: Place) -> None:
    begun = begin(place.client, b"a film").json()
    send(place.client, begun["id"], 1, b"a film")
    video = place.client.post(f"/media/upload/{begun['id']}/complete").json()["video"]
    assert place.client.post(f"{video}/delete").status_code == 303

    async def tidied() -> None:
        async with place.media.app.worker(poll=0.05, concurrency=2):
            while list(place.media.storage.list("uploads/")):  # noqa: ASYNC110  files tell nobody
                await asyncio.sleep(0.05)

    async def within() -> None:
        async with asyncio.timeout(60):
            await tidied()

    place.do(within())
