"""`holdfast keys` and `holdfast server`: who is let in."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from holdfast.cli.common import with_store
from holdfast.server.keys import digest, key_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.port import Key
    from tests.cli.conftest import Done

URL = "sqlite:///jobs.db"


def kept(wanted: str) -> Key:
    """Return a key as the store has it."""

    async def look(store: Any) -> Any:
        return (await store.keys([wanted]))[0]

    key: Key = asyncio.run(with_store(URL, look))
    return key


def add(cli: Callable[..., Done], *arguments: str) -> str:
    done = cli("keys", "add", *arguments, "--url", URL)
    assert done.code == 0, done.err
    return done.out.strip()


def test_a_key_is_shown_once_and_kept_as_a_digest(cli: Callable[..., Done]) -> None:
    text = add(cli, "farm", "--role", "worker", "--queues", "video,audio", "--expires", "90d")
    key = kept(key_id(text) or "")
    assert (key.name, key.role.value, key.queues, key.digest) == ("farm", "worker", ("video", "audio"), digest(text))
    assert key.expires_at is not None
    listed = cli("keys", "ls", "--url", URL)
    assert [row[:5] for row in listed.rows] == [[key.id, "farm", "worker", "live", "video,audio"]]
    as_json = cli("keys", "ls", "--url", URL, "--json")
    assert as_json.json["keys"][0]["id"] == key.id
    for said in (listed.out, as_json.out, cli("audit", "--url", URL).out):
        assert text not in said
        assert digest(text) not in said


def test_a_rotated_key_works_on_for_a_while_and_the_new_one_is_like_it(cli: Callable[..., Done]) -> None:
    old = add(cli, "farm", "--queues", "video", "--actions", "work")
    done = cli("keys", "rotate", "farm", "--overlap", "1h", "--url", URL)
    new = kept(key_id(done.out.strip()) or "")
    assert (new.name, new.queues, new.actions, new.expires_at) == ("farm", ("video",), ("work",), None)
    assert kept(key_id(old) or "").expires_at is not None
    assert "ends in 1h" in done.err
    twice = cli("keys", "revoke", "farm", "--url", URL)
    assert twice.code == 2
    assert "several live keys" in twice.err
    assert cli("keys", "revoke", key_id(old), "--url", URL).code == 0
    assert kept(key_id(old) or "").revoked_at is not None


def lifetime(key: Key) -> timedelta | None:
    assert key.created_at is not None
    return None if key.expires_at is None else key.expires_at - key.created_at


def rotate(cli: Callable[..., Done], *arguments: str) -> Key:
    done = cli("keys", "rotate", *arguments, "--url", URL)
    assert done.code == 0, done.err
    return kept(key_id(done.out.strip()) or "")


@pytest.mark.parametrize(
    ("told", "days"), [((), 90), (("--expires", "30d"), 30), (("--expires", "never"), None)], ids=["not told", "30d", "never"]
)
def test_a_key_lives_as_long_as_the_one_it_takes_over_from_unless_told_otherwise(
    cli: Callable[..., Done], told: tuple[str, ...], days: int | None
) -> None:
    add(cli, "farm", "--expires", "90d")
    lives = lifetime(rotate(cli, "farm", *told))
    assert (None if lives is None else round(lives / timedelta(days=1))) == days


def test_a_key_is_rotated_by_name_again_and_again_and_revoked_at_last(cli: Callable[..., Done]) -> None:
    new = kept(key_id(add(cli, "farm", "--expires", "90d")) or "")
    for _ in range(3):
        new = rotate(cli, "farm", "--overlap", "0s")
        assert round((lifetime(new) or timedelta()) / timedelta(days=1)) == 90
    done = cli("keys", "revoke", "farm", "--url", URL)
    assert (done.code, done.out) == (0, f"{new.id} (farm) is revoked\n")
    assert [row[3] for row in cli("keys", "ls", "--url", URL).rows] == ["revoked", "expired", "expired", "expired"]
    assert cli("keys", "revoke", "farm", "--url", URL).code == 3


def test_what_the_guide_says_about_keys_works_line_by_line(cli: Callable[..., Done]) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/remote-workers.md").read_text()
    commands = [line.partition("#")[0].split()[1:] for line in guide.splitlines() if line.startswith("holdfast keys ")]
    assert [command[1] for command in commands] == ["add", "ls", "rotate", "revoke"]
    for command in commands:
        done = cli(*command, "--url", URL)
        assert done.code == 0, done.err
    assert {row[3] for row in cli("keys", "ls", "--url", URL).rows} == {"revoked"}


def test_all_live_keys_of_a_name_are_revoked_when_told_so(cli: Callable[..., Done]) -> None:
    first, second, other = (key_id(add(cli, name)) or "" for name in ("farm", "farm", "other"))
    asked = cli("keys", "revoke", "farm", "--url", URL)
    assert (asked.code, "--all" in asked.err) == (2, True)
    done = cli("keys", "revoke", "farm", "--all", "--url", URL, "--json")
    assert {one["id"] for one in done.json["keys"]} == {first, second}
    assert [kept(one).revoked_at is None for one in (first, second, other)] == [False, False, True]


def test_a_key_that_lets_nobody_in_is_not_rotated(cli: Callable[..., Done]) -> None:
    ended = key_id(add(cli, "farm", "--expires", "0s")) or ""
    revoked = key_id(add(cli, "other")) or ""
    cli("keys", "revoke", revoked, "--url", URL)
    for dead, why in ((ended, "has expired"), (revoked, "was revoked")):
        done = cli("keys", "rotate", dead, "--url", URL)
        assert (done.code, done.out, why in done.err) == (2, "", True)
    assert len(cli("keys", "ls", "--url", URL).rows) == 2


def test_keys_that_cannot_be_made_or_found_are_told(cli: Callable[..., Done]) -> None:
    assert "a worker may enqueue, get, work, and not 'keys'" in cli("keys", "add", "x", "--actions", "keys", "--url", URL).err
    assert cli("keys", "add", "x", "--expires", "soon", "--url", URL).code == 2
    add(cli, "one")
    assert cli("keys", "revoke", "nobody", "--url", URL).code == 3


def test_a_secret_is_fresh_each_time(cli: Callable[..., Done]) -> None:
    first, second = cli("keys", "secret").out.strip(), cli("keys", "secret").out.strip()
    assert first != second
    assert len(first) == 43


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--host", "0.0.0.0"), "can be reached from other machines"),
        (("--host", "0.0.0.0", "--open"), "--open lets everybody in"),
        (("--port", "70000"), "must be a port"),
        (("--worker",), "which app?"),
    ],
)
def test_a_server_that_cannot_be_started_says_why(cli: Callable[..., Done], arguments: tuple[str, ...], told: str) -> None:
    done = cli("server", "--url", URL, *arguments)
    assert done.code in (1, 2)
    assert told in done.err


def test_a_server_on_this_machine_makes_a_secret_for_this_run_and_stops_in_peace(tmp_path: Path) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-m", "holdfast", "server", "--url", URL, "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, env=own, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        where, secret = running.stderr.readline(), running.stderr.readline()
        url = re.search(r"on (http://127\.0\.0\.1:\d+)", where)
        told = re.search(r"secret of this run: (\S+)", secret)
        assert url is not None, where
        assert told is not None, secret
        headers = {"Authorization": f"Bearer {told[1]}"}
        assert httpx2.get(f"{url[1]}/api/v1/server", headers=headers, verify=False, timeout=30).status_code == 200
        assert httpx2.get(f"{url[1]}/api/v1/server", verify=False).status_code == 401
        assert httpx2.get(f"{url[1]}/health/ready", verify=False).json()["ok"] is True
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
