"""The dashboard in a browser: a shop that works, watched and steered."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect, sync_playwright

from holdfast import Holdfast
from holdfast.core.figures import BUCKETS, Figure
from holdfast.core.job import NewJob, Unique
from holdfast.core.limits import LimitKind, LimitName, LimitRule
from holdfast.core.outcome import Error
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.errors import StoreUnavailable
from holdfast.server.settings import ServerSettings
from holdfast.store.port import (
    Checkpoint,
    ClaimRequest,
    LogLine,
    Part,
    PartState,
    Progress,
    Role,
    Schedule,
    Settlement,
    Worker,
)
from tests.server.ui.alerting import TARGETS, alerted, delivery
from tests.server.ui.browser import ARGS, axe, chromium
from tests.server.ui.incident import broken
from tests.server.ui.serving import SECRET, Served, new_key, served
from tests.server.ui.world import Shop, shop
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from uuid import UUID

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize

    from holdfast.store.port import Key

ROOT = Path(__file__).parents[3]
IMAGES = ROOT / "docs" / "images"
PLACES = {str(Path(__file__).parent): "/srv/shop", str(ROOT): "/srv", sys.prefix: "/usr", sys.base_prefix: "/usr"}
PLACES[f'"host": "{socket.gethostname()}"'] = '"host": "web-1"'
"""What tells of the machine that the tests run on, and what pictures show instead of it."""
HOSTILE = (
    "<img src=x onerror=document.title='owned'>",
    "\u202etxet desrever\u202c",
    "🦑" * 20,
    "w" * 190,
    "'\"`{{7*7}}</script><svg onload=alert(1)>",
)
WIDE: ViewportSize = {"width": 1360, "height": 850}
NARROW: ViewportSize = {"width": 380, "height": 800}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
UNPICTURED = {"nothing", "blocked-chain", "limit", "rotate"}
expect.set_options(timeout=15_000)


@dataclass
class Stage:
    """A shop that works behind a dashboard, and a browser that has logged in."""

    serving: Served
    shop: Shop
    context: BrowserContext
    heard: list[str] = field(default_factory=list)
    """What pages complained of."""

    @property
    def url(self) -> str:
        return self.serving.url

    def do(self, coroutine: Awaitable[Any]) -> Any:
        async def work() -> Any:
            return await coroutine

        return self.serving.run(work())

    def enqueue(self, task: str, *args: Any, **options: Any) -> UUID:
        async def work() -> UUID:
            handle = await self.shop.task(task).options(**options).enqueue(*args)
            found: UUID = handle.id
            return found

        found: UUID = self.do(work())
        return found

    def state(self, job: UUID) -> State:
        found: State = self.do(self.serving.store.get([job]))[0].state
        return found

    def ended(self, *jobs: UUID) -> None:
        self.do(until(lambda: self.have_ended(jobs)))

    async def have_ended(self, jobs: Sequence[UUID]) -> bool:
        views = await self.serving.store.get(jobs)
        return all(view is not None and view.finished_at is not None for view in views)

    def open(self, gate: str) -> None:
        async def work() -> None:
            self.shop.gate(gate).set()

        self.do(work())

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.heard.append(message.text)

    def page(self, path: str = "/") -> Page:
        page = self.context.new_page()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.goto(f"{self.url}{path}")
        return page


@asynccontextmanager
async def working(app: Holdfast, **options: Any) -> AsyncIterator[None]:
    async with app.worker(**options):
        yield


def start(serving: Served, app: Holdfast, **options: Any) -> Callable[[], None]:
    """Start a worker on the loop of the server; returns what stops it."""
    stop, up = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with working(app, **options):
            up.set()
            await stop.wait()

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(work())
        await up.wait()
        return task

    task = serving.run(begin())

    async def end() -> None:
        stop.set()
        await task

    return lambda: serving.run(end())


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = chromium()
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=found.path, args=list(ARGS), env={**os.environ, **found.variables})
        yield one
        one.close()


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    url = f"sqlite:///{tmp_path_factory.mktemp('shop')}/jobs.db"
    app = Holdfast(url)
    world = shop(app)
    with served(url, ServerSettings(admin_secret=SECRET, redacted=("iban",))) as serving:
        serving.run(history(serving))
        stop = start(serving, app, name="web-1:4242", concurrency=8, queues=["default", "mail", "reports", "bulk"])
        context = browser.new_context(locale="en-US", viewport=WIDE, color_scheme="light", reduced_motion="reduce")
        stage = Stage(serving, world, context)
        page = stage.page("/login")
        page.fill("#secret", SECRET)
        page.press("#secret", "Enter")
        expect(page.locator("h1")).to_have_text("Overview")
        page.close()
        yield stage
        context.close()
        stop()
        serving.run(app.close())


async def history(serving: Served) -> None:
    """Add up a quarter of an hour of figures."""
    chance = random.Random(7)
    store = serving.store
    for minute in range(15):
        figures = []
        for event, count, code in ((Event.SUCCEED, 40 + 3 * minute, ""), (Event.FAIL, chance.randint(0, 4), "SMTP_CLOSED")):
            times = [chance.choice((2, 3, 3, 4, 5, 7)) for _ in range(count)]
            histogram = tuple(times.count(bucket) for bucket in range(BUCKETS))
            if count:
                figures.append(
                    Figure(queue="mail", task="mail.send", event=event, code=code, count=count, waits=histogram, runs=histogram)
                )
        await store.measure(figures)
        await store.rewind(60.0)


@pytest.fixture
def stage(shown: Stage) -> Iterator[Stage]:
    shown.heard.clear()
    yield shown
    for page in shown.context.pages:
        page.close()
    assert shown.heard == [], "pages complained"


# -- watching --------------------------------------------------------------------------------------------------------------


def test_a_wrong_key_is_refused_and_a_session_ends_with_its_logout(stage: Stage, browser: Browser) -> None:
    context = browser.new_context(locale="en-US")
    page = context.new_page()
    page.goto(f"{stage.url}/jobs?q=state:failed")
    page.fill("#secret", "not this one")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").filter(has_text="neither a key")).to_be_visible()
    page.fill("#secret", SECRET)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{stage.url}/jobs?q=state:failed")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    context.close()


def test_a_job_goes_from_ready_to_succeeded_while_one_watches(stage: Stage) -> None:
    job = stage.enqueue("video.transcode", "film.mov", "watched")
    page = stage.page(f"/jobs/{job}")
    page.evaluate("window.same = true")
    head = page.locator("h1 .state")
    expect(head).to_have_text("ready")
    expect(page.locator(".reasons")).to_contain_text("serves the queue 'video'")
    stop = start(stage.serving, stage.shop.app, name="gpu-1", queues=["video"], concurrency=2)
    try:
        expect(head).to_have_text("running")
        bar = page.locator(".run progress")
        expect(bar).to_have_attribute("value", "35.0")
        expect(page.locator("#log")).to_contain_text("probing film.mov")
        stage.open("watched")
        expect(bar).to_have_attribute("value", "80.0")
        stage.open("watched:end")
        expect(head).to_have_text("succeeded")
        expect(page.locator("pre.json").last).to_contain_text("film.mov.mp4")
    finally:
        stop()
    assert page.evaluate("window.same"), "the page was loaded anew"


def test_a_new_job_appears_in_the_list_without_a_reload(stage: Stage) -> None:
    page = stage.page("/jobs?q=tag:fresh")
    expect(page.locator(".empty")).to_contain_text("No job matches")
    job = stage.enqueue("orders.ship", 1, tags=["fresh"])
    expect(page.locator(f"#job-{job} .state")).to_have_text("succeeded")


def test_a_paused_page_stands_still_until_it_goes_on(stage: Stage) -> None:
    page = stage.page("/jobs?q=tag:still")
    expect(page.locator(".empty")).to_be_visible()
    page.keyboard.press("p")
    expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
    job = stage.enqueue("orders.ship", 2, tags=["still"])
    stage.ended(job)
    page.wait_for_timeout(700)
    expect(page.locator(".empty")).to_be_visible()
    page.keyboard.press("p")
    expect(page.locator(f"#job-{job}")).to_be_visible()


def test_a_store_that_is_away_is_a_banner_over_the_page_as_it_was(stage: Stage) -> None:
    page = stage.page("/queues")
    expect(page.locator("tbody tr").first).to_be_visible()
    store = stage.serving.store
    whole = store.stats, store.queues

    async def away() -> Any:
        raise StoreUnavailable("the database", 0.0, "connection refused")

    try:
        store.stats = store.queues = away  # type: ignore[method-assign]
        expect(page.locator("#banner")).to_contain_text("The store does not answer")
        expect(page.locator("tbody tr").first).to_be_visible()
    finally:
        store.stats, store.queues = whole  # type: ignore[method-assign]
    expect(page.locator("#banner")).to_be_empty()
    stage.heard[:] = [text for text in stage.heard if "503" not in text]


VISIBILITY = """
    window.visibility = "%s";
    Object.defineProperty(document, "hidden", { get: () => window.visibility === "hidden" });
    Object.defineProperty(document, "visibilityState", { get: () => window.visibility });
"""
"""A page of a test is always seen; this one is when it says so."""
TURN = "visibility => { window.visibility = visibility; document.dispatchEvent(new Event('visibilitychange')); }"
CONNECTIONS = 6
"""That a browser opens to a host: a page whose stream is open has one of them for itself."""


def turning(stage: Stage, path: str, opened: str) -> Page:
    """Open a page in the foreground or in the background."""
    page = stage.context.new_page()
    page.add_init_script(VISIBILITY % opened)
    page.goto(f"{stage.url}{path}")
    expect(page.locator(".empty")).to_be_visible()
    return page


@pytest.mark.parametrize("opened", ["visible", "hidden"])
def test_pages_that_nobody_sees_leave_the_connections_to_those_that_are_seen(stage: Stage, opened: str) -> None:
    path = f"/jobs?q=tag:opened-{opened}"
    pages = []
    for _ in range(CONNECTIONS + 2):
        pages.append(turning(stage, path, opened))
        if opened == "visible":
            pages[-1].evaluate(TURN, "hidden")
    for page in (stage.page(path), pages[0]):
        page.evaluate(TURN, "visible")
        job = stage.enqueue("orders.ship", 3, tags=[f"opened-{opened}"])
        expect(page.locator(f"#job-{job} .state")).to_have_text("succeeded")


def test_a_page_shows_what_has_happened_while_nobody_saw_it(stage: Stage) -> None:
    page = turning(stage, "/jobs?q=tag:unseen", "visible")
    page.evaluate(TURN, "hidden")
    job = stage.enqueue("orders.ship", 4, tags=["unseen"])
    stage.ended(job)
    page.evaluate(TURN, "visible")
    expect(page.locator(f"#job-{job} .state")).to_have_text("succeeded")


# -- steering --------------------------------------------------------------------------------------------------------------


def test_a_failed_job_shows_its_traceback_and_runs_again(stage: Stage) -> None:
    stage.shop.broken.add("wayne")
    job = stage.enqueue("mail.send", "wayne", 3)
    stage.ended(job)
    page = stage.page(f"/jobs/{job}")
    expect(page.locator("#traceback pre")).to_contain_text("raise Retryable")
    expect(page.locator("h1 .state")).to_have_text("failed")
    stage.shop.broken.discard("wayne")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".said")).to_have_text("1 job to run again")
    expect(page.locator("h1 .state")).to_have_text("succeeded")
    expect(page.locator(".lanes tbody tr")).to_have_count(2)
    expect(page.locator("pre.json").last).to_contain_text("9007199254740993")


def test_a_running_job_is_canceled(stage: Stage) -> None:
    job = stage.enqueue("video.transcode", "long.mov", "never")
    stop = start(stage.serving, stage.shop.app, name="gpu-2", queues=["video"], concurrency=2)
    try:
        page = stage.page(f"/jobs/{job}")
        expect(page.locator("h1 .state").first).to_have_text("running")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("h1 .state").first).to_have_text("canceled")
        assert stage.state(job) is State.CANCELED
    finally:
        stop()


def test_typed_text_and_focus_outlive_every_refresh_and_a_queue_is_paused(stage: Stage) -> None:
    stage.ended(stage.enqueue("orders.ship", 4, queue="bulk"))
    page = stage.page("/queues")
    row = page.locator("tr", has=page.get_by_role("link", name="bulk", exact=True))
    row.get_by_placeholder("why").click()
    page.keyboard.type("the disk ")
    for number in range(3):
        stage.ended(stage.enqueue("orders.ship", number, queue="bulk"))
        page.wait_for_timeout(300)
    page.keyboard.type("is full")
    expect(row.get_by_placeholder("why")).to_have_value("the disk is full")
    expect(row.get_by_placeholder("why")).to_be_focused()
    page.keyboard.press("Enter")
    expect(row.locator(".state")).to_have_text("paused")
    expect(row).to_contain_text("by admin: the disk is full")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("open")


def test_a_limit_is_set_by_keyboard_holds_and_is_cleared(stage: Stage) -> None:
    jobs = [stage.enqueue("video.transcode", "film.mov", f"limited {number}", queue="bulk") for number in range(3)]
    page = stage.page("/limits")
    page.evaluate("window.same = true")
    page.get_by_label("Of a", exact=True).select_option("task")
    page.get_by_label("Name").fill("video.transcode")
    page.get_by_label("At most at once").click()
    page.keyboard.type("1")
    stage.ended(stage.enqueue("orders.ship", 1))
    page.wait_for_timeout(700)  # the page is told anew meanwhile
    page.keyboard.type("0")
    expect(page.get_by_label("At most at once")).to_have_value("10")
    expect(page.get_by_label("Of a", exact=True)).to_have_value("task")
    assert page.evaluate("window.same"), "the page was loaded anew"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Set the limit of task video.transcode?")).to_be_visible()
    expect(page.locator(".facts")).to_contain_text("at most 10 at once")
    page.get_by_role("link", name="Back").click()
    expect(page.get_by_label("At most at once")).to_be_focused()
    page.get_by_label("At most at once").fill("2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Set it")).to_be_focused()
    stage.do(until(lambda: running(stage, jobs, 3)))
    expect(page.locator(".facts")).to_contain_text("at most 2 at once")
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_have_text("The limit of task video.transcode is set: at most 2 at once.")
    row = page.locator("tr", has_text="video.transcode")
    expect(row).to_contain_text("3 of 2")
    expect(row).to_contain_text("by admin")

    more = [stage.enqueue("video.transcode", "film.mov", f"limited {number}", queue="bulk") for number in (3, 4)]
    for gate in ("limited 0", "limited 1"):
        stage.open(gate)
        stage.open(f"{gate}:end")
    stage.ended(*jobs[:2])
    expect(row).to_contain_text("2 of 2")
    expect(row.locator(".state")).to_have_text("throttled")
    held = stage.page(f"/jobs/{more[1]}")
    expect(held.locator("h1 .state")).to_have_text("throttled")
    expect(held.locator(".reasons")).to_contain_text("limit of its task 'video.transcode' is used up: 2 of 2 run")
    assert stage.state(more[1]) is State.READY

    row.get_by_role("link", name="Clear the limit").click()
    page.get_by_role("button", name="Clear it").click()
    expect(page.locator(".said")).to_contain_text("no limit holds")
    expect(held.locator("h1 .state")).to_have_text("running")
    for number in (2, 3, 4):
        stage.open(f"limited {number}")
        stage.open(f"limited {number}:end")
    stage.ended(*jobs, *more)


async def running(stage: Stage, jobs: Sequence[UUID], number: int) -> bool:
    views = await stage.serving.store.get(jobs)
    return [view.state for view in views if view is not None].count(State.RUNNING) == number


def test_a_key_is_narrowed_rotated_and_revoked(stage: Stage) -> None:
    """Two live keys of one name for a while, of which the old one ends by itself or at once."""
    page = stage.page("/keys")
    page.get_by_label("Name").fill("render farm")
    page.get_by_label("Role").select_option("worker")
    page.get_by_label("Queues").fill("video, mail")
    page.get_by_label("Actions").fill("work, get")
    page.get_by_role("button", name="Make a key").click()
    first = page.locator("#fresh").inner_text()
    row = page.locator(f"#key-{first.split('_')[1]}")
    expect(row).to_contain_text("video, mail")
    expect(row).to_contain_text("work, get")

    row.get_by_role("link", name="Rotate…").click()
    expect(page.get_by_role("heading", name="Rotate the key of render farm?")).to_be_visible()
    expect(page.get_by_role("button", name="Make the new key")).to_be_focused()
    page.get_by_label("The old one works on for").fill("1h")
    page.keyboard.press("Enter")
    second = page.locator("#fresh").inner_text()
    assert second != first
    expect(page.locator(".fresh")).to_contain_text(f"hf_{first.split('_')[1]}_… before it works on for 1h at most")
    rows = page.locator("tr[data-row]", has_text="render farm")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("work, get")
    expect(row).to_contain_text(re.compile("in (1h|59m)"))
    kept = {key.id: key for key in stage.do(stage.serving.store.keys())}
    old, new = (kept[text.split("_")[1]] for text in (first, second))
    assert (new.name, new.role, new.queues, new.actions, new.created_by) == (*_scope(old), "admin")
    assert (old.expires_at is not None, new.expires_at) == (True, None)

    row.get_by_role("link", name="Revoke…").click()
    page.get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    expect(row.get_by_role("link")).to_have_count(0)


def _scope(key: Key) -> tuple[object, ...]:
    return key.name, key.role, key.queues, key.actions


def test_selected_rows_are_asked_about_and_a_question_leads_back(stage: Stage) -> None:
    stage.shop.broken.add("stark")
    jobs = [stage.enqueue("mail.send", "stark", number, tags=["rows"]) for number in range(7)]
    stage.ended(*jobs)
    stage.shop.broken.discard("stark")
    page = stage.page("/jobs?q=tag:rows+state:failed")
    page.locator("#all-shown").check()
    expect(page.locator("#selected")).to_have_text("7 selected")
    page.locator(f"#job-{jobs[0]} input").uncheck()
    expect(page.locator("#selected")).to_have_text("6 selected")
    page.get_by_role("button", name="Retry…").click()
    expect(page.get_by_role("heading", name="Retry 6 jobs?")).to_be_visible()
    page.get_by_role("link", name="Back").click()
    expect(page.locator("tr[data-row]")).to_have_count(7)
    assert {stage.state(job) for job in jobs} == {State.FAILED}


def test_all_that_match_a_filter_are_retried_and_go_while_one_watches(stage: Stage) -> None:
    """More of them than a page shows."""
    stage.shop.broken.add("stark")
    jobs = [stage.enqueue("mail.send", "stark", number, queue="bulk") for number in range(60)]
    stage.ended(*jobs)
    stage.shop.broken.discard("stark")
    page, watching = stage.page("/jobs"), stage.page("/jobs?q=state:failed+queue:bulk")
    watching.evaluate("window.same = true")
    expect(watching.locator("tr[data-row]")).to_have_count(50)
    page.locator("#q").click()
    page.keyboard.type("state:failed queue:bulk")
    page.keyboard.press("Enter")
    expect(page.locator("tr[data-row]")).to_have_count(50)
    page.get_by_label("all 60 that match").check()
    expect(page.locator("#selected")).to_have_text("All that match")
    page.get_by_role("button", name="Retry…").click()
    expect(page.get_by_role("heading", name="Retry 60 jobs?")).to_be_visible()
    assert stage.state(jobs[0]) is State.FAILED, "it was not asked"
    page.get_by_role("button", name="Retry 60 jobs").click()
    expect(page.locator(".said")).to_have_text("60 jobs to run again")
    expect(page.locator("#q")).to_have_value("state:failed queue:bulk")
    for one in (page, watching):
        expect(one.locator(".empty")).to_contain_text("No job matches")
    assert watching.evaluate("window.same"), "the page was loaded anew"
    stage.ended(*jobs)
    assert {stage.state(job) for job in jobs} == {State.SUCCEEDED}


def test_everything_can_be_done_by_keyboard(stage: Stage) -> None:
    stage.shop.broken.add("hooli")
    job = stage.enqueue("mail.send", "hooli", 9, tags=["keys"])
    stage.ended(job)
    page = stage.page("/")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.type("gj")
    expect(page.locator("h1")).to_have_text("Jobs")
    page.wait_for_load_state()
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("tag:keys")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("tag%3Akeys"))
    page.wait_for_load_state()
    page.keyboard.type("jx")
    expect(page.locator("#selected")).to_have_text("1 selected")
    page.keyboard.press("Enter")
    expect(page.locator("h1 .title")).to_have_text("mail.send")
    page.wait_for_load_state()
    stage.shop.broken.discard("hooli")
    page.keyboard.press("r")
    expect(page.locator("h1 .state")).to_have_text("succeeded")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    page.wait_for_load_state()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press("t")
    keys = {
        "o": "Overview",
        "q": "Queues",
        "m": "Limits",
        "w": "Workers",
        "s": "Schedules",
        "c": "Chains",
        "l": "Alerts",
        "a": "Audit",
        "k": "Keys",
    }
    for key, title in keys.items():
        page.keyboard.type(f"g{key}")
        expect(page.locator("h1")).to_have_text(title)
        page.wait_for_load_state()


def tab_to(page: Page, name: str) -> None:
    """Go on by Tab to what is called this, past the navigation by the link that is there for it."""
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(60):
        page.keyboard.press("Tab")
        told = "const at = document.activeElement; return at.labels?.[0]?.textContent ?? at.textContent.trim()"
        if page.evaluate(f"() => {{ {told} }}") == name:
            return
    raise AssertionError(f"Tab does not come to {name!r}")


def test_a_running_job_is_canceled_by_keyboard(stage: Stage) -> None:
    job = stage.enqueue("video.transcode", "long.mov", "never by key", tags=["stoppable"])
    stop = start(stage.serving, stage.shop.app, name="gpu-4", queues=["video"], concurrency=2)
    try:
        page = stage.page("/jobs")
        page.keyboard.press("/")
        page.keyboard.type("tag:stoppable")
        page.keyboard.press("Enter")
        expect(page.locator(f"#job-{job} .state")).to_have_text("running")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("h1 .title")).to_have_text("video.transcode")
        tab_to(page, "Cancel")
        page.keyboard.press("Enter")
        expect(page.locator("h1 .state").first).to_have_text("canceled")
        assert stage.state(job) is State.CANCELED
    finally:
        stop()


def test_a_queue_is_paused_and_goes_on_by_keyboard(stage: Stage) -> None:
    stage.ended(stage.enqueue("orders.ship", 5, queue="bulk"))
    page = stage.page("/queues")
    row = page.locator("tr", has=page.get_by_role("link", name="bulk", exact=True))
    tab_to(page, "Why bulk is paused")
    page.keyboard.type("gj")  # no shortcuts while one types
    page.keyboard.press("Enter")
    expect(row).to_contain_text("by admin: gj")
    held = stage.enqueue("orders.ship", 6, queue="bulk")
    assert stage.state(held) is State.READY
    tab_to(page, "Resume")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("open")
    stage.ended(held)


def test_marked_rows_are_retried_after_a_question_by_keyboard(stage: Stage) -> None:
    stage.shop.broken.add("umbra")
    jobs = [stage.enqueue("mail.send", "umbra", number, tags=["marked"]) for number in range(3)]
    stage.ended(*jobs)
    stage.shop.broken.discard("umbra")
    page = stage.page("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("tag:marked state:failed")
    page.keyboard.press("Enter")
    expect(page.locator("tr[data-row]")).to_have_count(3)
    page.keyboard.type("jxjjx")
    expect(page.locator("#selected")).to_have_text("2 selected")
    page.keyboard.press("r")
    expect(page.get_by_role("heading", name="Retry 2 jobs?")).to_be_visible()
    expect(page.get_by_role("button", name="Retry 2 jobs")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".said")).to_have_text("2 jobs to run again")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    expect(page.locator(f"#job-{jobs[1]}")).to_be_visible()


# -- how it looks ----------------------------------------------------------------------------------------------------------


def furnish(stage: Stage) -> dict[str, str]:
    """Have something to show on every page; returns the pages by name."""

    async def work() -> dict[str, str]:
        task, store = stage.shop.task, stage.serving.store
        stage.shop.broken.update({"acme", "globex"})
        mails = [
            await task("mail.send").enqueue(to, number)
            for number in range(3)
            for to in ("acme", "globex", "initech", "umbrella", "initech", "umbrella")
        ]
        rows = await task("rows.import").options(tags=["import"], key="rows").enqueue("/srv/rows.csv", api_token="s3cr3t")
        done = await task("orders.check").start_chain(7)
        film = await task("video.transcode").enqueue("trailer.mov", "furnished")
        blocked = await task("orders.check").options(after=[film, done]).start_chain(9)
        chain = await task("orders.check").options(after=[done, mails[2]]).start_chain(10)
        await task("invoice.approve").enqueue(7)
        await task("mail.send").options(delay=3600).enqueue("initech", 99)
        await store.pause("reports", by="ada", reason="the disk is being replaced")
        await store.declare(
            {
                LimitName(LimitKind.TASK, "mail.send"): LimitRule(rate=5.0, burst=20.0),
                LimitName(LimitKind.KEY, "tenants"): LimitRule(most=4),
            }
        )
        await store.set_limit(LimitName(LimitKind.QUEUE, "video"), LimitRule(most=2), by="ada")
        await store.set_limit(LimitName(LimitKind.KEY, "tenants", "acme"), LimitRule(weight=3.0), by="ada")
        await task("report.build").enqueue()
        await until(lambda: stage.have_ended([handle.id for handle in [*mails, rows]]))

        async def progressed() -> bool:
            view = (await store.get([film.id]))[0]
            return view is not None and view.progress is not None

        await until(progressed)
        client = await new_key(store, "ci", Role.CLIENT, actions=("enqueue",))
        await new_key(store, "ada", Role.OPERATOR, queues=("mail", "video"))
        await chain.result(timeout=10)
        stage.serving.server.context.alerts = TARGETS
        await alerted(store)
        return {
            "overview": "/",
            "jobs": "/jobs",
            "job": f"/jobs/{film.id}",
            "failed-job": f"/jobs/{rows.id}",
            "confirm": "/jobs/confirm?verb=retry&all=1&q=state:failed",
            "queues": "/queues",
            "limits": "/limits",
            "limit": "/limits/confirm?kind=queue&name=mail&most=2",
            "workers": "/workers?all=1",
            "schedules": "/schedules",
            "chains": "/chains",
            "chain": f"/chains/{chain.id}",
            "blocked-chain": f"/chains/{blocked.id}",
            "alerts": "/alerts",
            "audit": "/audit",
            "keys": "/keys",
            "rotate": f"/keys/{client.split('_')[1]}/rotate",
            "nothing": f"/jobs/{'0' * 8}-0000-7000-8000-{'0' * 12}",
        }

    found: dict[str, str] = stage.do(work())
    return found


@pytest.fixture(scope="module")
def furnished(shown: Stage) -> Iterator[dict[str, str]]:
    stop = start(shown.serving, shown.shop.app, name="gpu-3", queues=["video"], concurrency=2, capabilities=["gpu", "ffmpeg"])
    yield furnish(shown)
    shown.open("furnished")
    shown.open("furnished:end")
    stop()
    shown.do(shown.serving.store.resume("reports"))
    shown.do(shown.serving.store.set_limit(LimitName(LimitKind.QUEUE, "video"), None))


def picture(page: Page, name: str) -> None:
    """Write the picture of a page, without any path of this machine: taken anew where the page has just been told anew."""
    for _ in range(10):
        page.evaluate(
            """(places) => {
                const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
                while (texts.nextNode()) {
                    let text = texts.currentNode.data;
                    for (const [path, instead] of places) text = text.replaceAll(path, instead);
                    if (text !== texts.currentNode.data) texts.currentNode.data = text;
                }
            }""",
            list(PLACES.items()),
        )
        shot, text = page.screenshot(), page.locator("body").inner_text()
        if not any(path in text for path in (*PLACES, str(Path.home()))):
            (IMAGES / f"dashboard-{name}.png").write_bytes(shot)
            return
    raise AssertionError(f"{name} shows where the tests run")


def test_no_page_has_a_barrier_or_an_error(stage: Stage, furnished: dict[str, str], request: pytest.FixtureRequest) -> None:
    """By axe, with all of its rules, in light and in dark."""
    script, pictures = axe(), request.config.getoption("--screenshots")
    stage.context.clear_cookies(name="holdfast_theme")  # the system's theme, not one that was chosen
    page = stage.page("/")
    found, grounds = [], set()
    for name, path in furnished.items():
        page.goto(f"{stage.url}{path}")
        page.locator("h1").wait_for()
        if not pictures:
            page.keyboard.press("p")
        page.evaluate(script)
        for theme in THEMES:
            page.emulate_media(color_scheme=theme)
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            answer = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            found += [f"{name}, {theme}: {one['id']} {one['nodes'][0]['target']} {one['help']}" for one in answer["violations"]]
            if pictures and name not in UNPICTURED:
                if name == "workers" and theme == "light":
                    page.locator(".about summary").last.click()
                page.wait_for_timeout(400)
                picture(page, f"{name}{'-dark' if theme == 'dark' else ''}")
        page.emulate_media(color_scheme="light")
    if pictures:  # what tells whether the pictures are still of this navigation (test_pages.py)
        entries = page.locator("nav[aria-label=Pages] li span").all_text_contents()
        (IMAGES / "dashboard-navigation.txt").write_text("".join(f"{entry}\n" for entry in entries))
    stage.heard[:] = [text for text in stage.heard if "404" not in text]
    assert found == []
    assert len(grounds) == 2


def test_the_login_has_no_barrier(stage: Stage, browser: Browser, request: pytest.FixtureRequest) -> None:
    context = browser.new_context(locale="en-US", viewport=WIDE)
    page = context.new_page()
    page.goto(f"{stage.url}/")
    page.evaluate(axe())
    for theme in THEMES[::-1]:
        page.emulate_media(color_scheme=theme)
        assert page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"] == [], theme
    if request.config.getoption("--screenshots"):
        picture(page, "login")
    context.close()


def test_an_overview_of_an_incident_has_no_barrier_and_leads_to_the_jobs(
    browser: Browser, request: pytest.FixtureRequest
) -> None:
    with served("memory://") as serving:
        serving.run(broken(serving.store))
        context = browser.new_context(locale="en-US", viewport=WIDE)
        page = context.new_page()
        page.goto(f"{serving.url}/")
        page.fill("#secret", SECRET)
        page.press("#secret", "Enter")
        expect(page.locator(".troubles li")).to_have_count(4)
        page.evaluate(axe())
        for theme in THEMES[::-1]:
            page.emulate_media(color_scheme=theme)
            assert page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"] == [], theme
        if request.config.getoption("--screenshots"):
            picture(page, "incident")
        page.set_viewport_size(NARROW)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        page.locator(".troubles").get_by_role("link", name="the jobs that wait").first.click()
        expect(page.locator("tr[data-row] .state").first).to_have_text("ready")
        context.close()


def test_pages_fit_a_narrow_screen(stage: Stage, furnished: dict[str, str], request: pytest.FixtureRequest) -> None:
    page = stage.page("/")
    page.set_viewport_size(NARROW)
    widths = {}
    for name, path in furnished.items():
        page.goto(f"{stage.url}{path}")
        widths[name] = page.evaluate("document.documentElement.scrollWidth")
        if request.config.getoption("--screenshots") and name == "overview":
            picture(page, "narrow")
    stage.heard[:] = [text for text in stage.heard if "404" not in text]
    assert {name: width for name, width in widths.items() if width > NARROW["width"]} == {}


@pytest.mark.parametrize("skew", [-7200, 7200])
def test_ages_are_told_by_the_clock_of_the_store(stage: Stage, browser: Browser, skew: int) -> None:
    """The clock of the browser's machine is two hours off, and nothing on the page is."""
    job = stage.enqueue("orders.ship", 1)
    stage.ended(job)
    context = browser.new_context(locale="en-US")
    # a cookie that was got is one that can be given
    context.add_cookies(stage.context.cookies())  # type: ignore[arg-type]
    page = context.new_page()
    page.clock.install(time=time.time() + skew)
    page.goto(f"{stage.url}/jobs/{job}")
    age = page.locator(".facts time").first
    expect(age).to_have_text(re.compile("ago$"))
    told = None
    for _ in range(5):  # what comes live meanwhile is told anew, from the time that it really is
        page.clock.run_for(3_000)
        if told := re.fullmatch(r"([\d.]+)s ago", age.text_content() or ""):
            break
    assert told is not None, age.text_content()
    assert 3.0 <= float(told[1]) < 60.0
    context.close()


def test_charts_are_drawn_and_say_what_was_last(stage: Stage) -> None:
    page = stage.page("/")
    expect(page.locator(".plot canvas")).to_have_count(3)
    told = page.locator(".u-series:not(:first-child) .u-value")
    expect(told).to_have_text([re.compile(r"^\d")] * 7)
    page.get_by_role("link", name="6h").click()
    expect(page.locator(".plot canvas")).to_have_count(3)
    expect(page.get_by_role("link", name="6h")).to_have_attribute("aria-current", "true")


LABELS = """
(step) => {
    const drawn = window.drawn = [];
    const fillText = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const half = this.measureText(text).width / 2;
        if (this.textAlign === "center") drawn.push([text, this.getTransform().e + x + half - this.canvas.width]);
        return fillText.apply(this, arguments);
    };
    const shown = document.querySelector(".plot");
    const plot = shown.cloneNode();
    plot.style.width = `${shown.clientWidth}px`;
    const data = JSON.parse(plot.dataset.chart);
    const end = (step < 3600 ? new Date(2026, 10, 28, 20, 20) : new Date(2026, 10, 28)) / 1000;
    const last = data.times.length - 1;
    data.times = data.times.map((_, index) => end - (last - index) * step);
    plot.dataset.chart = JSON.stringify(data);
    document.body.append(plot);  // where no refresh takes it away
    dispatchEvent(new Event("resize"));
}
"""
"""Draws a chart that ends where a label stands, and notes every label with how many pixels it is over the right edge."""


@pytest.mark.parametrize(("window", "step", "last"), [("15m", 60, "20:20"), ("7d", 3600, "Nov 28")])
def test_the_last_label_of_a_chart_is_whole(stage: Stage, window: str, step: int, last: str) -> None:
    page = stage.page(f"/?window={window}")
    expect(page.locator(".plot canvas")).to_have_count(3)
    page.evaluate(LABELS, step)
    page.wait_for_function("(last) => drawn.some(([text]) => text === last)", arg=last)
    assert page.evaluate("drawn.filter(([_, over]) => over > 0)") == []


def test_hostile_texts_stay_texts(stage: Stage) -> None:
    store, world = stage.serving.store, stage.serving.server.context.environment
    jobs = [
        NewJob(
            id=world.job_id(),
            task=evil,
            queue=evil,
            tags=(evil,),
            unique=Unique(key=evil, scope=evil),
            requires=(evil,),
            trace=evil,
            args=f'{{"evil": {json.dumps(evil)}}}',
        )
        for evil in HOSTILE
    ]
    workers = [Worker(id=world.job_id(), name=evil, version=evil, capabilities=(evil,)) for evil in HOSTILE]

    async def appear() -> None:
        await store.enqueue(jobs)
        for evil, worker in zip(HOSTILE, workers, strict=True):
            await store.register(worker)
            await store.pause(evil, by=evil, reason=evil)
            await store.set_limit(LimitName(LimitKind.KEY, evil, evil), LimitRule(most=1), by=evil)

    async def go() -> None:
        await store.delete([job.id for job in jobs])
        for evil, worker in zip(HOSTILE, workers, strict=True):
            await store.retire(worker.id)
            await store.resume(evil)
            await store.set_limit(LimitName(LimitKind.KEY, evil, evil), None)

    stage.do(appear())
    page = stage.page("/")
    for path in (
        "/",
        "/jobs",
        "/queues",
        "/limits",
        "/workers",
        "/audit",
        *(f"/jobs/{job.id}" for job in jobs),
        f"/chains/{jobs[0].id}",
    ):
        page.goto(f"{stage.url}{path}")
        page.locator("h1").wait_for()
        assert page.locator("#main img, #main script, #main svg[onload]").count() == 0, path
        assert page.title().endswith("Holdfast")
        for job in jobs:
            if path == f"/jobs/{job.id}":
                assert page.locator("h1 .title").text_content() == job.task
    page.close()
    stage.do(go())


def test_hostile_names_of_what_is_no_job_stay_texts(stage: Stage) -> None:
    """Schedules, later steps of a chain, keys, who set a limit, whom the audit log is asked for, and alerts."""
    store, world = stage.serving.store, stage.serving.server.context.environment
    worker = Worker(id=world.job_id(), name="evil")
    alerts = [delivery(evil[:150], evil[:150], evil, delay=3600.0) for evil in HOSTILE]
    first = NewJob(id=(chain := world.job_id()), task="evil.first", chain_id=chain)

    async def appear() -> None:
        await store.register(worker)
        due = await store.now() + timedelta(days=1)
        await store.schedule(
            [Schedule(name=evil, task=evil, cron="0 3 * * *", timezone="UTC", next_at=due) for evil in HOSTILE]
        )
        await store.enqueue([first, *alerts])
        for number, task in enumerate(("evil.first", *HOSTILE[:-1])):
            request = ClaimRequest(worker=worker.id, tasks=frozenset({task}), limit=1, look=True)
            (claimed,) = await store.claim(request)
            then = NewJob(id=world.job_id(), task=HOSTILE[number])
            await store.settle([Settlement(claimed.lease, Write(event=Event.CONTINUE, failures=0, result="null"), then=then)])
        for evil in HOSTILE:
            await new_key(store, evil, Role.VIEWER, created_by=evil)
            await store.set_limit(LimitName(LimitKind.TASK, evil), LimitRule(most=1), by=evil)

    async def go() -> None:
        await store.unschedule(HOSTILE)
        await store.delete([job.id for job in alerts])
        await store.delete_chains([chain])
        await store.retire(worker.id)
        for evil in HOSTILE:
            await store.set_limit(LimitName(LimitKind.TASK, evil), None)
        for key in await store.keys():
            if key.name in HOSTILE:
                await store.revoke_key(key.id)

    stage.do(appear())
    page = stage.page("/schedules")
    for path in ("/schedules", f"/chains/{chain}", "/chains", "/keys", "/limits", "/alerts"):
        page.goto(f"{stage.url}{path}")
        page.locator("h1").wait_for()
        assert page.locator("#main img, #main script, #main svg[onload]").count() == 0, path
        assert page.title().endswith("Holdfast")
        text = page.locator("#main").text_content() or ""
        wanted = HOSTILE[-1:] if path == "/chains" else HOSTILE  # the list has the last step alone
        assert [evil for evil in wanted if evil not in text] == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDE["width"], path
    for evil in HOSTILE:
        page.goto(f"{stage.url}/audit?{urlencode({'actor': evil})}")
        assert page.locator("#actor").input_value() == evil
        assert page.locator("tbody .strong").first.text_content() == evil
        assert page.locator("#main img, #main script, #main svg[onload]").count() == 0
    page.close()
    stage.do(go())


def test_hostile_texts_that_a_run_leaves_behind_stay_texts(stage: Stage) -> None:
    store, world = stage.serving.store, stage.serving.server.context.environment
    worker = Worker(id=world.job_id(), name="evil", info=json.dumps({"metadata": HOSTILE[0]}))
    texts = (*HOSTILE, HOSTILE[0] * 25_000, f"nul \0 {HOSTILE[0]}")
    assert max(map(len, texts)) > 1_000_000

    async def run(evil: str) -> UUID:
        short = evil[:150].replace("\0", "")
        job = NewJob(id=world.job_id(), task="evil.run", args=json.dumps({"evil": evil}))
        await store.enqueue([job])
        (claimed,) = await store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"evil.run"}), limit=1, look=True))
        lease = claimed.lease
        await store.progress([Progress(lease, 30, step=evil, message=evil)])
        await store.log([LogLine(lease=lease, message=evil, logger=evil, fields=json.dumps({short: short}))])
        await store.checkpoint([Checkpoint(lease, Part(short, PartState.FAILED, data=json.dumps(evil), error=evil))])
        error = Error(short, evil, evil)
        await store.settle([Settlement(lease, Write(event=Event.FAIL, failures=1, error=error))])
        return job.id

    async def appear() -> list[UUID]:
        await store.register(worker)
        return [await run(evil) for evil in texts]

    jobs = stage.do(appear())
    page = stage.page("/")
    for evil, job in zip(texts, jobs, strict=True):
        page.goto(f"{stage.url}/jobs/{job}")
        page.locator("h1").wait_for()
        assert page.locator("#main img, #main script, #main svg[onload]").count() == 0
        assert page.title().endswith("Holdfast")
        if "\0" not in evil:
            assert evil[:150] in (page.locator("#main").text_content() or "")
    for path in ("/", "/jobs", "/workers"):
        page.goto(f"{stage.url}{path}")
        page.locator("h1").wait_for()
        assert page.locator("#main img, #main script, #main svg[onload]").count() == 0, path
    page.close()
    stage.do(store.delete(jobs))
    stage.do(store.retire(worker.id))
