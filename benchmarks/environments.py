"""One virtual environment per peer, with exactly what peers.toml pins, made when it is first needed.

They lie in .bench/ beside the project, or where HOLDFAST_BENCH_HOME says, and are made anew when their requirements change.
A peer runs on the Python that Holdfast runs on. One that needs a newer gets the oldest that will do, from PATH or from pyenv;
HOLDFAST_BENCH_PYTHON312 names one for those that need 3.12 or newer (311, 313, … likewise).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parent.parent
PEERS_FILE = Path(__file__).parent / "peers.toml"
HOME_VARIABLE = "HOLDFAST_BENCH_HOME"
INSTALL_SECONDS = 900.0
TAIL_LINES = 8
NEWER = 5
"""How many versions of Python are looked for, from the oldest that a peer runs on."""


class NoEnvironment(Exception):
    """An environment could not be made; the message says why."""


class Peer(Struct, frozen=True):
    """What peers.toml says about a peer; the file says what each means."""

    requirements: list[str]
    python: str
    """The oldest that it runs on."""
    store: str
    program: str
    jobs: int
    setting: str
    burn_processes: int = 2
    """Worker processes for jobs that compute: 1 for a peer that starts processes of its own for them."""
    works: frozenset[str] | None = None
    """What it is asked for; None: everything."""


def peers() -> dict[str, Peer]:
    """Return all peers by name, in the order of the file."""
    return msgspec.convert(tomllib.loads(PEERS_FILE.read_text()), dict[str, Peer])


def environment(name: str, peer: Peer, tell: Callable[[str], None]) -> Path:
    """Return the interpreter of a peer's environment, which is made first where it is missing or outdated.

    `tell` hears of what takes long. Raises `NoEnvironment`.
    """
    python = _find_python(peer.python)
    wanted = "\n".join([_version(python), *peer.requirements])
    folder = home() / f"{name}-{hashlib.sha256(wanted.encode()).hexdigest()[:10]}"
    interpreter = folder / "bin" / "python"
    if (folder / "complete").exists():
        return interpreter
    tell(f"installing {name} ({', '.join(peer.requirements)}) into {folder}")
    for outdated in home().glob(f"{name}-*"):
        shutil.rmtree(outdated)
    _run([python, "-m", "venv", str(folder)])
    _run([str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements])
    (folder / "complete").write_text(wanted)
    return interpreter


def versions(interpreter: Path, peer: Peer) -> str:
    """Return what the environment has of the peer's requirements: "1.6.0 (Python 3.11.7, asyncpg 0.32.0, uvloop 0.23.0)"."""
    names = [requirement.partition("==")[0].partition("[")[0] for requirement in peer.requirements]
    code = "import sys, platform, importlib.metadata as m; print(platform.python_version(), *map(m.version, sys.argv[1:]))"
    python, own, *others = _run([str(interpreter), "-c", code, *names]).split()
    beside = [f"Python {python}", *(f"{name} {version}" for name, version in zip(names[1:], others, strict=True))]
    return f"{own} ({', '.join(beside)})"


def home() -> Path:
    """Return the folder of all environments."""
    return Path(os.environ.get(HOME_VARIABLE) or ROOT / ".bench")


def _find_python(oldest: str) -> str:
    """Return a Python of that version or newer: a name on PATH proves nothing, version managers leave some that do not run."""
    for candidate in _candidates(oldest):
        if _order(_version(candidate)) >= _order(oldest):
            return candidate
    raise NoEnvironment(
        f"Python {oldest} or newer not found on PATH. Install it, or name it: {_variable(oldest)}=/path/to/python{oldest}"
    )


def _candidates(oldest: str) -> Iterator[str]:
    if given := os.environ.get(_variable(oldest)):
        yield given
    yield sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    major, minor = _order(oldest)
    for version in (f"{major}.{newer}" for newer in range(minor, minor + NEWER)):
        yield f"python{version}"
        yield from (str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}")))


def _variable(oldest: str) -> str:
    return f"HOLDFAST_BENCH_PYTHON{oldest.replace('.', '')}"


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".") if number)


def _version(python: str) -> str:
    """Return its version as 3.12, nothing when it does not run."""
    try:
        return _run([python, "-c", "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"]).strip()
    except NoEnvironment:
        return ""


def _run(command: Sequence[str]) -> str:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEnvironment(str(error)) from error
    if answer.returncode:
        tail = "\n".join((answer.stderr or answer.stdout).rstrip().splitlines()[-TAIL_LINES:])
        raise NoEnvironment(f"{' '.join(command[:4])} … failed with exit code {answer.returncode}:\n{tail}")
    return answer.stdout
