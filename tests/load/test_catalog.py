"""A catalog is read whole, or refused with the entry and the field that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.errors import BadSetting
from holdfast.load.catalog import Fixed, HeavyTail, Kind, Uniform, parse, read

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
[kinds.small]
duration = 0.5

[kinds.large]
about = "everything said"
duration = { median = "1s", p99 = "1m", most = "2m" }
outcomes = { fail = 1, cancel = 2 }
retryable = false
attempts = 5
rest = "250ms"
steps = 10
memory = "1.5MB"
cpu = 0.25
queue = "media"
priority = "high"
weight = 0.5

[kinds.middle]
duration = { from = "1ms", to = "2ms" }
memory = 1000
priority = 0
"""

BAD = {
    "": "has no kinds. Write one",
    "kinds = 1": "has no kinds",
    "[kinds]": "has no kinds",
    "[kind.a]\nduration = 1": "'kind' means nothing here: entries are tables named [kinds.NAME]",
    "[kinds.a]\nduration = ": "is no valid TOML: Invalid value (at end of document)",
    "[kinds]\na = 1": "kinds.a must be a table, not 1",
    '[kinds."A b"]\nduration = 1': "kinds.A b: a name is of a-z, 0-9, - and _",
    "[kinds.a]\nweight = 1": "kinds.a.duration is missing: write",
    "[kinds.a]\nduration = 1\nwieght = 2": "kinds.a.wieght: there is no such field; do you mean 'weight'?",
    "[kinds.a]\nduration = 1\ncolour = 2": "kinds.a.colour: there is no such field; there are about, duration",
    '[kinds.a]\nduration = "soon"': "kinds.a.duration: 'soon' is no duration",
    "[kinds.a]\nduration = true": "kinds.a.duration: True is no duration",
    "[kinds.a]\nduration = -1": "kinds.a.duration: -1 is no duration",
    "[kinds.a]\nduration = nan": "kinds.a.duration: nan is no duration",
    '[kinds.a]\nduration = "2d"': "kinds.a.duration: '2d' is longer than a day",
    '[kinds.a]\nduration = { from = "2s", to = "1s" }': "kinds.a.duration: from (2s) must not be more than to (1s)",
    '[kinds.a]\nduration = { from = "2s" }': "kinds.a.duration: { from } is none of { from, to }",
    '[kinds.a]\nduration = { from = "x", to = "1s" }': "kinds.a.duration: from: 'x' is no duration",
    '[kinds.a]\nduration = { median = "2s", p99 = "1s" }': "kinds.a.duration: must be 0 < median <= p99 <= most",
    "[kinds.a]\nduration = { median = 0, p99 = 1 }": "kinds.a.duration: must be 0 < median <= p99 <= most",
    "[kinds.a]\nduration = 1\noutcomes = 1": "kinds.a.outcomes: must be a table of shares",
    "[kinds.a]\nduration = 1\noutcomes = {}": "kinds.a.outcomes: must be a table of shares",
    "[kinds.a]\nduration = 1\noutcomes = { won = 1 }": "kinds.a.outcomes: 'won' is none of success, fail, cancel",
    "[kinds.a]\nduration = 1\noutcomes = { fail = -1 }": "kinds.a.outcomes: must be a number from 0",
    "[kinds.a]\nduration = 1\noutcomes = { fail = 0 }": "kinds.a.outcomes: the shares must not all be 0",
    "[kinds.a]\nduration = 1\nretryable = 1": "kinds.a.retryable: must be true or false, not 1",
    "[kinds.a]\nduration = 1\nattempts = 0": "kinds.a.attempts: must be a whole number from 1 to 100, not 0",
    "[kinds.a]\nduration = 1\nsteps = 1.5": "kinds.a.steps: must be a whole number from 0 to 1000, not 1.5",
    '[kinds.a]\nduration = 1\nmemory = "much"': "kinds.a.memory: 'much' is no size: use a number of bytes, or 512KB",
    '[kinds.a]\nduration = 1\nmemory = "5GB"': "kinds.a.memory: '5GB' is more than 4GB",
    "[kinds.a]\nduration = 1\nmemory = -1": "kinds.a.memory: -1 is no size",
    "[kinds.a]\nduration = 1\ncpu = 2": "kinds.a.cpu: must be a number from 0 to 1, not 2",
    '[kinds.a]\nduration = 1\nqueue = ""': "kinds.a.queue: is no name of a queue: must not be empty",
    '[kinds.a]\nduration = 1\npriority = "top"': "'top' is none of low, normal, high",
    "[kinds.a]\nduration = 1\npriority = 10": "kinds.a.priority: must be a whole number from 0 to 9, not 10",
    "[kinds.a]\nduration = 1\nweight = inf": "kinds.a.weight: must be a number from 0",
    "[kinds.a]\nduration = 1\nabout = 1": "kinds.a.about: must be a text, not 1",
    "[kinds.a]\nduration = 1\nweight = 0": "every kind has weight 0",
}


def test_every_field_is_read() -> None:
    assert dict(parse(WHOLE).kinds) == {
        "small": Kind(name="small", duration=Fixed(500_000)),
        "large": Kind(
            name="large",
            about="everything said",
            duration=HeavyTail(1_000_000, 60_000_000, 120_000_000),
            success=0.0,
            fail=1.0,
            cancel=2.0,
            retryable=False,
            attempts=5,
            rest=0.25,
            steps=10,
            memory=1_572_864,
            cpu=0.25,
            queue="media",
            priority=8,
            weight=0.5,
        ),
        "middle": Kind(name="middle", duration=Uniform(1000, 2000), memory=1000, priority=0),
    }


@pytest.mark.parametrize("text", BAD)
def test_a_mistake_is_told_with_its_entry_and_field(text: str) -> None:
    with pytest.raises(BadSetting) as refused:
        parse(text, "kinds.toml")
    assert str(refused.value).startswith("kinds.toml")
    assert BAD[text] in str(refused.value)


def test_the_default_catalog_reaches_from_milliseconds_to_minutes() -> None:
    kinds = read(None).kinds.values()
    longest = sorted(kind.longest for kind in kinds)
    assert longest[0] <= 0.005
    assert longest[-1] >= 120.0
    for wanted in ("fail", "cancel", "cpu", "memory", "steps"):
        assert any(getattr(kind, wanted) for kind in kinds), wanted
    assert {kind.retryable for kind in kinds} == {True, False}
    assert {type(kind.duration) for kind in kinds} == {Fixed, Uniform, HeavyTail}
    assert len({kind.queue for kind in kinds}) > 1
    assert len({kind.priority for kind in kinds}) > 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"none\.toml cannot be read: No such file"):
        read(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadSetting, match=r"bytes\.toml is no UTF-8 text"):
        read(str(tmp_path / "bytes.toml"))
