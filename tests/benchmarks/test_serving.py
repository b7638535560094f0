"""What ./dev bench pages and ./dev bench serving keep of a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from unittest.mock import AsyncMock, patch

import pytest

from benchmarks import pages, serving, serving_page
from benchmarks.commands import report_of, this_run
from benchmarks.machine import this_machine
from benchmarks.results import load, save, summary
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_answer_of_a_page_is_told_apart_from_the_others(tmp_path: Path) -> None:
    readings = pages.readings({"/jobs": [0.5, 0.01, 0.02, 0.03]}, jobs=7)
    save(report_of("pages", this_run("pages", []), this_machine(), readings), tmp_path / "pages.json")

    cells = {cell.work: cell for cell in summary(load(tmp_path / "pages.json"))}

    assert (cells["first /jobs"].median, cells["page /jobs"].median, cells["page /jobs"].high) == (500.0, 20.0, 30.0)
    assert cells["page /jobs"].extra == {"jobs": 7}


def test_the_verdict_on_pages_says_what_it_judges_and_what_it_leaves_out() -> None:
    found = {"/": [2.0, 0.1, 0.2, 0.9], "/jobs": [0.4, 0.35, 0.31, 0.32]}

    assert pages.slow(found) == ["too slow: /jobs: median 320 ms, slowest 350 ms, first 400 ms"]
    assert "median of each page's answers but the first, which may be 300 ms. The highest is 320 ms." in pages.judged(found)
    assert "Not judged: the slowest of these answers (900 ms), and the slowest first one" in pages.judged(found)
    assert "(2000 ms)" in pages.judged(found)


async def test_the_overview_is_asked_for_by_a_viewer_of_some_queues_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    key = await pages.viewer(url)
    server = create_server(url, ServerSettings(admin_secret=pages.SECRET), housekeeping=False)
    asked = AsyncMock(wraps=server.context.store.figures)
    with patch.object(server.context.store, "figures", asked):
        async with server.router.lifespan_context(server):
            found = await pages.visited(server, key, {path: path for path in pages.OVERVIEW}, rounds=2)
    assert {page: len(times) for page, times in found.items()} == dict.fromkeys(("/", "/?window=6h", "/?window=7d"), 2)
    assert {call.kwargs["whole"] for call in asked.await_args_list} == {False}


def test_what_a_server_carries_is_kept_round_by_round(tmp_path: Path) -> None:
    found = serving.Found(workers=3, pages=5)
    for number, rate in enumerate((100.0, 300.0, 200.0)):
        found.add("claims, alone", rate, "claims/s", "higher", number)
    save(report_of("serving", this_run("serving", []), this_machine(), found.readings), tmp_path / "serving.json")

    (cell,) = summary(load(tmp_path / "serving.json"))

    assert (cell.work, cell.rounds, cell.median, cell.better) == ("serving: claims, alone", 3, 200.0, "higher")
    assert cell.extra == {"workers": 3, "pages": 5}


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\nevent: changed\n", None),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "401"),
        (b"HTTP/1.1 303 See Other\r\nlocation: /login\r\n\r\n", "303"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "200 OK"),
        (b"", "hung up"),
    ],
)
async def test_a_client_counts_as_stalled_once_its_stream_has_told_something(answer: bytes, wrong: str | None) -> None:
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        if wrong is None:
            async with serving.stalled(port, ["a=b"]):
                pass
        else:
            with pytest.raises(serving.Refused, match=wrong):
                async with serving.stalled(port, ["a=b"]):
                    pass
        await over.wait()


def test_what_clients_cost_that_read_nothing_is_bounded() -> None:
    rates = {False: [300.0, 310.0], True: [290.0, 280.0]}
    assert all(serving.held_beside(rates, [25.7, 0.9], [0, 2], 500).values())
    slow = {False: [300.0], True: [190.0]}
    assert not any(serving.held_beside(slow, [0.9, 75.1], [0, 3], 500).values())
    assert serving.held_beside(rates, [9.9], [0], 5)["memory of stalled clients"]


def test_the_guide_shows_what_the_results_give() -> None:
    part = serving_page.part(load("serving"))
    cells = {cell.work: cell for cell in summary(load("serving"))}
    assert f"| {cells['serving: jobs, paced'].median:.0f} jobs and " in part
    assert f"| {cells['serving: memory that these clients cost'].high:.0f} MB in the dearest of " in part
    assert serving_page.part(None).startswith("Not measured yet")
    assert serving_page.page() == serving_page.PAGE.read_text(encoding="utf-8"), "write it anew: ./dev docs"
