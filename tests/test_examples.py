"""Examples run, and the documentation shows their code and what they print."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from holdfast import Chain, Command, Group, Handle, Holdfast, Job, Retention, Retry, Task
from holdfast.config import Settings
from holdfast.store import port
from tests.support.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.postgres import PostgresServers

ROOT = Path(__file__).parents[1]
_FROM_INDEX = re.compile(r"pip install [^\n`#]*(?<![./\w-])holdfast(?![\w-]).*")
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SERVED = "jobs.py"
"""The one example that needs a worker in another process."""
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py") if path.name != SERVED)

HELD = {"Call", "JobTransaction", "BlockingTransaction", "Report", "Completion"}
NOT_HELD = {"Caller"}
"""What Holdfast's own parts ask an app for."""

_BLOCK = re.compile(r"^```(python|text) examples/(\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
_DIFFERS = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<id>"),
    (re.compile(r"\b\d+\.\d{3} s\b"), "<seconds>"),
    (re.compile(r"\bon \S+:\d+\b"), "on <worker>"),
)


def same_each_time(text: str) -> str:
    """Hide what differs from run to run: ids, durations, the names of workers, spaces at the end of lines."""
    for pattern, word in _DIFFERS:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.splitlines())


def blocks(kind: str, example: str) -> list[str]:
    """Return every block of the documentation that is marked with the name of an example."""
    found = [match for path in DOCS for match in _BLOCK.finditer(path.read_text())]
    return [match[3] for match in found if (match[1], match[2]) == (kind, example)]


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return own | {"PYTHONPATH": str(ROOT / "examples"), "PYTHONWARNINGS": "error", "NO_COLOR": "1"}


# takes longest, so it comes first
def test_the_start_in_the_readme_survives_the_death_of_its_worker(tmp_path: Path) -> None:
    worker = [sys.executable, "-m", "holdfast", "worker", "jobs:app"]
    (tmp_path / SERVED).write_text((ROOT / "examples" / SERVED).read_text())
    started = {"cwd": tmp_path, "env": environment(), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(worker, **started) as first,  # type: ignore[call-overload]
        subprocess.Popen([sys.executable, SERVED], **started) as producer,  # type: ignore[call-overload]
    ):
        wait_for_line(first.stderr, "3 of 10")  # so the checkpoint of the second is stored
        first.kill()
        with subprocess.Popen(worker, **started) as second:  # type: ignore[call-overload]
            printed, errors = producer.communicate(timeout=120)
            second.terminate()
            _, log = second.communicate(timeout=60)
    assert producer.returncode == 0, errors
    assert second.returncode == 0, log
    assert re.search(r"counted from [3-9] to 10 in attempt 2", printed)
    (shown,) = blocks("text", SERVED)
    # where it goes on depends on when it was killed
    assert re.sub(r"from \d+", "from <n>", printed) == re.sub(r"from \d+", "from <n>", shown)
    assert "its lease lapsed (requeued:stale" in log


def wait_for_line(stream: object, text: str, seconds: float = 60.0) -> None:
    """Read until a line holds the text."""
    deadline = time.monotonic() + seconds
    for line in stream:  # type: ignore[attr-defined]
        if text in line:
            return
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {text!r}"
    raise AssertionError(f"the worker ended before it wrote {text!r}")


@pytest.fixture(scope="module")
def examples(
    tmp_path_factory: pytest.TempPathFactory, postgres_servers: PostgresServers
) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """All examples, started at once: they spend most of their time waiting. Those that name a URL get a server for it."""

    def settings(name: str) -> dict[str, str]:
        text = (ROOT / "examples" / name).read_text()
        needed = {"HOLDFAST_URL": postgres_servers[18].create_database()} if "HOLDFAST_URL" in text else {}
        return needed | ({"HOLDFAST_REDIS_URL": redis.url} if "HOLDFAST_REDIS_URL" in text else {})

    redis = RedisServer("redis")
    redis.start()
    started = {
        name: subprocess.Popen(
            [sys.executable, ROOT / "examples" / name],
            cwd=tmp_path_factory.mktemp("example"),
            env=environment() | settings(name),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for name in EXAMPLES
    }
    yield started
    for process in started.values():
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with what it has started: one that hangs would leave that behind
        process.communicate()
    redis.stop()


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_ends_well_and_prints_what_the_documentation_shows(
    example: str, examples: dict[str, subprocess.Popen[str]]
) -> None:
    output, errors = examples[example].communicate(timeout=120)
    assert examples[example].returncode == 0, errors
    printed = f"\n{same_each_time(output)}\n"
    shown = blocks("text", example)
    assert shown, f"no page shows what {example} prints"
    for block in shown:
        assert f"\n{same_each_time(block)}\n" in printed


@pytest.mark.parametrize("example", [*EXAMPLES, SERVED])
def test_the_documentation_quotes_examples_letter_by_letter(example: str) -> None:
    source = (ROOT / "examples" / example).read_text()
    quoted = blocks("python", example)
    assert quoted, f"no page quotes {example}"
    for block in quoted:
        assert any(textwrap.indent(block, " " * depth) in source for depth in (0, 4, 8)), block


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for target, anchor in _LINK.findall(_FENCED.sub("", page.read_text())):
        if "://" in target:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{target} does not exist"
        if anchor and file.suffix == ".md":
            assert anchor.removeprefix("#") in headings(file), f"{target}{anchor} is no heading"


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_no_page_installs_what_is_called_holdfast_on_an_index() -> None:
    """That is somebody else's. What a message says where Holdfast is installed already adds to that, and so does its page."""
    pages = [ROOT / "CHANGELOG.md", *(page for page in DOCS if page != ROOT / "docs/reference/errors.md")]
    wrong = [f"{page.relative_to(ROOT)}: {line}" for page in pages for line in _FROM_INDEX.findall(page.read_text())]
    assert not wrong


def test_every_exported_name_is_in_the_reference() -> None:
    api = (ROOT / "docs/reference/api.md").read_text() + (ROOT / "docs/reference/errors.md").read_text()
    assert [name for name in holdfast.__all__ if not re.search(rf"`{name}\b", api)] == []


@pytest.mark.parametrize("module", ["fastapi", "flask", "django", "encryption", "testing"])
def test_every_name_of_a_module_that_people_import_from_is_in_the_documentation(module: str) -> None:
    pages = "".join(page.read_text() for page in DOCS)
    assert [name for name in import_module(f"holdfast.{module}").__all__ if not re.search(rf"\b{name}\b", pages)] == []


def test_what_people_hold_can_be_named_in_annotations() -> None:
    """The types of the public methods of what people hold are public themselves."""
    public = set(holdfast.__all__)
    for kind in (Holdfast, Task, Handle, Chain, Group, Job):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and (given := method.__annotations__.get("return")) is not None:
                of_ours = {word for word in re.findall(r"[A-Z]\w+", str(given)) if hasattr(port, word) or word in HELD}
                assert of_ours <= public | NOT_HELD, f"{kind.__name__}.{name}"


@pytest.mark.parametrize(
    "thing",
    [
        Holdfast,
        Holdfast.task,
        Holdfast.queue,
        Holdfast.worker,
        Retry,
        Retention,
        Command,
        Job.progress,
        Job.checkpoint,
        Handle.logs,
    ],
    ids=lambda thing: str(thing.__qualname__),
)
def test_every_option_stands_in_the_reference_with_its_default(thing: Callable[..., object]) -> None:
    """A stale default misleads more than a missing one."""
    page = " ".join((ROOT / "docs/reference/api.md").read_text().split())
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY or parameter.default is inspect.Parameter.empty:
            continue
        plain = parameter.default is None or isinstance(parameter.default, (bool, int, float, str))
        shown = json.dumps(parameter.default) if isinstance(parameter.default, str) else str(parameter.default)
        wanted = f"{parameter.name}={shown.removesuffix('.0')}" if plain else f"{parameter.name}="
        assert wanted in page, f"{thing.__qualname__} has {wanted}"


def test_every_setting_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text()
    assert [name for name in Settings.__struct_fields__ if f"| `{name}` |" not in page] == []
