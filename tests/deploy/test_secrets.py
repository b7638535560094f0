"""No secret stands in a file, so that none works which everybody knows; and each is given to those alone who use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from holdfast.config import load
from holdfast.errors import BadSetting
from tests.deploy.files import DEPLOY, SYSTEMD, Command, compose, of_compose, of_kubernetes, of_systemd, pods

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc")
FROM_ELSEWHERE = re.compile(r"\$\(openssl rand -hex \d+\)|\$\{\w+:\?[^}]*\}|…")
"""A fresh one, one whose absence is told, or what no password is."""
SERVERS_OWN = {"HOLDFAST_ADMIN_SECRET", "HOLDFAST_HOST", "HOLDFAST_PORT"}
EVERY = {
    "compose": ("server", of_compose, [name for name in compose()["services"] if name not in ("postgres", "redis")]),
    "kubernetes": ("holdfast-server", of_kubernetes, list(pods())),
    "systemd": ("holdfast-server.service", of_systemd, [path.name for path in SYSTEMD.glob("*.service")]),
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_no_file_has_a_password_or_a_secret(path: Path) -> None:
    text = FROM_ELSEWHERE.sub("", path.read_text())
    assert re.findall(r"\w+://[^\s/:@]*:[^\s/@]+@", text) == []
    assert re.findall(r"[A-Z_]*(?:SECRET|PASSWORD|KEY)[A-Z_]*(?:=|: )\S+", text) == []


@pytest.mark.parametrize("name", ["holdfast.env", "server.env"])
def test_an_environment_file_that_nobody_has_edited_is_refused(name: str) -> None:
    lines = (SYSTEMD / name).read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    with pytest.raises(BadSetting, match=r"HOLDFAST_URL|HOLDFAST_ADMIN_SECRET"):
        load({}, folder=DEPLOY, environment=environment)


@pytest.mark.parametrize("of", EVERY)
def test_only_the_server_is_given_what_is_the_servers(of: str) -> None:
    server: str
    command: Callable[[str], Command]
    server, command, everyone = EVERY[of]
    assert command(server).environment.keys() >= SERVERS_OWN
    assert {name for name in everyone if command(name).environment.keys() & SERVERS_OWN} == {server}
