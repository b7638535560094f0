"""What is shipped in `deploy/`, read as those read it who run it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holdfast.config import load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKER = DEPLOY / "docker"
KUBERNETES = DEPLOY / "kubernetes"
SYSTEMD = DEPLOY / "systemd"
LAST_WORDS = 15.0
"""Seconds that a worker may take beyond its shutdown timeout."""


@dataclass(frozen=True, slots=True)
class Command:
    """A process of Holdfast, as a file has it started."""

    arguments: list[str]
    """After `holdfast`."""
    environment: dict[str, str]
    """What is filled in from elsewhere, as by a Secret, is empty."""

    @property
    def drain(self) -> float:
        """Seconds that it may take to stop."""
        known = {name: value for name, value in self.environment.items() if value}
        return load({}, folder=DEPLOY, environment=known).settings.shutdown_timeout + LAST_WORDS


# -- compose ---------------------------------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return found


def of_compose(service: str) -> Command:
    said = compose()["services"][service]
    return Command(said["command"], {name: "" if "${" in value else value for name, value in said["environment"].items()})


# -- Kubernetes ------------------------------------------------------------------------------------------------------------


def objects() -> list[dict[str, Any]]:
    return [one for path in sorted(KUBERNETES.glob("*.yaml")) for one in yaml.safe_load_all(path.read_text())]


def kind(name: str, of: str = "") -> dict[str, Any]:
    """Return the one object of this kind, and of this name where there are several."""
    (found,) = (one for one in objects() if one["kind"] == name and of in ("", one["metadata"]["name"]))
    return found


def pods() -> dict[str, dict[str, Any]]:
    """Return the spec of every pod, by what it is in."""
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in objects() if "template" in one.get("spec", {})}


def of_kubernetes(pod: str) -> Command:
    (container,) = pods()[pod]["containers"]
    return Command(container["args"], {one["name"]: one.get("value", "") for one in container["env"]})


# -- systemd ---------------------------------------------------------------------------------------------------------------

SPECIFIERS = {"%i": "1", "%H": "a-host"}


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """Return a unit: sections, and the values of each setting in them."""
    found: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in (SYSTEMD / name).read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            setting, _, value = line.partition("=")
            section.setdefault(setting, []).append(value)
    return found


def of_systemd(name: str) -> Command:
    service = unit(name)["Service"]
    shipped = [Path(name).name for name in service["EnvironmentFile"] if not name.startswith("-")]
    lines = [
        *(line for name in shipped for line in (SYSTEMD / name).read_text().splitlines()),
        *(one for line in service["Environment"] for one in line.split()),
    ]
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    (start,) = service["ExecStart"]
    for specifier, value in SPECIFIERS.items():
        start = start.replace(specifier, value)
    program, *arguments = shlex.split(start)
    assert program.endswith("/bin/holdfast")
    return Command(arguments, environment)


def seconds(text: str) -> float:
    """Return a duration as compose and systemd write it."""
    number, unit_of = re.fullmatch(r"(\d+)(s|m|)", text).groups()  # type: ignore[union-attr]
    return float(number) * (60 if unit_of == "m" else 1)
