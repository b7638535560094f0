"""What one server carries: hundreds of remote workers, and hundreds of open pages that nobody reads, on PostgreSQL 18.

    ./dev bench serving                        300 workers, 500 pages, about four minutes
    ./dev bench serving --workers 50 --seconds 5   a short look: it is printed, not written

The server is a process of its own. Workers are simulated, but speak real HTTP over connections of their own, each with its own
key, as a worker in another language would: they register, claim with a long poll, complete, and beat every two seconds.

First they work at a pace: every job takes as long as `--work` says. What counts is whether beats and claims are answered in
time, whether any lease lapses, and whether the server's memory stays. Then every worker claims as fast as it can, in turns
without and with clients that have opened the stream of the dashboard, and read nothing of it but its first event: each has
logged in with a key of its own, as people do, and that key is asked for again as long as the stream is open.

The whole run writes benchmarks/results/serving.json.

Exit code 1: a request was refused, a stream did not open, a job was tried twice, or a bound below does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import httpx2
from uuid_utils.compat import uuid7

from benchmarks.commands import JSON_HELP, at_least_one, destination, is_whole, keep, report_of, tell, this_run
from benchmarks.machine import this_machine
from benchmarks.results import Reading
from benchmarks.servers import Servers
from holdfast import connect
from holdfast.core.job import NewJob
from holdfast.server.keys import digest, new_key
from holdfast.store.port import Key, Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from benchmarks.results import Better
    from holdfast.store.port import Store

SECRET: Final = "a secret of the benchmarks"
TASK: Final = "sim.work"
BEAT: Final = 2.0
BACKLOG: Final = 4_000
"""Jobs that always wait."""
WAIT_MS: Final = 2_000
SLOTS: Final = 4
WORK: Final = 5.0
"""Seconds that a job takes in the paced run."""
MOST_SLOWER: Final = 1.5
"""How many times fewer claims a second there may be beside pages that nobody reads."""
MOST_GROWN: Final = 1.15
"""How many times the memory after the first tenth of a run the server may take at its end."""
LATEST_BEAT: Final = 5.0
"""Seconds within which 99 of 100 beats must be answered: leases last for 30."""
LOADS: Final = 3
OK: Final = b"HTTP/1.1 200"
MOST_FOR_A_CLIENT: Final = 0.15
"""MB that the server may take for each client that reads nothing."""
MOVES: Final = 10.0
"""MB by which the memory may move in a turn, however few clients there are."""
OPENED: Final = 60.0
"""Seconds within which every stream must have told its first event."""


# --- a worker ---------------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The server answered with an error."""


class Wire:
    """One connection that is kept, and one request at a time: no more of HTTP than the server's answers need."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: object, method: str = "POST") -> Any:
        """Ask, and return what is answered."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        text = json.dumps(body).encode()
        writer.write(f"{method} /api/v1{path} HTTP/1.1\r\n{self._head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
        assert found is not None, head
        answer = await reader.readexactly(int(found[1]))
        if not head.startswith(b"HTTP/1.1 200"):
            raise Refused(f"{path}: {head.splitlines()[0].decode()} {answer[:200].decode()}")
        return json.loads(answer)

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()


@dataclass
class Seen:
    """What workers have seen."""

    claimed: int = 0
    completed: int = 0
    again: int = 0
    """Jobs that were not at their first attempt."""
    beats: list[float] = field(default_factory=list)
    claims: list[float] = field(default_factory=list)
    """Seconds of each claim that returned a job."""
    refused: list[str] = field(default_factory=list)


async def worker(number: int, line: Wire, heart: Wire, *, work: float, seen: Seen, stop: asyncio.Event) -> None:
    """Do what a remote worker does until told to stop; what it has claimed it completes."""
    held: dict[str, str] = {}
    try:
        me = (await line.post("/workers", {"name": f"sim-{number}", "slots": SLOTS}))["id"]
        await asyncio.sleep(BEAT * (number % 100) / 100)
        beating = asyncio.create_task(beat(heart, me, held, seen))
        try:
            while not stop.is_set():
                begun = time.perf_counter()
                answer = await line.post(f"/workers/{me}/claim", {"tasks": [TASK], "limit": SLOTS, "wait_ms": WAIT_MS})
                if answer["jobs"]:
                    seen.claims.append(time.perf_counter() - begun)
                seen.claimed += len(answer["jobs"])
                seen.again += sum(job["attempt"] > 1 for job in answer["jobs"])
                held.update({job["job_id"]: job["token"] for job in answer["jobs"]})
                if work:
                    await asyncio.sleep(work)
                for job in answer["jobs"]:
                    await line.post(f"/jobs/{job['job_id']}/complete", {"token": job["token"], "result": None})
                    held.pop(job["job_id"])
                    seen.completed += 1
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        await line.post(f"/workers/{me}", None, "DELETE")
    except (Refused, OSError, asyncio.IncompleteReadError) as error:
        seen.refused.append(f"{type(error).__name__}: {error}")
    finally:
        line.close()
        heart.close()


async def beat(heart: Wire, me: str, held: dict[str, str], seen: Seen) -> None:
    """Keep the leases."""
    while True:
        leases = [{"job_id": job, "token": token} for job, token in held.items()]
        begun = time.perf_counter()
        await heart.post(f"/workers/{me}/heartbeat", {"leases": leases})
        seen.beats.append(time.perf_counter() - begun)
        await asyncio.sleep(BEAT)


# --- the server, and what it takes ------------------------------------------------------------------------------------------


@contextmanager
def served(url: str) -> Iterator[tuple[int, int]]:
    """Run a server; returns its process and its port."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    variables = os.environ | {"HOLDFAST_ADMIN_SECRET": SECRET, "HOLDFAST_URL": url}
    command = [sys.executable, "-m", "holdfast", "server", "--port", str(port)]
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 60
            while True:
                with suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                assert process.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server does not listen"
                time.sleep(0.1)
            yield process.pid, port
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()


def resident(pid: int) -> float:
    """Return the memory of a process, in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


async def sessions(watcher: asyncpg.Connection[asyncpg.Record]) -> int:
    """Return how many connections to the database there are besides those of this process."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast'"
    return int(await watcher.fetchval(query))


async def stocked(store: Store) -> None:
    """Keep jobs waiting."""
    while True:
        waiting = (await store.stats()).live
        if waiting < BACKLOG:
            await store.enqueue([NewJob(id=uuid7(), task=TASK) for _ in range(BACKLOG // 2)])
        else:
            await asyncio.sleep(0.2)


async def logged_in(port: int, keys: Sequence[str]) -> list[str]:
    """Log in with each key; returns the cookie of each session."""
    cookies = []
    for key in keys:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            answer = await client.post("/login", data={"secret": key}, headers={"origin": f"http://127.0.0.1:{port}"})
            assert not answer.is_error, answer.text
            cookies.append("; ".join(f"{name}={value}" for name, value in client.cookies.items()))
    return cookies


@asynccontextmanager
async def stalled(port: int, cookies: Sequence[str]) -> AsyncIterator[None]:
    """Have a client for each session open the stream of the dashboard, hear its first event, and read nothing more.

    Raises `Refused` where a stream does not open: a measurement beside clients that are not there would show nothing.
    """
    sockets: list[socket.socket] = []
    try:
        for cookie in cookies:
            request = f"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode()
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            one.setblocking(False)  # noqa: FBT003
            await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
            one.sendall(request)
            sockets.append(one)
        async with asyncio.timeout(OPENED):
            for one in sockets:
                await first_event(one)
        yield
    finally:
        for one in sockets:
            one.close()


async def first_event(one: socket.socket) -> None:
    """Read a stream up to its first event."""
    heard = b""
    while b"event: changed" not in heard:
        more = await asyncio.get_running_loop().sock_recv(one, 1024)
        heard += more
        if not more or not OK.startswith(heard[: len(OK)]):
            raise Refused(f"/live: {heard[:200].decode(errors='replace') or 'hung up'}")


# --- the two runs -----------------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """Where workers work."""

    port: int
    pid: int
    keys: Sequence[str]
    watcher: asyncpg.Connection[asyncpg.Record]

    async def run(self, seconds: float, work: float, samples: list[float] | None = None) -> tuple[Seen, float]:
        """Have all workers work for so long; returns what they saw, and for how long they did."""
        seen, stop = Seen(), asyncio.Event()
        crew = [
            asyncio.create_task(worker(number, Wire(self.port, key), Wire(self.port, key), work=work, seen=seen, stop=stop))
            for number, key in enumerate(self.keys)
        ]
        begun = time.perf_counter()
        while (passed := time.perf_counter() - begun) < seconds:
            if samples is not None:
                samples.append(resident(self.pid))
            await asyncio.sleep(min(1.0, seconds - passed))
        took = time.perf_counter() - begun
        counted = Seen(seen.claimed, seen.completed, seen.again, [*seen.beats], [*seen.claims], seen.refused)
        stop.set()
        await asyncio.gather(*crew)
        return counted, took


def main(arguments: Sequence[str]) -> int:
    """Start a server, load it, and tell."""
    parser = argparse.ArgumentParser(prog="./dev bench serving", description="What one server carries.")
    parser.add_argument("--workers", type=at_least_one, default=300, help="remote workers (default: %(default)s)")
    parser.add_argument("--pages", type=at_least_one, default=500, help="clients that read nothing (default: %(default)s)")
    parser.add_argument("--seconds", type=at_least_one, default=90, help="of the paced run (default: %(default)s)")
    parser.add_argument("--work", type=float, default=WORK, help="seconds that a job takes in it (default: %(default)s)")
    parser.add_argument("--rounds", type=at_least_one, default=3, help="turns without and with clients (default: %(default)s)")
    parser.add_argument("--turn", type=at_least_one, default=15, help="seconds of a turn (default: %(default)s)")
    parser.add_argument("--json", type=Path, help=JSON_HELP)
    options = parser.parse_args(arguments)
    as_usual = options.work == parser.get_default("work")
    whole = as_usual and is_whole(parser, options, "workers", "pages", "seconds", "rounds", "turn")
    path, run = destination("serving", options.json, whole=whole), this_run("serving", arguments)
    with Servers() as servers:
        servers.start({"postgres"})
        with servers.fresh("postgres") as place:
            found = asyncio.run(measured(place.url, options))
        machine = this_machine(servers.versions(), servers.settings())
    print(f"one server, PostgreSQL 18, {options.workers} workers, {options.pages} pages that nobody reads")
    for one in found.readings:
        print(f"{one.work:52} {one.round:2} {one.value:10.1f} {one.unit}")
    for text in found.refused[:1]:
        print(f"the first request that was refused: {text}")
    keep(report_of("serving", run, machine, found.readings), path)
    wrong = [name for name, holds in found.holds.items() if not holds]
    for name in wrong:
        tell(f"does not hold: {name}")
    return 1 if wrong else 0


@dataclass
class Found:
    """What was measured, and which bounds hold."""

    workers: int
    pages: int
    readings: list[Reading] = field(default_factory=list)
    holds: dict[str, bool] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def add(self, work: str, value: float, unit: str, better: Better = "lower", number: int = 0) -> None:
        """Add a figure of one round."""
        extra: dict[str, float | str] = {"workers": self.workers, "pages": self.pages}
        self.readings.append(Reading("holdfast_postgres", f"serving: {work}", number, value, unit, better, extra))


async def measured(url: str, options: argparse.Namespace) -> Found:
    """Return all figures, in the order in which they are told."""
    found = Found(options.workers, options.pages)
    async with AsyncExitStack() as stack:
        store = connect(url)
        await store.open()
        stack.push_async_callback(store.close)
        keys = [await a_key(store, f"sim-{number}", Role.WORKER) for number in range(options.workers)]
        readers = [await a_key(store, f"reader-{number}", Role.VIEWER) for number in range(options.pages)]
        pid, port = stack.enter_context(served(url))
        cookies = await logged_in(port, readers)
        watcher = await asyncpg.connect(url)
        stack.push_async_callback(watcher.close)
        stocking = asyncio.create_task(stocked(store))
        stack.callback(stocking.cancel)
        load = Load(port, pid, keys, watcher)
        tell(f"{options.workers} workers, every job takes {options.work:g} s")
        samples: list[float] = []
        seen, took = await load.run(options.seconds, options.work, samples)
        paced(found, seen, took, samples)
        rates: dict[bool, list[float]] = {False: [], True: []}
        costs: list[float] = []
        opened: list[int] = []
        again = seen.again
        found.refused += seen.refused
        for turn in range(options.rounds):
            for watched in (False, True) if turn % 2 == 0 else (True, False):
                before, lines = resident(pid), await sessions(watcher)
                async with stalled(port, cookies if watched else ()):
                    tell(f"as fast as they can, {'with' if watched else 'without'} {options.pages} clients that read nothing")
                    seen, took = await load.run(options.turn, 0.0)
                    rate = seen.claimed / took
                    rates[watched].append(rate)
                    beside = "beside clients that read nothing" if watched else "alone"
                    found.add(f"claims, {beside}", rate, "claims/s", "higher", turn)
                    if watched:
                        opened.append(await sessions(watcher) - lines)
                        costs.append(resident(pid) - before)
                        found.add("memory that these clients cost", costs[-1], "MB", number=turn)
                        found.add("database connections that they cost", opened[-1], "", number=turn)
                again += seen.again
                found.refused += seen.refused
    found.add("claims alone to those beside clients", statistics.median(rates[False]) / statistics.median(rates[True]), "")
    found.add("jobs that were tried again", again, "")
    found.add("requests refused", len(found.refused), "")
    found.holds |= held_beside(rates, costs, opened, options.pages)
    found.holds["nothing tried twice, nothing refused"] = not again and not found.refused
    return found


def held_beside(
    rates: Mapping[bool, Sequence[float]], costs: Sequence[float], opened: Sequence[int], pages: int
) -> dict[str, bool]:
    """Return which bounds hold beside clients that read nothing, by rates without and with them and what they cost."""
    return {
        "claims within 1.5x": statistics.median(rates[False]) <= MOST_SLOWER * statistics.median(rates[True]),
        "memory of stalled clients": max(costs) <= max(MOVES, MOST_FOR_A_CLIENT * pages),
        "no database connection for a page": max(opened) < LOADS,
    }


def paced(found: Found, seen: Seen, took: float, samples: Sequence[float]) -> None:
    """Add the figures of the first run."""
    beats, claims = sorted(seen.beats), sorted(seen.claims)
    early = statistics.median(samples[len(samples) // 10 : len(samples) // 5 + 1])
    late = statistics.median(samples[-max(1, len(samples) // 10) :])
    found.add("jobs, paced", seen.completed / took, "jobs/s", "higher")
    found.add("beats, paced", len(beats) / took, "beats/s", "higher")
    for what, times in (("beat", beats), ("claim", claims)):
        for of, at in (("p50", len(times) // 2), ("p99", int(0.99 * len(times))), ("longest", -1)):
            found.add(f"{what} answered, paced, {of}", 1000 * times[at], "ms")
    found.add("memory, early", early, "MB")
    found.add("memory, late", late, "MB")
    found.holds["beats in time"] = beats[int(0.99 * len(beats))] <= LATEST_BEAT
    found.holds["memory flat"] = late <= MOST_GROWN * early


async def a_key(store: Store, name: str, role: Role, queues: tuple[str, ...] | None = None) -> str:
    """Keep a fresh key, and return it."""
    text, key_id = new_key()
    await store.add_key(Key(id=key_id, name=name, role=role, digest=digest(text), queues=queues))
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
