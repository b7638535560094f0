"""A page of the guides followed to the letter: its files and commands, in an empty folder."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import httpx

from tests.integrations.installing import CLONE, ROOT, asked_for, hide, install_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PORT = "8000"
"""What the pages say; a free one is used instead."""
WAIT = 60.0

_BLOCK = re.compile(r"^```(python|sh|text)(?: ([^\n]*))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_KEEPS_RUNNING = "keeps running"
_SERVES = re.compile(rf"\b{PORT}\b")


@dataclass
class Page:
    """A page, followed in a folder; `variables` are set for everything that is started.

    What the page does not install is hidden: whoever follows it in an environment of his own has no more.
    """

    name: str
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    postgres: bool = False
    """Whether what the page says for PostgreSQL is installed too."""
    own: Path | None = None
    """The environment of its own to which the page's lines of pip are done; `None`: this one, with the rest of it hidden."""
    port: int = 0
    seen: dict[str, str] = field(default_factory=dict)
    """What the commands of the page printed."""

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Do what the page says, and keep what it starts running meanwhile."""
        self.port = free_port()
        printed: list[str] = []
        text = (ROOT / "docs/guides" / self.name).read_text()
        self._install(install_lines(text) if self.postgres else install_lines(text)[:1])
        with ExitStack() as stack:
            for kind, info, body in _BLOCK.findall(text):
                if kind == "python":
                    self._write(info, body)
                elif kind == "text":
                    expected = body.strip().splitlines()
                    assert printed[-len(expected) :] == expected, printed
                elif info == _KEEPS_RUNNING:
                    stack.enter_context(self._kept_running(body.strip()))
                else:
                    printed += [self._done(command) for command in body.strip().splitlines() if not command.startswith("pip ")]
            yield

    def _install(self, lines: Sequence[str]) -> None:
        if self.own is None:
            wanted = [one for line in lines for one in asked_for(line)]
            self.variables = {**self.variables, **hide(self.folder.parent / "hidden", wanted)}
            return
        subprocess.run([sys.executable, "-m", "venv", self.own], check=True)
        (self.folder / CLONE).symlink_to(ROOT)
        for line in lines:
            self.run(f"{line} --quiet --disable-pip-version-check")

    def _done(self, command: str) -> str:
        return curl(self._here(command)) if command.startswith("curl ") else self.run(command)

    def run(self, command: str, *, code: int = 0) -> str:
        """Run a command to its end and return what it printed."""
        done = subprocess.run(
            self._here(command),
            shell=True,
            cwd=self.folder,
            env=self.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
        self.seen[command] = done.stdout + done.stderr
        return done.stdout.strip()

    @contextmanager
    def _kept_running(self, command: str) -> Iterator[None]:
        log = self.folder / f"log-{len(list(self.folder.glob('log-*')))}"
        with log.open("w") as output, started(self._here(command), self.folder, self.environment, output):
            if _SERVES.search(command):
                wait_for_port(self.port, log)
            try:
                yield
            except AssertionError as error:
                error.add_note(f"{command}\n{log.read_text()}")
                raise

    def _here(self, command: str) -> str:
        return command.replace(PORT, str(self.port))

    def _write(self, info: str, body: str) -> None:
        if info.startswith("examples/"):
            example, _, path = info.removeprefix("examples/").partition("/")
            assert body == (ROOT / "examples" / example / path).read_text(), f"{self.name} shows another {info}"
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(body)
        else:
            with (self.folder / info).open("a") as file:
                file.write(f"\n{body}")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a reader who has installed Holdfast, and nothing of this run's."""
        return {**clean_environment(Path(sys.executable).parent if self.own is None else self.own / "bin"), **self.variables}


def curl(command: str) -> str:
    """Ask as a line of curl does, of which the machine may have none, and return what that would print."""
    words = iter(shlex.split(command)[1:])
    method, url, shown = "GET", "", "%{body}"
    for word in words:
        match word:
            case "-s":
                pass
            case "-X":
                method = next(words)
            case "-o":
                assert next(words) == "/dev/null"
                shown = ""
            case "-w":
                shown += next(words)
            case _:
                assert not word.startswith("-"), f"{word} of {command} is not known here"
                assert not url
                url = word
    answer = httpx.request(method, f"http://{url}", timeout=WAIT)
    return shown.replace("%{body}", answer.text).replace("%{http_code}", str(answer.status_code)).strip()


def clean_environment(programs: Path = Path(sys.executable).parent) -> dict[str, str]:
    """Return the environment without what a run of the tests may have set; programs are looked for in a folder first."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "DJANGO_", "FLASK_", "PG"))}
    return own | {"PATH": f"{programs}:{own['PATH']}", "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}


@contextmanager
def started(command: str, folder: Path, environment: Mapping[str, str], output: IO[Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a group of its own, and end that group afterwards."""
    process = subprocess.Popen(
        f"exec {command}",
        shell=True,
        cwd=folder,
        env=environment,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for_port(port: int, log: Path) -> None:
    """Wait until somebody serves there."""
    deadline = time.monotonic() + WAIT
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1.0):
            return
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def free_port() -> int:
    """Return a port that nobody serves on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
