"""The media pages in a browser: films that play, a grid that fills, uploads that go on."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from holdfast import Holdfast
from holdfast.server import ServerSettings, create_server
from holdfast_media.transfer import Limits
from holdfast_media.web import incoming, media_pages
from holdfast_media.words import length
from tests.media.tasks.films import film, ladder
from tests.media.web import doomed
from tests.media.web.making import SECONDS, TITLE, Made
from tests.media.web.stage import Held, Stage, until, warm, with_captions
from tests.server.ui.browser import axe
from tests.server.ui.serving import SECRET, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page, Request, Route, ViewportSize

    from holdfast_media import Video

pytestmark = pytest.mark.xdist_group("media-web")

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "docs" / "images"
WIDE: ViewportSize = {"width": 1360, "height": 850}
TALL: ViewportSize = {"width": 1360, "height": 960}
NARROW: ViewportSize = {"width": 380, "height": 800}
HOSTILE = (
    "<img src=x onerror=document.title='owned'>",
    "\u202etxet desrever\u202c",
    "w" * 190,
    "'\"`{{7*7}}</script><svg onload=alert(1)>",
)
MOST = 500_000_000
PICTURED = {"titles", "grid", "title", "upload"}
expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def shown(browser: Browser, made: Made, films: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    own = made.copied(tmp_path_factory.mktemp("shown"))
    with_captions(own)
    app = Holdfast(own.url)
    media = own.media(app, films)
    pages = media_pages(media, limits=Limits(total=MOST))
    with serving(create_server(app, ServerSettings(admin_secret=SECRET), extensions=[pages])) as served:
        context = browser.new_context(locale="en-US", viewport=WIDE, color_scheme="light", reduced_motion="reduce")
        stage = Stage(own, films, served, app, media, context)
        stage.do(warm())
        page = stage.page("/login?next=/media")
        page.fill("#secret", SECRET)
        page.press("#secret", "Enter")
        expect(page.locator("h1")).to_have_text("Media")
        page.close()
        yield stage
        context.close()
        stage.do(app.close())


@pytest.fixture
def stage(shown: Stage) -> Iterator[Stage]:
    shown.heard.clear()
    yield shown
    for page in shown.context.pages:
        page.close()
    assert shown.heard == [], "pages complained"


@pytest.fixture
def page(stage: Stage) -> Page:
    """The page of the title that is ready, with its player loaded."""
    one = stage.page(f"/media/{stage.made.video_id}")
    until(one, "document.querySelector('#video').readyState >= 2")
    return one


# -- playing ---------------------------------------------------------------------------------------------------------------


def test_the_film_plays_from_start_to_end(page: Page) -> None:
    page.evaluate("""() => {
        const video = document.querySelector("#video");
        window.seen = { times: [], ended: 0 };
        video.playbackRate = 2;
        video.addEventListener("timeupdate", () => window.seen.times.push(video.currentTime));
        video.addEventListener("ended", () => { window.seen.ended += 1; });
    }""")
    page.get_by_role("button", name=f"Play {TITLE}").click()
    expect(page.locator("#player")).to_have_attribute("data-state", "ended")
    seen = page.evaluate("window.seen")
    assert seen["ended"] == 1
    assert seen["times"] == sorted(seen["times"])
    assert seen["times"][-1] == pytest.approx(SECONDS, abs=0.1)
    assert len([time for time in seen["times"] if 0.2 < time < SECONDS - 0.2]) >= 5, "it went through the film"
    assert page.evaluate("document.querySelector('#video').getVideoPlaybackQuality().totalVideoFrames") >= SECONDS * 10 * 0.5
    expect(page.locator("#time")).to_have_text("0:08 / 0:08")
    expect(page.get_by_role("button", name="Play again")).to_be_visible()


@pytest.mark.parametrize(("seconds", "text"), [(59.4, "0:59"), (59.5, "1:00"), (59.6, "1:00"), (3599.7, "1:00:00")])
def test_the_clock_of_the_player_is_that_of_the_page(page: Page, seconds: float, text: str) -> None:
    page.evaluate(
        """(seconds) => {
            const video = document.querySelector("#video");
            for (const name of ["duration", "currentTime"]) Object.defineProperty(video, name, { value: seconds });
            video.dispatchEvent(new Event("durationchange"));
        }""",
        seconds,
    )
    expect(page.locator("#time")).to_have_text(f"{text} / {text}")
    assert length(seconds) == text


def test_the_viewer_chooses_the_quality(page: Page) -> None:
    expect(page.locator("#quality option")).to_have_count(3)
    page.get_by_role("button", name="Play", exact=True).click()
    for name, height in (("90p", 90), ("180p", 180)):
        page.locator("#quality").select_option(label=name)
        page.evaluate("document.querySelector('#video').currentTime = 0")
        until(page, f"document.querySelector('#video').videoHeight === {height}")
        expect(page.locator("#player")).to_have_attribute("data-level", name)
    expect(page.locator("#quality option").first).to_have_text("Auto")
    page.locator("#quality").select_option(value="-1")
    expect(page.locator("#quality option").first).to_have_text(re.compile(r"Auto \(\d+p\)"))


def test_the_viewer_seeks_and_sees_where(page: Page) -> None:
    seek = page.locator("#seek")
    seek.focus()
    page.keyboard.press("ArrowRight")
    until(page, "(({currentTime, seeking}) => currentTime === 5 && !seeking)(document.querySelector('#video'))")
    expect(seek).to_have_attribute("aria-valuetext", "0:05 of 0:08")
    box = seek.bounding_box()
    assert box is not None
    with page.expect_response(lambda answer: "sprites_000.jpg" in answer.url) as picture:
        page.mouse.move(box["x"] + box["width"] * 0.26, box["y"] + box["height"] / 2)
    assert picture.value.ok
    expect(page.locator("#preview")).to_be_visible()
    expect(page.locator("#preview span")).to_have_text("0:02")
    tile = page.locator(".tile-of")
    assert tile.evaluate("one => one.style.backgroundPosition") == "-320px 0px"
    page.mouse.click(box["x"] + box["width"] * 0.26, box["y"] + box["height"] / 2)
    until(page, "(({currentTime, seeking}) => Math.abs(currentTime - 2) < 0.4 && !seeking)(document.querySelector('#video'))")


def test_what_is_said_is_shown(page: Page) -> None:
    button = page.get_by_role("button", name="Subtitles")
    page.get_by_role("button", name="Play", exact=True).click()
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    until(page, "document.querySelector('#video').textTracks[0].activeCues?.length === 1")
    assert page.evaluate("document.querySelector('#video').textTracks[0].activeCues[0].text") == "An otter says hello."
    button.click()
    assert page.evaluate("document.querySelector('#video').textTracks[0].mode") == "disabled"


def test_sound_alone_has_a_page_of_its_own_and_plays(stage: Stage) -> None:
    film(stage.films / "talk.m4a", seconds=3, picture=False)
    video = stage.add("talk.m4a", "A talk about otters")
    page = stage.page(f"/media/{video.id}")
    expect(page.locator("#grid")).to_contain_text("The chunks appear here as soon as the source was looked at.")
    stop = stage.worker(concurrency=2)
    try:
        expect(page.locator("h1 .state")).to_have_text("ready")
        expect(page.locator("#grid")).to_contain_text("There is no picture: the sound is encoded in one piece.")
        expect(page.locator("#grid table, #grid .legend")).to_have_count(0)
        expect(page.locator(".stages li")).to_have_count(3)
        expect(page.locator(".facts")).to_contain_text("none")
        until(page, "document.querySelector('#video').readyState >= 2")
        for control in ("#quality", "#full", "#captions"):
            expect(page.locator(control)).to_be_hidden()
        expect(page.locator(".no-picture")).to_be_visible()
        expect(page.locator("#mute")).to_be_enabled()
        page.get_by_role("button", name="Play", exact=True).click()
        expect(page.locator("#player")).to_have_attribute("data-state", "ended")
        expect(page.locator("#player-says")).to_be_empty()
        page.goto(f"{stage.url}/media")
        card = page.locator(f"#video-{video.id}")
        expect(card.locator("use").first).to_have_attribute("href", "#i-m-sound")
        expect(card.locator(".shot img")).to_have_count(0)
    finally:
        page.close()
        stop()
        stage.do(stage.media.library.delete(video.id))


def test_a_silent_film_says_that_it_has_no_sound(stage: Stage) -> None:
    film(stage.films / "silent.mp4", seconds=2, sound=False)
    video = stage.add("silent.mp4", "Silent otters")
    stop = stage.worker(concurrency=2)
    page = stage.page(f"/media/{video.id}")
    try:
        expect(page.locator("h1 .state")).to_have_text("ready")
        until(page, "document.querySelector('#video')?.readyState >= 2")
        expect(page.locator("#mute")).to_be_disabled()
        expect(page.locator("#mute")).to_have_attribute("title", "There is no sound")
        expect(page.locator("#mute use")).to_have_attribute("href", "#i-m-quiet")
        expect(page.locator("#quality option")).to_have_count(3)
        expect(page.locator(".stages li")).to_have_count(2)  # no sound
        expect(page.locator("#row-2 .cell.done")).to_have_count(2)  # one chunk and its playlist
    finally:
        page.close()
        stop()
        stage.do(stage.media.library.delete(video.id))


# -- the grid --------------------------------------------------------------------------------------------------------------


def test_the_grid_fills_and_the_film_plays_before_all_of_it_is_there(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch, holds={"180p"}, kills={("90p", 2)})
    video = stage.add("otters.mp4", "Otters at dawn")
    page = stage.page(f"/media/{video.id}")
    page.evaluate("window.same = true")
    expect(page.locator("h1 .state")).to_have_text("pending")
    expect(page.locator("#no-player")).to_contain_text("as soon as all chunks of one quality are there")
    stop = stage.worker(concurrency=6, name="attic-1:4242")
    try:
        expect(page.locator("#count-running")).to_have_text("4")
        expect(page.locator("#count-redone")).to_have_text("1")
        expect(page.locator("#count-done")).to_have_text("3")
        second = page.locator("#row-1 .cell.running").nth(1)
        expect(second).to_contain_text("49")
        expect(second).to_have_attribute(
            "title", re.compile(r"180p, chunk 2 \(0:02 to 0:04\): running, 49 %; attempt 1; worker attic-1")
        )
        expect(page.locator("#row-2 .cell.redone")).to_have_attribute("title", re.compile("90p, chunk 3 .*: redone; attempt 2"))
        expect(page.locator("#quality option")).to_have_text(["Auto (90p)", "90p"])
        page.get_by_role("button", name="Play", exact=True).click()
        until(page, "document.querySelector('#video').currentTime > 0.5")
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("h1 .state")).to_have_text("processing")
        held.gate.set()
        expect(page.locator("#count-done")).to_have_text("7")
        expect(page.locator("#row-1 td.num")).to_have_text("4 of 4")
        expect(page.locator("h1 .state")).to_have_text("ready")
        page.locator("#player-says").get_by_role("button", name="Use it").click()
        expect(page.locator("#quality option")).to_have_count(3)
        until(page, "document.querySelector('#video').currentTime > 0.5")
        assert page.evaluate("window.same"), "the page was loaded anew"
    finally:
        held.gate.set()
        stop()


def test_a_worker_that_is_gone_is_seen_in_amber(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second attempt that runs: another worker has taken over."""
    held = Held(monkeypatch, kills={("90p", 0)})
    video = stage.add("other.mp4", "Otters at noon")
    page = stage.page(f"/media/{video.id}")
    stop = stage.worker(concurrency=4, name="attic-2:4242")
    held.holds |= {"90p", "180p"}
    try:
        over = page.locator("#row-2 .cell.taken-over")
        expect(over).to_have_attribute("title", re.compile("90p, chunk 1 .*: taken over, 34 %; attempt 2; worker attic-2"))
        expect(page.locator("#count-taken-over")).to_have_text("1")
        expect(page.locator(".legend li").nth(3)).to_contain_text("taken over")
    finally:
        page.close()
        stage.do(stage.media.library.delete(video.id))
        held.gate.set()
        stop()


def test_the_cells_of_a_killed_worker_turn_amber_until_another_one_has_done_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real process, and SIGKILL: nobody tells of its end, and the page knows it by the leases that lapse."""
    held = Held(monkeypatch, holds={"90p", "180p"})
    video = stage.add("other.mp4", "Otters at midnight")
    page = stage.page(f"/media/{video.id}")
    page.evaluate("window.same = true")
    command = [sys.executable, "-m", doomed.__name__, str(stage.made.folder), str(stage.films), "3"]
    process = subprocess.Popen(command, cwd=ROOT)
    stop: Callable[[], None] = lambda: None  # noqa: E731  until there is a worker
    try:
        its_own = page.locator(f"[id^='row-'] .cell.running[title*='{doomed.NAME}'][title*='running, 49 %']")
        expect(its_own).to_have_count(2)
        expect(page.locator("#count-taken-over")).to_have_text("0")
        process.kill()
        amber = page.locator("[id^='row-'] .cell.taken-over")
        expect(amber).to_have_count(2)  # nobody else is there: they are known by their leases alone
        # whose they were is told until the leases are reaped, which may be at once
        expect(amber.first).to_have_attribute("title", re.compile(rf": taken over.*; attempt 1(; worker {doomed.NAME}|;|$)"))
        expect(page.locator("#count-taken-over")).to_have_text("2")
        stop = stage.worker(concurrency=4, name="attic-3")
        others = page.locator("[id^='row-'] .cell.taken-over[title*='attempt 2; worker attic-3']")
        expect(others).to_have_count(2)
        held.gate.set()
        expect(page.locator("h1 .state")).to_have_text("ready")
        expect(page.locator("#count-redone")).to_have_text("2")
        expect(page.locator("#count-taken-over")).to_have_text("0")
        assert page.evaluate("window.same"), "the page was loaded anew"
    finally:
        process.kill()
        process.wait()
        held.gate.set()
        stop()
        page.close()
        stage.do(stage.media.library.delete(video.id))


STUCK: list[Route] = []


def stick(route: Route) -> None:
    """Answer nothing, as if the line were dead."""
    STUCK.append(route)


# -- uploads ---------------------------------------------------------------------------------------------------------------


def test_an_upload_goes_on_after_a_reload_and_becomes_a_title(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "PART", 64 * 1024)
    film = stage.films / "otters.mp4"
    parts = -(-film.stat().st_size // (64 * 1024))
    assert parts > 5
    sent: list[str] = []

    def watch(request: Request) -> None:
        if request.method == "PUT":
            sent.append(request.url)

    page = stage.page("/media/upload")
    expect(page.locator("#limits")).to_contain_text("A file may have 500.0 MB")
    page.route(re.compile(r"/parts/([5-9]|\d\d)$"), stick)
    page.set_input_files("#file", film)
    until(page, f"document.querySelector('.upload progress').value >= {4 * 64 * 1024}")
    page.reload()
    page.unroute_all()
    expect(page.locator("#unfinished")).to_contain_text("otters.mp4")
    page.on("request", watch)
    page.set_input_files("#file", film)
    page.get_by_role("link", name="Watch it being made").click()
    expect(page.locator("h1 .title")).to_have_text("otters")
    assert len(sent) == parts - 4, "what was there was not sent again"
    video_id = page.url.rpartition("/")[2]
    video = stage.do(stage.media.library.get(video_id))
    with stage.media.storage.open(video.source.key) as file:
        assert hashlib.sha256(file.read()).digest() == hashlib.sha256(film.read_bytes()).digest()
    page.close()
    stage.do(stage.media.library.delete(video_id))


def test_a_file_that_is_too_large_is_not_sent(stage: Stage, tmp_path: Path) -> None:
    large = tmp_path / "large.mp4"
    with large.open("wb") as file:
        file.truncate(MOST + 1)
    page = stage.page("/media/upload")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    page.set_input_files("#file", large)
    expect(page.locator(".upload .how")).to_contain_text("500.0 MB are the most. Nothing was sent.")
    assert sent == []


def test_the_hash_for_browsers_that_have_none_is_the_same(stage: Stage) -> None:
    page = stage.page("/media/upload")
    for size in (0, 1, 55, 56, 63, 64, 65, 100_000):
        found = page.evaluate("(size) => holdfastSha256(new Uint8Array(size).map((_, i) => i * 7 + 3).buffer, true)", size)
        assert found == hashlib.sha256(bytes((i * 7 + 3) % 256 for i in range(size))).hexdigest(), size


# -- steering --------------------------------------------------------------------------------------------------------------


def test_a_title_is_made_anew_and_deleted_after_a_question(stage: Stage) -> None:
    video = stage.add("other.mp4", "Short lived")
    page = stage.page(f"/media/{video.id}")
    page.get_by_role("link", name="Re-transcode…").click()
    page.get_by_label("Give up version 1 for it").check()
    page.get_by_role("button", name="Re-transcode").click()
    expect(page.locator(".said")).to_contain_text("Version 2 is being made")
    page.get_by_role("link", name="Delete…").click()
    expect(page.locator("h1")).to_have_text("Delete Short lived?")
    page.get_by_role("button", name="Delete").click()
    expect(page.locator(".said")).to_contain_text("Short lived is deleted")
    expect(page.locator(f"#video-{video.id}")).to_have_count(0)
    page.goto(f"{stage.url}/audit?action=extension")
    expect(page.locator("tbody tr").first).to_contain_text(f"video {video.id}")
    expect(page.locator("tbody tr").first).to_contain_text("media: delete 'Short lived'")
    page.keyboard.type("gv")
    expect(page.locator("h1")).to_have_text("Media")


# -- how it looks ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def furnished(stage: Stage, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Pages with something to show: a title half-way, one that failed, one that waits."""
    held = Held(monkeypatch, holds={"180p"}, kills={("90p", 1), ("180p", 1)})
    broken = stage.made.folder / "broken.mp4"
    broken.write_bytes(b"no film at all" * 100)
    failed = stage.do(stage.media.library.add(broken, title="The lost reel"))
    long = "otters.mp4"
    if request.config.getoption("--screenshots"):
        held.first = 14
        held.kills.add(("180p", 15))
        long = film(stage.films / "long.mp4", seconds=36).name
    video = stage.add(long, "Otters, the long version", ladder=str(_three(stage)))
    stop = stage.worker(concurrency=5, name="attic-1")
    try:
        half, bad = f"/media/{video.id}", f"/media/{failed.id}"
        page = stage.page(half)
        expect(page.locator("#count-taken-over")).to_have_text("1", timeout=120_000)
        expect(page.locator("#player")).to_be_visible(timeout=120_000)
        page.goto(f"{stage.url}{bad}")
        expect(page.locator("h1 .state")).to_have_text("failed")
        page.close()
        yield {
            "titles": "/media",
            "grid": half,
            "title": f"/media/{stage.made.video_id}",
            "failed": bad,
            "retranscode": f"/media/{stage.made.video_id}/retranscode",
            "delete": f"/media/{stage.made.video_id}/delete",
            "upload": "/media/upload",
        }
        for one in (video, failed):
            stage.do(stage.media.library.delete(one.id))
    finally:
        held.gate.set()
        stop()


def _three(stage: Stage) -> Path:
    rungs = (("180p", 180, True), ("144p", 144, True), ("90p", 90, False))
    return ladder(stage.made.folder / "three.toml", *rungs)


def picture(page: Page, name: str) -> None:
    page.wait_for_timeout(600)
    (IMAGES / f"media-{name}.png").write_bytes(page.screenshot())


def test_no_page_has_a_barrier_or_an_error(
    stage: Stage, furnished: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """By axe: all of its rules in light; in dark, which changes colours alone, those about colours. And all fit a phone."""
    script, pictures = axe(), request.config.getoption("--screenshots")
    page = stage.page("/media")
    found: list[str] = []
    wide: dict[str, Any] = {}
    for name, path in furnished.items():
        page.goto(f"{stage.url}{path}")
        page.locator("h1").wait_for()
        page.evaluate(script)
        if page.locator("#player").count():
            until(page, "document.querySelector('#video').readyState >= 2")
        if not pictures:
            page.keyboard.press("p")
        elif name == "upload":
            monkeypatch.setattr(incoming, "PART", 64 * 1024)
            page.route(re.compile(r"/parts/[5-9]"), stick)
            page.set_input_files("#file", stage.films / "otters.mp4")
        elif name == "title":
            page.locator("#seek").hover()
        for theme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            answer = page.evaluate("(rules) => axe.run(document, {resultTypes: ['violations'], ...rules})", rules)
            found += [f"{name}, {theme}: {one['id']} {one['nodes'][0]['target']} {one['help']}" for one in answer["violations"]]
            if pictures and name in PICTURED:
                page.set_viewport_size(TALL if name == "grid" else WIDE)
                picture(page, f"{name}{'-dark' if theme == 'dark' else ''}")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(NARROW)
        if (width := page.evaluate("document.documentElement.scrollWidth")) > NARROW["width"]:
            wide[name] = width
        if pictures and name == "grid":
            picture(page, "narrow")
        page.set_viewport_size(WIDE)
    assert found == []
    assert wide == {}


def test_a_portrait_has_a_card_as_tall_as_the_others(stage: Stage) -> None:
    film(stage.films / "portrait.mp4", seconds=2, size="90x160", sound=False)
    video = stage.add("portrait.mp4", "Otters, upright")
    stop = stage.worker(concurrency=2)
    page = stage.page("/media")
    try:
        card = page.locator(f"#video-{video.id}")
        expect(card.locator(".state")).to_have_text("ready")
        until(page, f"(document.querySelector('#video-{video.id} img') || {{}}).naturalHeight > 0")
        shot = card.locator(".shot").bounding_box()
        assert shot is not None
        assert shot["height"] == pytest.approx(shot["width"] * 9 / 16, abs=2)
    finally:
        page.close()
        stop()
        stage.do(stage.media.library.delete(video.id))


def test_hostile_titles_stay_texts(stage: Stage) -> None:
    videos: list[Video] = [stage.add("other.mp4", evil) for evil in HOSTILE]
    page = stage.page("/media")
    paths = ["/media", *(f"/media/{one.id}{rest}" for one in videos for rest in ("", "/retranscode", "/delete"))]
    for path in paths:
        page.goto(f"{stage.url}{path}")
        page.locator("h1").wait_for()
        assert page.locator("#main img[onerror], #main script, #main svg[onload]").count() == 0, path
        assert page.title().endswith("Holdfast")
    for video, evil in zip(videos, HOSTILE, strict=True):
        page.goto(f"{stage.url}/media/{video.id}")
        assert page.locator("h1 .title").text_content() == evil
        page.goto(f"{stage.url}/media/{video.id}/delete")
        page.get_by_role("button", name="Delete").click()
        expect(page.locator(".said")).to_contain_text(evil[:40])
    page.goto(f"{stage.url}/audit")
    expect(page.locator("tbody tr").first).to_contain_text("delete")
    assert page.locator("#main img[onerror], #main script, #main svg[onload]").count() == 0
