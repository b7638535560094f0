"""The units: systemd understands them, they stop workers gently, and keep them from what they need not."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.deploy.files import SYSTEMD, of_systemd, seconds, unit

if TYPE_CHECKING:
    from pathlib import Path

SERVER, WORKER, MANAGER = "holdfast-server.service", "holdfast-worker@.service", "holdfast-manager.service"
UNITS = (SERVER, WORKER, MANAGER)
SETTINGS = {
    "Unit": {"Description", "After", "Wants"},
    "Install": {"WantedBy"},
    "Service": {
        *("Type", "User", "Group", "WorkingDirectory", "EnvironmentFile", "Environment", "ExecStart", "StateDirectory"),
        *("Restart", "RestartSec", "KillMode", "KillSignal", "TimeoutStopSec", "OOMPolicy", "UMask"),
        *("NoNewPrivileges", "CapabilityBoundingSet", "AmbientCapabilities", "ProtectSystem", "ProtectHome", "PrivateTmp"),
        *("PrivateDevices", "ProtectClock", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectProc"),
        *("ProtectKernelTunables", "ProtectControlGroups", "RestrictAddressFamilies", "RestrictNamespaces", "RemoveIPC"),
        *("RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "SystemCallArchitectures", "SystemCallFilter"),
        "SystemCallErrorNumber",
    },
}
"""As systemd.unit(5), systemd.service(5) and systemd.exec(5) have them, as far as the units use them."""


@pytest.mark.parametrize("name", UNITS)
def test_every_setting_is_one_that_systemd_knows(name: str) -> None:
    for section, settings in unit(name).items():
        assert set(settings) <= SETTINGS[section]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here; the settings are checked by name")
def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    for name in UNITS:
        text = (SYSTEMD / name).read_text()
        # what is looked for on this machine: the program and its folder
        text = text.replace("/srv/holdfast/.venv/bin/holdfast", "/bin/true").replace("=/srv/holdfast", f"={tmp_path}")
        (tmp_path / name).write_text(text)
    units = [str(tmp_path / name.replace("@", "@1")) for name in UNITS]
    (tmp_path / WORKER.replace("@", "@1")).symlink_to(tmp_path / WORKER)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "holdfast" in line]
    assert (ours, done.returncode) == ([], 0)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_as_nobody_special_and_starts_again_whatever_happens(name: str) -> None:
    service = unit(name)["Service"]
    assert service["User"] == ["holdfast"]
    assert service["Restart"] == ["always"]
    assert service["KillSignal"] == ["SIGTERM"]
    assert service["Type"] == ["exec"]
    assert service["CapabilityBoundingSet"] == [""]
    for setting in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID", "ProtectHome"):
        assert service[setting] == ["yes"]


def test_every_unit_is_checked_here() -> None:
    assert {path.name for path in SYSTEMD.glob("*.service")} == set(UNITS)


@pytest.mark.parametrize("name", [WORKER, MANAGER])
def test_a_worker_has_longer_to_stop_than_it_takes_and_its_children_are_left_to_it(name: str) -> None:
    service = unit(name)["Service"]
    assert seconds(service["TimeoutStopSec"][0]) > of_systemd(name).drain
    assert service["KillMode"] == ["mixed"]


def test_all_units_forbid_the_same() -> None:
    def forbidden(name: str) -> dict[str, list[str]]:
        found = unit(name)["Service"]
        own = {"Environment", "EnvironmentFile", "ExecStart", "KillMode", "OOMPolicy", "StateDirectory", "TimeoutStopSec"}
        return {setting: values for setting, values in found.items() if setting not in own}

    assert forbidden(SERVER) == forbidden(WORKER) == forbidden(MANAGER)
