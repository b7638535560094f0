"""The line of a worker to its server: who is told to wait, waits."""

from __future__ import annotations

import httpx2
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.store.http.line import PATIENCE, Line
from holdfast.wire.workers import Done

DONE = httpx2.Response(200, json={})


def told_to_wait(seconds: str) -> httpx2.Response:
    problem = {"error": "too_many", "message": "too many requests with this key"}
    return httpx2.Response(429, json=problem, headers={"Retry-After": seconds})


class Server:
    """Answers in turn with what it was given, the last for ever; and how long the line has rested in between."""

    def __init__(self, *answers: httpx2.Response, chance: float = 0.0) -> None:
        self.asked = 0
        self.rests: list[float] = []
        self._answers = answers
        transport = httpx2.MockTransport(self._answer)
        self.line = Line("http://server", "hf_key", chance=lambda: chance, rest=self._rest, transport=transport)

    def _answer(self, _: httpx2.Request) -> httpx2.Response:
        self.asked += 1
        return self._answers[min(self.asked, len(self._answers)) - 1]

    async def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)


async def test_a_request_that_came_too_often_is_repeated_when_the_server_says() -> None:
    server = Server(told_to_wait("2"), told_to_wait("1"), DONE)
    assert await server.line.post("/figures", b"{}", Done) == Done()
    assert (server.asked, server.rests) == (3, [2.0, 1.0])
    await server.line.close()


async def test_those_who_wait_for_the_same_moment_do_not_all_come_in_it() -> None:
    server = Server(told_to_wait("2"), DONE, chance=0.5)
    await server.line.get("/server", Done)
    assert 2.0 < server.rests[0] < 4.0
    await server.line.close()


async def test_who_is_told_to_wait_again_and_again_says_so_at_last() -> None:
    server = Server(told_to_wait("3"))
    with pytest.raises(StoreUnavailable, match="too many requests with this key") as refused:
        await server.line.get("/server", Done)
    assert sum(server.rests) == refused.value.waited <= PATIENCE < refused.value.waited + 3
    await server.line.close()


@pytest.mark.parametrize("seconds", ["3600", "soon", "", "-1"])
async def test_a_wait_that_is_too_long_or_that_nobody_can_read_is_left_to_who_asked(seconds: str) -> None:
    server = Server(told_to_wait(seconds))
    with pytest.raises(StoreUnavailable):
        await server.line.get("/server", Done)
    assert (server.asked, server.rests) == (1, [])
    await server.line.close()


async def test_a_request_that_found_the_store_away_may_have_been_carried_out_and_is_not_repeated_here() -> None:
    away = httpx2.Response(
        503, json={"error": "unavailable", "message": "the store does not answer"}, headers={"Retry-After": "1"}
    )
    server = Server(away, DONE)
    with pytest.raises(StoreUnavailable):
        await server.line.post("/figures", b"{}", Done)
    assert server.asked == 1
    await server.line.close()
