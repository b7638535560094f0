"""No path outside of the scratch folder is shown, whatever it is called."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_media.clip.redaction import Redaction

ROOT = Path("/var/scratch/holdfast")
HOSTILE = '/srv/Kunde Müller (geheim)/it\'s "secret"\nfilm [1].mp4'


@pytest.mark.parametrize(
    "message",
    [
        f"Error opening input file {HOSTILE}.",
        f"[in#0] Error opening input: file:{HOSTILE}: No such file",
        f"[Errno 2] No such file or directory: {HOSTILE!r}",
        f"cannot open {shlex.quote(HOSTILE)}",
        f"cannot open file://{quote(HOSTILE)}",
        f"cannot open {json.dumps(HOSTILE)}",
        f"the folder {Path(HOSTILE).parent} may not be read",
        f"the folder '{Path(HOSTILE).parent}/' may not be read",
    ],
)
def test_a_known_path_never_shows(message: str) -> None:
    shown = Redaction(ROOT, [HOSTILE])(message)
    for part in ("Müller", "M%C3%BCller", "M\\xfcller", "M\\u00fcller", "geheim", "secret", "/srv"):
        assert part not in shown
    assert "cannot open" in shown or "folder" in shown or "No such file" in shown or "Error opening" in shown


@pytest.mark.parametrize(
    "text",
    [
        "/etc/passwd: denied",
        "see '/home/ann/My Films/a b.mp4' there",
        "(/opt/x/y.mp4)",
        "path=/srv/a.mp4",
        "file:///srv/a.mp4 is gone",
        "~ann/films/a.mp4",
        "~/films/a.mp4 and /mnt/b.mp4",
    ],
)
def test_other_absolute_paths_are_found_by_their_looks(text: str) -> None:
    shown = Redaction(ROOT)(text)
    assert not any(part in shown for part in ("passwd", "/home", "Films", "/opt", "/srv", "films", "/mnt", "a b"))


@pytest.mark.parametrize(
    "text",
    [
        "29.97 frames/s",
        "1/25 of it",
        "either/or",
        "codec h264 / aac",
        "at 12:00:01",
        "a ratio of 16/9",
        "text/html; charset=utf-8",
    ],
)
def test_what_is_no_path_stays(text: str) -> None:
    assert Redaction(ROOT, ["/srv/a.mp4"])(text) == text


def test_paths_in_the_scratch_folder_are_shown_from_there_on() -> None:
    shown = Redaction(ROOT, ["/var/scratch/a.mp4"])
    assert shown(f"writing {ROOT}/42/1/clip.mp4 failed") == "writing scratch/42/1/clip.mp4 failed"
    assert "holdfast-other" not in shown(f"{ROOT}-other/secret.mp4"), "a folder whose name only begins like it is another one"


def test_addresses_keep_their_host_and_lose_their_secrets() -> None:
    shown = Redaction(ROOT)("https://ann:pw@cdn.example/a/b.mp4?sig=abc#x answered 403")
    assert shown == "https://cdn.example/a/b.mp4?… answered 403"


def test_a_link_is_not_shown_by_where_it_leads(tmp_path: Path) -> None:
    real = tmp_path / "real name" / "film.mp4"
    real.parent.mkdir()
    real.touch()
    link = tmp_path / "link.mp4"
    link.symlink_to(real)
    assert "real name" not in Redaction(ROOT, [link])(f"cannot read {real}")


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=3, max_size=12).filter(
    lambda name: name.strip(". ") and not name.isspace()
)


@given(st.lists(NAMES, min_size=3, max_size=4), st.sampled_from(["{}", "open {}: denied", "'{}'", '"{}"', "file:{}", "{}, {}"]))
def test_any_path_that_is_known_is_gone(names: list[str], template: str) -> None:
    path = "/" + "/".join(names)
    assert path not in Redaction(ROOT, [path])(template.format(path, path))


@given(st.text(max_size=80))
def test_redacting_twice_is_redacting_once(text: str) -> None:
    shown = Redaction(ROOT, ["/srv/secret folder/a.mp4"])
    assert shown(shown(text)) == shown(text)
