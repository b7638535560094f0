"""Settings: three sources, one order, every value with its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from holdfast.config import duration, load, size
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Done


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('# ours\nurl = "sqlite:///file.db"\nconcurrency = 3\nqueues = ["a", "b"]\n')
    environment = {"HOLDFAST_CONCURRENCY": "4", "HOLDFAST_PREFETCH": "2", "OTHER": "x"}
    loaded = load({"prefetch": 7, "app": None}, folder=tmp_path, environment=environment)
    settings = loaded.settings
    assert (settings.url, settings.concurrency, settings.prefetch, settings.queues) == ("sqlite:///file.db", 4, 7, ("a", "b"))
    assert loaded.origins["url"] == "holdfast.toml:2"
    assert loaded.origins["concurrency"] == "HOLDFAST_CONCURRENCY"
    assert loaded.origins["prefetch"] == "flag"
    assert loaded.origins["app"] == "default"


def test_pyproject_is_read_where_there_is_no_file_of_our_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.other]\nurl = "no"\n\n[tool.holdfast]\nlog-format = "json"\n')
    loaded = load(folder=tmp_path, environment={})
    assert loaded.settings.log_format == "json"
    assert loaded.origins["log_format"] == "pyproject.toml:5"
    (tmp_path / "holdfast.toml").write_text("")
    assert load(folder=tmp_path, environment={}).settings.log_format == "console"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("concurency = 3", r"holdfast.toml:1: there is no setting 'concurency': do you mean 'concurrency'\?"),
        ("zzz = 3", "There are: url, redis_url, dispatch, app, concurrency"),
        ("concurrency = 0", "concurrency must be a whole number from 1"),
        ("concurrency = true", "concurrency must be a whole number from 1"),
        ("concurrency = 2.5", "concurrency must be a whole number from 1"),
        ("prefetch = -1", "prefetch must be a whole number from 0"),
        ("retry_share = 1.5", "retry_share must be from 0 to 1"),
        ("retry_share = true", "retry_share must be from 0 to 1"),
        ('retry_share = "nan"', "retry_share must be from 0 to 1"),
        ("poll = 0", "poll must be more than 0"),
        ('shutdown_timeout = "soon"', "shutdown_timeout must be a duration"),
        ('log_level = "loud"', "log_level must be one of debug, info"),
        ('log_format = "xml"', "log_format must be one of console, json"),
        ('retention_failed = "always"', "retention_failed must be a duration such as 7d, or never"),
        ("queues = []", "queues names no queue"),
        ('capabilities = ","', "capabilities names no capability"),
        ('health = "here"', r"health must be \[HOST:\]PORT"),
        ("health = 65536", "with a port from 0"),
        ("health = true", r"health must be \[HOST:\]PORT"),
        ('prefix = "jobs"', "prefix must be a path such as /jobs"),
        ('prefix = "/a/../b"', "prefix must be a path such as /jobs"),
        ('prefix = "/a//b"', "prefix must be a path such as /jobs"),
        ('prefix = "/a b"', "prefix must be a path such as /jobs"),
        ("prefix = 3", "prefix must be a path such as /jobs"),
        ('secure_cookies = "maybe"', "secure_cookies must be true or false, not 'maybe'"),
        ("trusted_proxies = 3", "trusted_proxies must be addresses or networks"),
        ('trusted_proxies = "proxy.example.com"', "trusted_proxies must be addresses or networks"),
        ("redact = 3", "redact must be names such as"),
        ('redact = ","', "redact names no field"),
        ("key_rate = 0", "key_rate must be a whole number from 1"),
        ("failure_rate = 0.5", "failure_rate must be a whole number from 1"),
        ('body_limit = "1MB"', "body_limit must be at least 2MiB"),
        ("page_timeout = 0", "page_timeout must be more than 0"),
        ('longest_poll = "long"', "longest_poll must be a duration"),
        ("url = 3", "url must be a text"),
        ("url = ", "holdfast.toml is not valid TOML"),
    ],
)
def test_a_bad_value_is_refused_where_it_stands(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(BadSetting, match=says):
        load(folder=tmp_path, environment={})


def test_a_variable_that_is_nearly_ours_is_refused_and_others_are_left_alone(tmp_path: Path) -> None:
    load(folder=tmp_path, environment={"HOLDFAST_TEST_POSTGRES_URLS": "x", "HOLDFAST_SOMETHING": "y"})
    with pytest.raises(BadSetting, match=r"HOLDFAST_CONCURENCY.*do you mean HOLDFAST_CONCURRENCY\?"):
        load(folder=tmp_path, environment={"HOLDFAST_CONCURENCY": "3"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), (1.5, 1.5), ("500ms", 0.5), ("5m", 300), ("1h30m", 5400), ("7d", 604_800), ("2W", 1_209_600)],
)
def test_durations_are_read(text: object, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "7 days", "1x", "1h30", True, "1e99"])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        duration(text)


def test_never_keeps_jobs_for_ever(tmp_path: Path) -> None:
    assert load({"retention_failed": "never"}, folder=tmp_path, environment={}).settings.retention_failed is None


@pytest.mark.parametrize(
    ("text", "prefix"), [("/jobs", "/jobs"), ("/jobs/", "/jobs"), ("/a/b-c.d", "/a/b-c.d"), ("/", ""), ("", "")]
)
def test_a_prefix_is_a_path_without_a_slash_at_its_end(tmp_path: Path, text: str, prefix: str) -> None:
    assert load({"prefix": text}, folder=tmp_path, environment={}).settings.prefix == prefix


def test_what_the_dashboard_is_told_comes_from_file_environment_and_flags(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('prefix = "/file"\nsecure_cookies = true\nredact = ["iban", "tax_id"]\n')
    settings = load(folder=tmp_path, environment={}).settings
    assert (settings.prefix, settings.secure_cookies, settings.redact) == ("/file", True, ("iban", "tax_id"))
    environment = {"HOLDFAST_PREFIX": "/env", "HOLDFAST_SECURE_COOKIES": "no", "HOLDFAST_REDACT": "iban, name"}
    settings = load(folder=tmp_path, environment=environment).settings
    assert (settings.prefix, settings.secure_cookies, settings.redact) == ("/env", False, ("iban", "name"))
    flags = {"prefix": "/flag", "secure_cookies": True, "redact": "card"}
    settings = load(flags, folder=tmp_path, environment=environment).settings
    assert (settings.prefix, settings.secure_cookies, settings.redact) == ("/flag", True, ("card",))


def test_how_much_a_server_takes_comes_from_file_environment_and_flags(tmp_path: Path) -> None:
    def said(flags: dict[str, object], environment: dict[str, str]) -> tuple[object, ...]:
        settings = load(flags, folder=tmp_path, environment=environment).settings
        return settings.key_rate, settings.failure_rate, settings.body_limit, settings.longest_poll, settings.page_timeout

    assert said({}, {}) == (1000, 10, 2 * 2**20, 30.0, 5.0)
    (tmp_path / "holdfast.toml").write_text(
        'key_rate = 50\nfailure_rate = 3\nbody_limit = "8MiB"\nlongest_poll = "10s"\npage_timeout = "2s"\n'
    )
    assert said({}, {}) == (50, 3, 8 * 2**20, 10.0, 2.0)
    assert said({}, {"HOLDFAST_KEY_RATE": "60", "HOLDFAST_LONGEST_POLL": "5s"}) == (60, 3, 8 * 2**20, 5.0, 2.0)
    assert said({"key_rate": 70, "body_limit": "9MB"}, {"HOLDFAST_KEY_RATE": "60"}) == (70, 3, 9_000_000, 10.0, 2.0)


def test_config_shows_each_value_with_its_origin(
    cli: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holdfast.toml").write_text("prefetch = 5\n")
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://me:hunter2@host/db")
    monkeypatch.setenv("HOLDFAST_KEY", "hf_hunter2")
    monkeypatch.setenv("HOLDFAST_ADMIN_SECRET", "hunter2hunter2hunter2")
    rows = {row[0]: row[1:] for row in cli("config").rows}
    assert rows["key"] == ["***", "HOLDFAST_KEY"]
    assert rows["admin_secret"] == ["***", "HOLDFAST_ADMIN_SECRET"]
    assert rows["prefetch"] == ["5", "holdfast.toml:1"]
    assert rows["url"] == ["postgresql://me:***@host/db", "HOLDFAST_URL"]
    assert rows["concurrency"] == ["20", "default"]
    assert rows["prefix"] == ["-", "default"]
    assert rows["secure_cookies"] == ["no", "default"]
    assert rows["redact"] == ["none", "default"]
    shown = cli("config", "--json").json
    assert shown["settings"]["url"] == {"value": "postgresql://me:***@host/db", "origin": "HOLDFAST_URL"}
    assert shown["file"] == "holdfast.toml"
    assert "hunter2" not in cli("config").out + cli("config", "--json").out


SEED = """
[workers]
default_count = 2
max_count = 8
poll_interval_ms = 250
lease_timeout_seconds = 30
scale_interval_ms = 1000
"""


def test_the_table_about_workers_is_read_in_its_own_units(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(SEED)
    loaded = load(folder=tmp_path, environment={"HOLDFAST_MAX_COUNT": "9"})
    settings = loaded.settings
    assert (settings.default_count, settings.max_count) == (2, 9)
    assert (settings.poll, settings.lease, settings.scale_interval) == (0.25, 30.0, 1.0)
    origins = [loaded.origins[name] for name in ("default_count", "max_count", "poll", "lease", "scale_interval")]
    assert origins == ["holdfast.toml:3", "HOLDFAST_MAX_COUNT", "holdfast.toml:5", "holdfast.toml:6", "holdfast.toml:7"]


def test_the_table_about_workers_may_stand_in_pyproject_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.holdfast]\n\n[tool.holdfast.workers]\nmax-memory = '1.5GB'\n")
    loaded = load(folder=tmp_path, environment={})
    assert (loaded.settings.max_memory, loaded.origins["max_memory"]) == (1_500_000_000, "pyproject.toml:4")


def test_the_config_command_shows_the_origin_of_each(cli: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(SEED)
    rows = {row[0]: row[1:] for row in cli("config").rows}
    assert rows["default_count"] == ["2", "holdfast.toml:3"]
    assert rows["poll"] == ["0.25s", "holdfast.toml:5"]
    assert rows["lease"] == ["30s", "holdfast.toml:6"]
    assert rows["scale_interval"] == ["1s", "holdfast.toml:7"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("workers = 3", "workers must be a table"),
        ("[workers]\nmax_cuont = 3", r"holdfast.toml:2: \[workers\] has no setting 'max_cuont': do you mean 'max_count'\?"),
        ("[workers]\nzzz = 3", "There are: poll_interval_ms"),
        ("[workers]\npoll_interval_ms = '1s'", "poll_interval_ms must be a number, not '1s'"),
        ("[workers]\nscale_interval_ms = 0", "holdfast.toml:2: scale_interval_ms = 0: scale_interval must be more than 0"),
        ("[workers]\nscale_interval_ms = 1", "scale_interval_ms = 1: scale_interval must be 0.05 s or more, not 0.001"),
        ("[workers]\npoll_interval_ms = -5", "poll_interval_ms = -5: poll must be a duration"),
        ("[workers]\nlease_timeout_seconds = nan", "lease_timeout_seconds = nan: lease must be a duration"),
        ("[workers]\nmax_count = 0", "max_count must be a whole number from 1"),
        ("[workers]\nmax_memory = 'much'", "max_memory must be a size such as 512MB"),
        ("poll = 1\n[workers]\npoll_interval_ms = 250", "holdfast.toml:3: 'poll' is set twice, here and at holdfast.toml:1"),
    ],
)
def test_a_bad_value_in_the_table_about_workers_is_refused_where_it_stands(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(BadSetting, match=says):
        load(folder=tmp_path, environment={})


@pytest.mark.parametrize(("text", "number"), [(1024, 1024), ("64KiB", 65_536), ("2 GB", 2 * 10**9), ("1.5MiB", 1_572_864)])
def test_sizes_are_read(text: object, number: int) -> None:
    assert size(text) == number


@pytest.mark.parametrize("text", ["", "-1", "0", "GB", "1TB", True, "1e9"])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        size(text)


def test_tasks_of_an_app_without_a_url_have_the_lease_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "holdfast.toml").write_text(SEED)
    monkeypatch.chdir(tmp_path)

    async def work() -> None: ...

    assert Holdfast().task(name="a")(work).options_declared.lease == 30.0
    assert Holdfast().task(name="a", lease=5)(work).options_declared.lease == 5.0
    assert Holdfast("memory://").task(name="a")(work).options_declared.lease == 60.0
