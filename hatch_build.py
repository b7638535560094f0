"""Fetches what the pages are made of and is not ours, when Holdfast is built or installed from its source.

Nothing of others is kept in the repository: each package is pinned here by name, version and the SHA-512 that npm publishes for
it, fetched from the registry, checked, and what is needed of it put into a folder `static/vendor` together with its licence.
Where the files are there already, as in a source distribution, nothing is fetched.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VENDOR = Path("src/holdfast/server/ui/static/vendor")
MEDIA = Path("src/holdfast_media/web/static/vendor")
REGISTRY = "https://registry.npmjs.org"
TIMEOUT = 60.0
TRIES = 3


class Package(NamedTuple):
    """A package of npm, and what is taken out of it: files that are joined into one, in order."""

    name: str
    version: str
    integrity: str
    files: dict[str, tuple[str, ...]]
    """By the name it is kept under: the files of the package that it is made of."""
    folder: Path = VENDOR


PACKAGES = (
    Package(
        name="htmx.org",
        version="4.0.1",
        integrity="sha512-oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPluB2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg==",
        files={
            # one file: as two, the extension sometimes comes too late, and the stream is never opened
            "htmx.js": ("dist/htmx.min.js", "dist/ext/hx-sse.min.js"),
            "htmx.LICENSE.txt": ("LICENSE",),
        },
    ),
    Package(
        name="uplot",
        version="1.6.32",
        integrity="sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        files={
            "uplot.js": ("dist/uPlot.iife.min.js",),
            "uplot.css": ("dist/uPlot.min.css",),
            "uplot.LICENSE.txt": ("LICENSE",),
        },
    ),
    Package(
        name="hls.js",
        version="1.7.4",
        integrity="sha512-3GlxGdPvT2YHvQYOt+yOzT/DEior/qJVNIylHA77kgeoBTdQQqi70GwefNEUmHQeNGyjC8U62+bruqW/Tpm+tg==",
        files={
            "hls.js": ("dist/hls.min.js",),  # the light one cannot play sound that is a playlist of its own
            "hls.LICENSE.txt": ("LICENSE",),
        },
        folder=MEDIA,
    ),
)
KEPT = {
    "hls.LICENSE.txt": "bddf7c26f1f7ea4515ab67b1606c1563d1a761aaf68af1f46cdc515b275eb707",
    "hls.js": "a34c7af28252f8cdb13dc4189ba5790920386780c9cbdccfb028f168984d02e4",
    "htmx.LICENSE.txt": "096ff3c9ceea6df46491b0d04e4a9dca7b4be87b1b7f0b7c08a8aea08a0ffb40",
    "htmx.js": "f660858da3f51d614f35fa8da506f984a1ae8435dd340b594544d7449fcae3b5",
    "uplot.LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.js": "9a6a7d50b066b6c083ddf74930c8e3908fdf5b7d1a660969dd15e0360918006d",
}
"""The SHA-256 of each file that is kept."""


class CustomBuildHook(BuildHookInterface[Any]):
    """Runs before a wheel, a source distribution or an editable install is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Have the files in place."""
        del version, build_data
        fetch(Path(self.root))


def fetch(root: Path) -> None:
    """Put the files of all packages in place, below the folder of the project. Raises `RuntimeError`, saying what to do."""
    for package in PACKAGES:
        folder = root / package.folder
        if all(_digest(folder / name) == KEPT[name] for name in package.files):
            continue
        members = _members(_checked(package, _download(package)))
        folder.mkdir(parents=True, exist_ok=True)
        for name, parts in package.files.items():
            content = b"\n".join(_without_map(members[part]) for part in parts)
            if (found := hashlib.sha256(content).hexdigest()) != KEPT[name]:
                raise RuntimeError(f"{name} of {package.name} {package.version} is not what was expected: SHA-256 {found}")
            partly = folder / f".{name}.{os.getpid()}"
            partly.write_bytes(content)
            partly.replace(folder / name)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"


def _download(package: Package) -> bytes:
    registry = (os.environ.get("NPM_CONFIG_REGISTRY") or REGISTRY).rstrip("/")
    url = f"{registry}/{package.name}/-/{package.name.rpartition('/')[2]}-{package.version}.tgz"
    failure: Exception | None = None
    for _ in range(TRIES):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:  # noqa: S310  what comes is checked against its pin
                content: bytes = answer.read()
                return content
        except OSError as error:
            failure = error
    raise RuntimeError(
        f"the dashboard needs {package.name} {package.version}, and {url} could not be fetched: {failure}. "
        "Look whether this machine reaches the registry of npm, or name one that it reaches: NPM_CONFIG_REGISTRY=https://…; "
        "a wheel or a source distribution of Holdfast has the files in it and needs neither"
    ) from failure


def _checked(package: Package, content: bytes) -> bytes:
    found = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if found != package.integrity:
        raise RuntimeError(
            f"{package.name} {package.version} from the registry is not the package that was pinned: its integrity is {found}, "
            f"expected {package.integrity}. Do not install it; look at what NPM_CONFIG_REGISTRY leads to"
        )
    return content


def _members(content: bytes) -> dict[str, bytes]:
    """Return the files of a package, by their path below its first folder."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        return {
            member.name.partition("/")[2]: part.read()
            for member in archive.getmembers()
            if (part := archive.extractfile(member)) is not None
        }


def _without_map(content: bytes) -> bytes:
    """Return a script without the line that points to its source map, which is not kept."""
    return b"\n".join(line for line in content.splitlines() if not line.startswith(b"//# sourceMappingURL="))
