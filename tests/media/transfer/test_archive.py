"""Archives of strangers: what is taken, and that nothing else ever leaves its folder or grows beyond its limits."""

from __future__ import annotations

import gzip
import io
import tarfile
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_media.errors import MediaError
from holdfast_media.transfer.archive import unpack
from holdfast_media.transfer.limits import ArchiveLimits
from tests.media.transfer import corpus

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = ArchiveLimits(files=100, total=4 * 2**20, file=2 * 2**20, ratio=20.0, seconds=20.0)
pytestmark = pytest.mark.row("43")


def unpacked(folder: Path, data: bytes, limits: ArchiveLimits = LIMITS) -> dict[str, bytes]:
    archive = folder / "archive"
    archive.write_bytes(data)
    return {one.name: one.path.read_bytes() for one in unpack(archive, folder / "into", limits)}


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


GOOD = (("index.m3u8", b"#EXTM3U"), ("720p/0001.m4s", bytes(range(256)) * 40), ("720p/empty", b""))


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files_come_out_as_they_went_in(tmp_path: Path, form: int, pack: object) -> None:
    data = corpus.tar(corpus.special("720p", tarfile.DIRTYPE), *GOOD, format=form)
    assert unpacked(tmp_path, gzip.compress(data) if pack is gzip.compress else data) == dict(GOOD)


def test_a_zip_comes_out_as_it_went_in(tmp_path: Path) -> None:
    assert unpacked(tmp_path, corpus.zipped(("720p/", b""), *GOOD)) == dict(GOOD)


def test_an_archive_of_a_whole_folder_is_taken(tmp_path: Path) -> None:
    """As `tar -C folder .` writes it: every name begins with a dot and a slash."""
    data = corpus.tar(corpus.special(".", tarfile.DIRTYPE), ("./a", b"x"), ("./b/c", b"y"))
    assert unpacked(tmp_path, data) == {"a": b"x", "b/c": b"y"}


def test_long_names_are_taken(tmp_path: Path) -> None:
    name = "/".join(["x" * 90] * 4)
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        assert unpacked(tmp_path / str(form), corpus.tar((name, b"x"), format=form)) == {name: b"x"}


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        (tmp_path / str(form)).mkdir()


@pytest.mark.parametrize(
    ("made", "codes"),
    [
        *(pytest.param(make, ("BAD_ARCHIVE",), id=name) for name, make in corpus.REFUSED.items()),
        *(pytest.param(make, ("TOO_LARGE",), id=name) for name, make in corpus.TOO_LARGE.items()),
        *(pytest.param(make, ("TOO_LARGE", "BAD_ARCHIVE"), id=name) for name, make in corpus.EITHER.items()),
    ],
)
def test_harm_is_refused_and_nothing_leaves_its_folder(tmp_path: Path, made: object, codes: tuple[str, ...]) -> None:
    assert callable(made)
    data = made()
    before = everything(tmp_path) | {"archive", "into"}
    began = time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(MediaError) as caught:
            unpacked(tmp_path, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code in codes
    assert not caught.value.retryable
    assert everything(tmp_path) - before <= {f"into/{number:06}" for number in range(1, 102)}
    written = sum(path.stat().st_size for path in (tmp_path / "into").iterdir())
    assert written <= LIMITS.total + 2**20
    assert peak < 12 * 2**20 + len(data)
    assert time.monotonic() - began < LIMITS.seconds


def test_time_is_bounded(tmp_path: Path) -> None:
    limits = ArchiveLimits(seconds=0.0)
    with pytest.raises(MediaError, match="longer than") as caught:
        unpacked(tmp_path, corpus.tar(("a", b"x")), limits)
    assert caught.value.code == "TOO_LARGE"


@given(st.data())
def test_no_damage_makes_an_archive_do_harm(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Bytes changed anywhere: it comes out, or is refused in words; nothing else is raised, and nothing lies elsewhere."""
    folder = tmp_path_factory.mktemp("damaged")
    good = data.draw(st.sampled_from([corpus.tar(*GOOD), gzip.compress(corpus.tar(*GOOD), mtime=0), corpus.zipped(*GOOD)]))
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    code = ""
    try:
        unpacked(folder, bytes(damaged))
    except MediaError as error:
        code = error.code
    assert code in ("", "BAD_ARCHIVE", "TOO_LARGE")
    assert {path.name for path in folder.iterdir()} == {"archive", "into"}


def test_the_archives_that_are_taken_are_no_accident() -> None:
    """The corpus is made of what Python's own module would unpack."""
    with tarfile.open(fileobj=io.BytesIO(corpus.REFUSED["a symbolic link to go through"]())) as archive:
        assert archive.getnames() == ["a", "a/evil"]
