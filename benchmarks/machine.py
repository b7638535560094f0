"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.results import Machine
from holdfast import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parent.parent


def this_machine(versions: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None) -> Machine:
    """Describe this machine; `versions` are those of servers and contestants, `settings` those of PostgreSQL.

    The version of Holdfast is always among them.
    """
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        processor=_processor(),
        kernel=f"{platform.system()} {platform.release().partition('-')[0]}",
        python=platform.python_version(),
        versions={"holdfast": __version__, **(versions or {})},
        settings=dict(settings or {}),
        file_system=_file_system(Path(tempfile.gettempdir()).resolve()),
    )


def commit() -> str:
    """Return the commit that is measured, with "+" where src/ or benchmarks/ differ from it; nothing where there is no git.

    The results themselves do not count: a run that writes one of them would mark the next.
    """
    if not (ROOT / ".git").exists():  # nor is the commit of a project that this one lies in ours
        return ""
    found = _git("rev-parse", "--short", "HEAD")
    changed = found and _git("status", "--porcelain", "--", "src", "benchmarks", ":!benchmarks/results")
    return f"{found}+" if changed else found


def _git(*arguments: str) -> str:
    try:
        answer = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return answer.stdout.strip()


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _file_system(folder: Path) -> str:
    """Return the kind of file system that a folder lies on: that of the longest mount point above it."""
    mounts = [line.split()[1:3] for line in _lines("/proc/mounts")]
    above = [(len(place), kind) for place, kind in mounts if folder.is_relative_to(place)]
    return max(above)[1] if above else "unknown"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
