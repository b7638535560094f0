"""The parts of pages: crons in words, searches, texts, graphs, and what the build fetches."""

from __future__ import annotations

import html
import importlib.util
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.outcome import Error
from holdfast.core.states import State
from holdfast.errors import HoldfastError
from holdfast.server.ui import shown
from holdfast.server.ui.cronwords import explained
from holdfast.server.ui.graph import LETTERS, cut
from holdfast.server.ui.query import parse, token, with_token, words
from holdfast.system import SystemEnvironment

if TYPE_CHECKING:
    from types import ModuleType

NOW = SystemEnvironment().now()
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("cron", "text"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0 3 * * *", "at 03:00 every day"),
        ("0 3 * * mon-fri", "at 03:00 on Monday to Friday"),
        ("30 6,18 * * 0", "at 06:30 and 18:30 on Sunday"),
        ("5 * * * *", "in minute 5 of every hour"),
        ("*/5 9-17 * * 1-5", "every 5 minutes from 09:00 to 17:59 on Monday to Friday"),
        ("0 0 1 jan,jul *", "at 00:00 on day 1 of the month in January and July"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 * * 5L", "at 00:00 on the last Friday of the month"),
        ("0 12 * * tue#2", "at 12:00 on the second Tuesday of the month"),
        ("0 */2 * * *", "in minute 0 of every 2 hours"),
        ("not a cron", "not a cron"),
    ],
)
def test_a_cron_is_told_in_words(cron: str, text: str) -> None:
    assert explained(cron) == text


@given(st.lists(st.tuples(st.sampled_from(["task", "queue", "tag", "key"]), st.text(min_size=1)), max_size=4))
def test_tokens_are_read_back_as_they_were_written(pairs: list[tuple[str, str]]) -> None:
    text = " ".join(token(name, value) for name, value in pairs)
    assert words(text) == [f"{name}:{value}" for name, value in pairs]


def test_a_token_takes_the_place_of_those_of_its_name() -> None:
    assert with_token('task:"send mail" state:ready', "state", "failed") == 'task:"send mail" state:failed'
    assert with_token("tidy state:ready", "state", None) == "task:tidy"


def test_a_search_for_a_code_is_one_for_what_ended_badly() -> None:
    search = parse("error:TIMEOUT task:a", NOW)
    assert search.where.states == frozenset({State.FAILED, State.CANCELED})
    assert (search.error, search.where.task) == ("TIMEOUT", "a")
    assert parse("01890a5d..9a8057", NOW).job == "01890a5d..9a8057"


@given(st.text())
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    with suppress(HoldfastError):
        assert parse(text, NOW).text == text


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_json_is_shown_whole_and_as_text(value: object) -> None:
    text = json.dumps(value)
    laid = str(shown.pretty(text, ()))
    assert "<" not in laid.replace('<span class="json-', "").replace("</span>", "")


def test_json_that_is_none_or_too_deep_is_shown_as_it_is() -> None:
    assert shown.pretty("{no json <b>", ()) == html.escape("{no json <b>")
    deep = "[" * 100_000
    assert len(shown.pretty(deep, ())) >= 100_000
    assert shown.one_line(deep, ()) != ""


@pytest.mark.parametrize("depth", [64, 100, 101, 300, 500, 900, 5000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_json_of_any_depth_is_shown(opens: str, closes: str, depth: int) -> None:
    text = f"{opens * depth}1{closes * depth}"
    assert "1" in shown.pretty(text, ())
    assert shown.one_line(text, ()) != ""


def test_json_too_deep_to_be_laid_out_shows_no_field_that_must_not_be_seen() -> None:
    text = f'{"[" * 500}{{"iban": "DE1", "api_key": "k1"}}{"]" * 500}'
    assert "DE1" not in shown.pretty(text, ("iban",))
    assert "k1" not in shown.pretty(text, ())


def test_long_json_is_cut_without_secrets_and_not_laid_out() -> None:
    laid = shown.pretty(json.dumps({"api_key": "k1", "rows": list(range(50_000))}), ())
    assert "k1" not in laid
    assert "json-number" not in laid
    assert "cut: " in laid


def test_a_name_that_comes_twice_is_shown_twice() -> None:
    assert shown.one_line('{"a": 1, "a": 2.50}', ()) == '{"a": 1, "a": 2.50}'


def test_what_went_wrong_is_how_the_last_attempt_failed() -> None:
    error = Error("RETRIES_EXHAUSTED", "3 of 3 attempts failed; the last one with TIMEOUT: it took 5 s: too long")
    assert shown.cause(error) == ("TIMEOUT", "it took 5 s: too long")
    assert shown.cause(Error("OOPS", "no")) == ("OOPS", "no")


def test_the_place_of_an_error_is_where_it_was_raised() -> None:
    trace = 'Traceback:\n  File "/a/b/c.py", line 1, in f\n    g()\n  File "/a/b/d.py", line 22, in g\n    raise X'
    assert shown.top_frame(trace) == "b/d.py:22 in g"
    assert shown.top_frame("nothing") == ""


def test_ids_and_names_are_cut_to_what_fits() -> None:
    assert shown.short(UUID("01890a5d-ac96-774b-bcce-b302099a8057")) == "01890a5d..9a8057"
    assert len(cut("x" * 300)) == LETTERS


# -- what the build fetches ------------------------------------------------------------------------------------------------


@pytest.fixture
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_that_are_there_are_not_fetched_again(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1")
    build.fetch(ROOT)


def test_a_registry_that_cannot_be_reached_is_told_with_what_to_do(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://127.0.0.1:1")
    with pytest.raises(RuntimeError, match="NPM_CONFIG_REGISTRY=https"):
        build.fetch(tmp_path)


def test_a_package_that_is_not_the_pinned_one_is_refused(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build, "_download", lambda _: b"something else")
    with pytest.raises(RuntimeError, match="is not the package that was pinned"):
        build.fetch(tmp_path)
    assert not list(tmp_path.rglob("*.js"))


def test_a_field_that_must_not_be_seen_is_not_seen_in_args_that_are_too_long_to_be_read() -> None:
    args = json.dumps({"iban": "DE02120300000000202051", "rest": "x" * 10_000})
    assert shown.one_line(args, ["iban"]) == f"{len(args):,} characters, with fields that are not shown"
    assert "DE02" in shown.one_line(args, [])
    deep = '{"iban": "DE02120300000000202051", "rest": ' + "[" * 5_000 + "]" * 5_000 + "}"
    assert "DE02" not in shown.pretty(deep, ["iban"])
    assert "DE02" not in shown.pretty(args, ["iban"])
