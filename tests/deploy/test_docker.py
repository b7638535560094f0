"""The image is small, nobody's, and stops when it is told to; the compose file is one by the specification."""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sys
import sysconfig
from importlib import resources
from pathlib import Path
from shutil import copy, copytree, ignore_patterns
from zipfile import ZipFile

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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the build copies, in a folder of its own, with the wheel made of it in `made`."""
    folder = tmp_path_factory.mktemp("built")
    for source in copied():
        if source == "src":
            copytree(ROOT / source, folder / source, ignore=ignore_patterns("__pycache__"))
        elif "/" not in source:
            copy(ROOT / source, folder)
    copy(ROOT / ".gitignore", folder)  # what it names is left out of the wheels that are published
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", "made"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def packed(built: Path) -> set[str]:
    """The files of the packages in the wheel."""
    with ZipFile(one_wheel(built)) as wheel:
        return {name for name in wheel.namelist() if ".dist-info/" not in name}


def one_wheel(built: Path) -> Path:
    (wheel,) = (built / "made").glob("holdfast-*.whl")
    return wheel


def test_what_the_build_copies_is_enough_to_build_the_package(built: Path) -> None:
    assert one_wheel(built).stat().st_size > 0


def test_the_wheel_has_every_file_of_the_packages_and_no_other(built: Path, packed: set[str]) -> None:
    source = built / "src"
    assert packed == {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("pattern", "least"),
    [
        ("holdfast/py.typed", 1),
        ("holdfast_media/py.typed", 1),
        ("holdfast/store/postgres/sql/*.sql", 40),
        ("holdfast/store/postgres/migrations/*.sql", 1),
        ("holdfast/store/sqlite/sql/*.sql", 40),
        ("holdfast/store/sqlite/migrations/*.sql", 1),
        ("holdfast/server/ui/templates/*.html", 10),
        ("holdfast/server/ui/static/*.css", 1),
        ("holdfast/server/ui/static/vendor/htmx.js", 1),
        ("holdfast/server/ui/static/vendor/*.LICENSE.txt", 2),
        ("holdfast_media/web/templates/*.html", 3),
        ("holdfast_media/web/static/*.js", 1),
        ("holdfast_media/web/static/vendor/*.js", 1),
        ("holdfast/load/catalog.toml", 1),
        ("holdfast_media/ladder/default.toml", 1),
        ("holdfast_media/demo/ladder.toml", 1),
    ],
)
def test_the_wheel_has_what_is_read_when_it_runs(packed: set[str], pattern: str, least: int) -> None:
    assert len(fnmatch.filter(packed, pattern)) >= least


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


def test_no_service_without_capabilities_starts_as_root() -> None:
    """An image that starts as root changes to its user by itself, and may not where it has lost all capabilities."""
    for name, said in compose()["services"].items():
        if said.get("cap_drop") == ["ALL"] and "build" not in said:
            assert said["user"] not in {"root", "0"}, name


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
