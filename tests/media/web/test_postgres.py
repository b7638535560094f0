"""The media pages on PostgreSQL: an upload, the grid that fills while workers elsewhere encode, the film, and its end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from holdfast import Holdfast
from holdfast.server import ServerSettings, create_server
from holdfast_media.web import media_pages
from tests.media.web.making import Made
from tests.media.web.stage import Held, Stage, until, warm
from tests.media.worlds import url_for
from tests.server.ui.serving import SECRET, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.support.postgres import PostgresServers

pytestmark = pytest.mark.xdist_group("media-web")
expect.set_options(timeout=30_000)


@pytest.fixture
def stage(browser: Browser, films: Path, tmp_path: Path, postgres_servers: PostgresServers) -> Iterator[Stage]:
    """An empty library; its server and its workers share the database, and nothing else tells one of the other."""
    own, url = Made(tmp_path / "own"), url_for("postgres", tmp_path, postgres_servers)
    app, elsewhere = Holdfast(url), Holdfast(url)
    pages = media_pages(own.media(app, films))
    with serving(create_server(app, ServerSettings(admin_secret=SECRET), extensions=[pages])) as served:
        context = browser.new_context(locale="en-US", reduced_motion="reduce")
        media = own.media(elsewhere, films)
        stage = Stage(own, films, served, elsewhere, media, context)
        stage.do(warm())
        page = stage.page("/login?next=/media/upload")
        page.fill("#secret", SECRET)
        page.press("#secret", "Enter")
        expect(page.locator("h1")).to_have_text("Upload")
        yield stage
        context.close()
        stage.do(media.close())
        stage.do(elsewhere.close())
        stage.do(app.close())
    assert stage.heard == [], "pages complained"


@pytest.mark.slow
def test_a_film_is_uploaded_seen_as_it_is_made_watched_and_deleted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, holds={"180p"}, first=1, kills={("90p", 1)})
    page = stage.page("/media/upload")
    page.set_input_files("#file", stage.films / "other.mp4")
    page.get_by_role("link", name="Watch it being made").click()
    expect(page.locator("h1 .state")).to_have_text("pending")
    page.evaluate("window.same = true")
    stop = stage.worker(concurrency=4, name="attic-1:4242")
    try:
        expect(page.locator("#count-done")).to_have_text("2")
        expect(page.locator("#count-redone")).to_have_text("1")
        running = page.locator("#row-1 .cell.running")
        expect(running).to_have_attribute("title", re.compile(r"180p, chunk 2 .*: running, \d+ %; attempt 1; worker attic-1"))
        until(page, "document.querySelector('#video')?.readyState >= 2")
        expect(page.locator("h1 .state")).to_have_text("processing")
        held.gate.set()
        expect(page.locator("#row-1 td.num")).to_have_text("2 of 2")
        expect(page.locator("h1 .state")).to_have_text("ready")
        assert page.evaluate("window.same"), "the page was loaded anew"
        page.goto(f"{stage.url}/media?state=ready&q=OTHER")
        page.locator("a", has_text="other").first.click()
        page.get_by_role("link", name="Delete…").click()
        page.get_by_role("button", name="Delete").click()
        expect(page.locator(".said")).to_contain_text("other is deleted")
        page.goto(f"{stage.url}/audit?action=extension")
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(page.locator("tbody")).to_contain_text(re.compile(r"media: delete 'other'.*media: add 'other'", re.DOTALL))
    finally:
        held.gate.set()
        stop()
