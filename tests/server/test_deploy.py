"""What is shipped for Prometheus and Grafana asks for figures that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Holdfast
from holdfast.core.figures import Figure
from holdfast.core.limits import LimitKind, LimitName, LimitRule
from holdfast.core.states import Event
from holdfast.runtime.exposing import COUNTED, LEVELS, MANAGED, MANAGER_COUNTED
from holdfast.server.metrics import exposition
from holdfast.store.port import Beat, Worker

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "holdfast.json"
RULES = ROOT / "deploy" / "prometheus" / "holdfast.rules.yml"
PAGE = ROOT / "docs" / "guides" / "watching.md"
NAME = re.compile(r"\bholdfast_\w+")
LABEL = re.compile(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)")


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> list[str]:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    chosen = [one["query"]["query"] for one in json.loads(DASHBOARD.read_text())["templating"]["list"][1:]]
    return [*asked, *chosen, *(rule["expr"] for rule in rules())]


async def told() -> list[Metric]:
    """Return what a server tells of a store with one job, one worker and one of everything that it counts."""
    with TemporaryDirectory() as folder:
        return await told_of(Holdfast(f"sqlite:///{folder}/jobs.db"))


async def told_of(app: Holdfast) -> list[Metric]:

    @app.task(name="t")
    async def work() -> None: ...

    store = app.client().store
    await app.client().open()
    await work.enqueue()
    await store.set_limit(LimitName(LimitKind.TASK, "t"), LimitRule(most=2, rate=1.0))
    await store.measure([Figure(queue="q", task="t", event=Event.SUCCEED, count=1)])
    await store.register(Worker(id=UUID(int=1), name="w"))
    counted = {f"{name}:one" if label else name: 1 for name, (label, _) in COUNTED.items()} | dict.fromkeys(LEVELS, 1)
    await store.beat(Beat(worker=UUID(int=1), counters=json.dumps(counted)))
    await store.register(Worker(id=UUID(int=2), name="m", slots=0))
    managed = {f"{name}:one" if label else name: 1 for name, (label, _) in MANAGER_COUNTED.items()} | dict.fromkeys(MANAGED, 1)
    await store.beat(Beat(worker=UUID(int=2), counters=json.dumps(managed)))
    text, _ = await exposition(store)
    await app.close()
    return list(text_string_to_metric_families(text.decode()))


async def known() -> set[str]:
    families = await told()
    names = {family.name for family in families} | {sample.name for family in families for sample in family.samples}
    return names | {f"{name}_total" for name in names}


async def test_every_figure_that_is_asked_for_exists() -> None:
    asked = {name for text in expressions() for name in NAME.findall(text)}
    assert asked
    assert asked <= await known()


async def test_the_page_tells_of_every_metric_what_the_server_tells() -> None:
    def row(family: Metric) -> str:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        (labels,) = {tuple(label for label in sample.labels if label != "le") for sample in family.samples}
        return f"| `{name}` | {family.type} | {', '.join(labels)} | {family.documentation} |"

    written = [line for line in PAGE.read_text().splitlines() if line.startswith("| `holdfast_")]
    assert written == [row(family) for family in await told()]


def test_every_label_that_is_asked_for_exists() -> None:
    asked = {name for text in expressions() for name in LABEL.findall(text)}
    assert asked <= {"queue", "task", "state", "event", "code"}


def test_every_event_that_is_asked_for_exists() -> None:
    for text in expressions():
        for pattern in re.findall(r'event=~"([^"]+)"', text):
            for one in pattern.split("|"):
                assert any(re.fullmatch(one, event) for event in Event), f"{one} is no event"


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_alert_says_what_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert {"summary", "description"} == set(rule["annotations"])


def test_panels_have_titles_of_their_own_and_do_not_overlap() -> None:
    places: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & places
        places |= cells
    assert len({panel["title"] for panel in panels()}) == len(panels())
