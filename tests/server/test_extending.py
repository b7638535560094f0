"""Pages of another package: behind the server's own door, in its frame, under its rules."""

from __future__ import annotations

import logging
from contextlib import ExitStack, asynccontextmanager
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import Response
from starlette.testclient import TestClient

from holdfast import BadSetting, Holdfast
from holdfast.server import Extension, Page, Problem, Right, ServerSettings, Visit, create_server, extending
from holdfast.store.port import Action, Role
from tests.server.ui.conftest import OWN, Place
from tests.server.ui.serving import SECRET

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

TEMPLATE = """{% extends layout %}
{% import "parts.html" as part with context %}
{% block content %}<h1>{{ title }}</h1>{{ part.state("ready") }}<p id="name">{{ name }}</p>{% endblock %}"""


async def first(visit: Visit) -> Response:
    return visit.render("notes/first.html", title="Notes", section="notes", name=visit.request.query_params.get("name", ""))


async def write(visit: Visit) -> Response:
    if not visit.field("text"):
        raise Problem(400, "There is nothing to write.", "Write something.")
    await visit.note(["note 1"], f"write {visit.field('text')}")
    return visit.go(visit.link("/notes"), "It is written.")


async def attach(visit: Visit) -> Response:
    size = 0
    async for piece in visit.request.stream():
        size += len(piece)
    return Response(str(size))


def notes(folder: Path, **options: Any) -> Extension:
    (folder / "templates").mkdir(exist_ok=True)
    (folder / "static").mkdir(exist_ok=True)
    (folder / "templates" / "first.html").write_text(TEMPLATE)
    (folder / "static" / "notes.js").write_text("// nothing")
    pages = (
        Page(path="", handler=first),
        Page(path="/write", handler=write, right=Right.STEER, method="POST"),
        Page(path="/{name}/file", handler=attach, right=Right.STEER, method="PUT", raw=True),
    )
    given = {"name": "notes", "label": "Notes & more", "key": "n", "scripts": ("notes.js",), "pages": pages}
    return Extension(**{**given, "templates": folder / "templates", "static": folder / "static", **options})


def opened(stack: ExitStack, *extensions: Extension, prefix: str = "") -> Place:
    settings = ServerSettings(admin_secret=SECRET, prefix=prefix)
    server = create_server("memory://", settings, housekeeping=False, extensions=extensions)
    client = stack.enter_context(TestClient(server, headers=OWN, follow_redirects=False))
    assert client.post(f"{prefix}/login", data={"secret": SECRET}).status_code == 303
    return Place(server, client)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield opened(stack, notes(tmp_path, policy={"media-src": "'self' blob:"}))


def test_a_page_is_in_the_frame_and_in_the_navigation(place: Place) -> None:
    page = place.client.get("/notes", params={"name": "<b>"})
    assert '<p id="name">&lt;b&gt;</p>' in page.text
    assert 'aria-current="page"' in page.text.partition("Notes &amp; more")[0].rpartition("<li>")[2]
    assert 'data-go="n"' in place.client.get("/jobs").text
    assert "notes.js" in page.text
    assert "notes.js" not in place.client.get("/jobs").text
    address = page.text.partition('src="/static-notes/')[2].partition('"')[0]
    script = place.client.get(f"/static-notes/{address}")
    assert (script.text, script.headers["cache-control"]) == ("// nothing", "public, max-age=31536000, immutable")


def test_its_policy_is_the_servers_with_what_it_asked_for(place: Place) -> None:
    own, other = (place.client.get(path).headers["content-security-policy"] for path in ("/notes", "/jobs"))
    assert own == f"{other}; media-src 'self' blob:"
    assert "script-src 'self';" in own


def test_who_is_not_logged_in_or_may_not_is_kept_out(place: Place) -> None:
    assert place.anyone().get("/notes").headers["location"] == "/login?next=%2Fnotes"
    viewer = place.having(Role.VIEWER)
    assert viewer.get("/notes").status_code == 200
    assert viewer.post("/notes/write", data={"text": "x"}).status_code == 403
    assert viewer.put("/notes/a/file", content=b"x").status_code == 403


def test_an_extension_about_a_queue_is_not_for_keys_of_others(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = opened(stack, notes(tmp_path, queue="mail"))
        other, own = place.having(Role.VIEWER, queues=("video",)), place.having(Role.VIEWER, queues=("mail",))
        assert (other.get("/notes").status_code, own.get("/notes").status_code) == (403, 200)
        assert "/notes" not in other.get("/queues").text


@pytest.mark.parametrize("site", ["cross-site", "none", "same-site"])
@pytest.mark.parametrize(("method", "path"), [("POST", "/notes/write"), ("PUT", "/notes/a/file")])
def test_what_changes_something_comes_from_a_page_of_the_server(place: Place, method: str, path: str, site: str) -> None:
    assert place.client.request(method, path, headers={"Sec-Fetch-Site": site}, content=b"text=x").status_code == 403


def test_what_it_does_is_in_the_audit_log_and_said_on_the_next_page(place: Place) -> None:
    assert place.client.post("/notes/write", data={"text": ""}).status_code == 400
    assert place.client.post("/notes/write", data={"text": "hello"}).headers["location"] == "/notes"
    assert "It is written." in place.client.get("/notes").text
    (line,) = place.do(place.store.audits(limit=10, action=Action.EXTENSION))
    assert (line.actor, line.targets, line.detail) == ("admin", ("note 1",), "notes: write hello")
    assert "notes: write hello" in place.client.get("/audit").text


def test_a_raw_body_may_be_larger_than_a_form(place: Place) -> None:
    limit = place.server.context.settings.body_limit
    assert place.client.put("/notes/a/file", content=bytes(limit + 1)).text == str(limit + 1)
    assert place.client.post("/notes/write", content=bytes(limit + 1)).status_code == 413


def test_links_follow_the_prefix(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = opened(stack, notes(tmp_path), prefix="/jobs")
        page = place.client.get("/jobs/notes").text
        assert 'href="/jobs/notes"' in page
        assert 'src="/jobs/static-notes/notes.js' in page


def test_its_lifespan_is_that_of_the_server(tmp_path: Path) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        seen.append("begun")
        yield
        seen.append("ended")

    with ExitStack() as stack:
        opened(stack, notes(tmp_path, lifespan=lifespan))
        assert seen == ["begun"]
    assert seen == ["begun", "ended"]


def test_an_extension_is_found_for_the_app_that_it_belongs_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours, others = Holdfast("memory://"), Holdfast("memory://")
    found = {"ours": lambda app: notes(tmp_path) if app is ours else None}
    entries = [
        EntryPoint("broken", "holdfast.no_such_module:pages", extending.GROUP),
        EntryPoint("ours", f"{__name__}:unused", extending.GROUP),
    ]
    monkeypatch.setattr(extending, "entry_points", lambda group: entries if group == extending.GROUP else [])
    load = EntryPoint.load
    monkeypatch.setattr(EntryPoint, "load", lambda entry: found.get(entry.name) or load(entry))
    with caplog.at_level(logging.WARNING):
        assert [one.name for one in extending.found_for(ours)] == ["notes"]
    assert "the pages of broken are not served" in caplog.text
    assert extending.found_for(others) == []
    paths = [getattr(route, "path", "") for route in create_server(ours, housekeeping=False).routes]
    assert "/notes" in paths


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": "jobs"}, "cannot be called 'jobs'"),
        ({"name": "a/b"}, "cannot be called"),
        ({"name": ""}, "cannot be called"),
        ({"key": "j"}, "no other page has"),
        ({"key": "nn"}, "no other page has"),
        ({"icon": '"/><script>'}, "SVG path"),
        ({"policy": {"script-src": "'unsafe-inline'"}}, "cannot add script-src"),
        ({"policy": {"media-src": "https://elsewhere.example"}}, "cannot add media-src"),
        ({"policy": {"media-src": "'self'; script-src *"}}, "cannot add media-src"),
        ({"pages": (Page(path="x", handler=first),)}, "is no page"),
        ({"pages": (Page(path="/x", handler=first, method="TRACE"),)}, "is no page"),
    ],
)
def test_what_would_weaken_the_server_is_refused(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(BadSetting, match=why):
        notes(tmp_path, **options)


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="two extensions have the name notes"):
        create_server("memory://", extensions=[notes(tmp_path), notes(tmp_path)])
