"""The image is small, nobody's, and stops when it is told to; the compose file is one by the specification."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from importlib import resources
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import jsonschema
import pytest

from tests.deploy.files import DOCKER, ROOT, compose, of_compose, seconds

DOCKERFILE = DOCKER / "Dockerfile"


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage, the FROM first."""
    found: list[list[tuple[str, str]]] = []
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            if word == "FROM":
                found.append([])
            found[-1].append((word, rest.strip()))
    return found


def test_a_linter_finds_nothing_in_the_dockerfile() -> None:
    hadolint = Path(sysconfig.get_path("scripts"), "hadolint")
    done = subprocess.run([hadolint, "--strict-labels", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_a_number_that_is_not_root_and_holds_nothing_that_only_builds() -> None:
    build, runtime, last = (dict(stage) for stage in stages())
    assert [one["FROM"].split()[0] for one in (build, runtime, last)] == [
        "python:3.13-slim-bookworm",
        "python:3.13-slim-bookworm",
        "holdfast",
    ]
    user, group = runtime["USER"].split(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000
    assert "USER" not in last
    assert "pip" not in runtime["RUN"]
    assert "pip" not in last.get("RUN", "")


def test_the_entry_point_has_no_shell_before_it() -> None:
    runtime = dict(stages()[1])
    assert json.loads(runtime["ENTRYPOINT"]) == ["holdfast"]
    assert json.loads(runtime["CMD"]) == ["--help"]
    assert runtime["STOPSIGNAL"] == "SIGTERM"


def copied() -> list[str]:
    """Return what is copied from the clone."""
    words = [rest.split() for stage in stages() for word, rest in stage if word == "COPY"]
    return [source for sources in words if not sources[0].startswith("--from") for source in sources[:-1]]


def test_what_is_copied_exists_and_only_that_is_sent_to_the_builder() -> None:
    assert [source for source in copied() if not (ROOT / source).exists()] == []
    lines = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == [
        "*",
        *[f"!{one}" for one in copied()],
        "**/__pycache__",
    ]


def test_what_the_build_copies_is_enough_to_build_the_package(tmp_path: Path) -> None:
    for source in copied():
        if source == "src":
            copytree(ROOT / source, tmp_path / source, ignore=ignore_patterns("__pycache__"))
        elif "/" not in source:
            copy(ROOT / source, tmp_path)
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "made"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "made").glob("holdfast-*.whl"))) == 1


# -- compose ---------------------------------------------------------------------------------------------------------------


def test_the_compose_file_is_one_by_the_specification() -> None:
    schema = resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    jsonschema.validate(compose(), json.loads(schema), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("service", ["migrate", "server", "worker"])
def test_a_container_of_ours_may_do_nothing_that_it_need_not(service: str) -> None:
    said = compose()["services"][service]
    assert said["read_only"]
    assert said["cap_drop"] == ["ALL"]
    assert said["security_opt"] == ["no-new-privileges:true"]
    assert said["init"]
    assert (DOCKER / said["build"]["context"] / said["build"]["dockerfile"]).resolve() == DOCKERFILE
    assert not {"privileged", "user", "cap_add"} & set(said)


def test_secrets_are_not_in_the_compose_file_and_their_absence_is_told() -> None:
    services = compose()["services"]
    for service, name in (("postgres", "POSTGRES_PASSWORD"), ("server", "HOLDFAST_ADMIN_SECRET"), ("worker", "HOLDFAST_URL")):
        assert ":?" in services[service]["environment"][name]


def test_every_service_waits_for_what_it_needs_and_the_optional_one_for_nobody() -> None:
    services = compose()["services"]
    for name, said in services.items():
        for other, how in said.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other], f"{name} would wait for {other} for ever"
            else:
                assert (how["condition"], services[other]["restart"]) == ("service_completed_successfully", "no")
        assert "redis" not in said.get("depends_on", {})
    assert services["redis"]["profiles"] == ["redis"]
    assert {volume.split(":")[0] for volume in services["postgres"]["volumes"]} <= set(compose()["volumes"])


def test_a_worker_has_longer_to_stop_than_it_takes() -> None:
    assert seconds(compose()["services"]["worker"]["stop_grace_period"]) > of_compose("worker").drain
