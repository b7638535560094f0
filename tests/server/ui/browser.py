"""The browser of the tests: one that is installed, or one that is fetched once, and axe-core to look for barriers.

`HOLDFAST_TEST_CHROMIUM` names one; else `chromium` on the path is taken; else npm's @sparticuz/chromium is fetched, checked
against its pin and unpacked into a cache, with the libraries that a bare machine lacks.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import brotli  # type: ignore[import-untyped]

REGISTRY = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "holdfast-tests"
CHROMIUM = (
    "@sparticuz/chromium",
    "153.0.0",
    "sha512-jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA==",
)
AXE = (
    "axe-core",
    "4.14.0",
    "sha512-9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
)
ARGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-zygote"),
    *("--font-render-hinting=none", "--disable-background-networking", "--disable-component-update"),
)


class MissingBrowser(AssertionError):
    """No browser could be had; says how to have one."""


@dataclass(frozen=True)
class Chromium:
    """Where a browser is, and what its environment needs."""

    path: str
    variables: dict[str, str]


def chromium() -> Chromium:
    """Return a browser that can be started."""
    if given := os.environ.get("HOLDFAST_TEST_CHROMIUM"):
        return Chromium(given, {})
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if found := shutil.which(name):
            return Chromium(found, {})
    try:
        folder = _unpacked()
    except OSError as error:
        raise MissingBrowser(
            f"the tests of the dashboard need a browser, and none could be fetched: {error}.\n"
            "Install one: apt-get install -y chromium\n"
            "or name one: HOLDFAST_TEST_CHROMIUM=/path/to/chromium ./dev test tests/server/ui"
        ) from error
    libraries = ":".join(filter(None, [str(folder / "lib"), os.environ.get("LD_LIBRARY_PATH")]))
    return Chromium(str(folder / "chromium"), {"LD_LIBRARY_PATH": libraries})


def axe() -> str:
    """Return the script that looks for barriers."""
    name, version, integrity = AXE
    kept = CACHE / f"axe-{version}.js"
    if not kept.is_file():
        _keep(kept, _members(_fetched(name, version, integrity))["axe.min.js"])
    return kept.read_text(encoding="utf-8")


def _unpacked() -> Path:
    name, version, integrity = CHROMIUM
    folder = CACHE / f"chromium-{version}"
    if (folder / "chromium").is_file():
        return folder
    members = _members(_fetched(name, version, integrity))
    folder.mkdir(parents=True, exist_ok=True)
    for archive in ("al2023", "swiftshader"):
        with tarfile.open(fileobj=io.BytesIO(brotli.decompress(members[f"bin/{archive}.tar.br"]))) as packed:
            packed.extractall(folder, filter="data")
    _keep(folder / "chromium", brotli.decompress(members["bin/chromium.br"]), mode=0o755)
    return folder


def _fetched(name: str, version: str, integrity: str) -> bytes:
    url = f"{REGISTRY}/{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
    with urllib.request.urlopen(url, timeout=300) as answer:
        content: bytes = answer.read()
    found = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    assert found == integrity, f"{url} is not what was pinned: {found}"
    return content


def _members(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        return {
            member.name.partition("/")[2]: part.read()
            for member in archive.getmembers()
            if (part := archive.extractfile(member)) is not None
        }


def _keep(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all: several test processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partly = path.with_name(f".{path.name}.{os.getpid()}")
    partly.write_bytes(content)
    partly.chmod(mode)
    partly.replace(path)
