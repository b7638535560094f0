"""A page of another package on Holdfast's server: behind its login, in its frame."""

import asyncio
import os
from pathlib import Path

import httpx2
from starlette.responses import Response

from holdfast import Holdfast
from holdfast.server import Extension, Page, Problem, Right, ServerSettings, Visit, create_server

SECRET = os.environ.get("JOBS_SECRET", "sixteen characters or more")
HERE = Path(__file__).parent
NOTES: list[str] = []

app = Holdfast("sqlite:///jobs.db")


async def notes(visit: Visit) -> Response:
    return visit.render("notes/notes.html", title="Notes", section="notes", notes=NOTES)


async def write(visit: Visit) -> Response:
    text = visit.field("text").strip()
    if not text:
        raise Problem(400, "There is nothing to write.", "Write something.")
    await visit.note(["notes"], f"write {text!r}")
    NOTES.append(text)
    return visit.go(visit.link("/notes"), "It is written.")


def pages_of(_app: Holdfast) -> Extension:
    return Extension(
        name="notes",
        label="Notes",
        key="n",
        templates=HERE / "pages_of_your_own",
        pages=(
            Page(path="", handler=notes),
            Page(path="", handler=write, right=Right.STEER, method="POST"),
        ),
    )


server = create_server(app, ServerSettings(admin_secret=SECRET), extensions=[pages_of(app)])


async def main() -> None:
    own = {"Sec-Fetch-Site": "same-origin"}  # as a browser says on the server's own pages
    transport = httpx2.ASGITransport(app=server)
    async with server.running(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        page = await client.get("/notes")
        print("without a login:", page.status_code, page.headers["location"])
        await client.post("/login", data={"secret": SECRET}, headers=own)
        page = await client.get("/notes")
        print(f"the page: {page.status_code}, with the navigation:", 'href="/queues"' in page.text)
        done = await client.post("/notes", data={"text": "<b>milk</b>"}, headers=own)
        shown = "&lt;b&gt;milk&lt;/b&gt;" in (await client.get("/notes")).text
        print(f"written: {done.status_code}, <b>milk</b> is shown as text:", shown)
        foreign = await client.post("/notes", data={"text": "x"}, headers={"Sec-Fetch-Site": "cross-site"})
        print("from another site:", foreign.status_code)
        print("in the audit log:", "notes: write" in (await client.get("/audit?action=extension")).text)


if __name__ == "__main__":
    asyncio.run(main())
