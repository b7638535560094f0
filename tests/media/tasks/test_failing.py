"""A version fails in the transaction that fails its job: whoever is killed at any moment leaves both, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BlockingTransaction, State
from holdfast_media import VersionState, VideoState
from holdfast_media.errors import INPUT_DAMAGED, STORAGE_READ_FAILED, MediaError
from holdfast_media.tasks import finalizing, preparing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.media.tasks.studio import Studio


@pytest.mark.parametrize(("where", "code"), [("prepare", INPUT_DAMAGED), ("finalize", STORAGE_READ_FAILED)])
async def test_after_every_commit_the_job_and_its_version_have_failed_or_neither_has(
    studio: Studio, silent: Path, monkeypatch: pytest.MonkeyPatch, where: str, code: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MediaError(code, "it cannot be read.")

    seen: set[tuple[VersionState, State]] = set()
    library = studio.media.library
    left = BlockingTransaction.__exit__

    def looked(self: BlockingTransaction, *error: Any) -> None:
        left(self, *error)
        found = library.blocking(library.look(video.id))
        assert found is not None
        newest = found.newest
        assert newest is not None
        job_id = getattr(newest.jobs, where)
        view = None if job_id is None else library.blocking(library.looking.jobs([job_id]))[0]
        if view is not None:
            seen.add((newest.state, view.state))

    monkeypatch.setattr(BlockingTransaction, "__exit__", looked)
    monkeypatch.setattr(*((preparing, "probe") if where == "prepare" else (finalizing, "verify")), broken)
    video = await library.add(silent)
    async with studio.worker():
        found = await studio.ended(video)
        await studio.idle()
    assert found.newest is not None
    assert (found.state, found.newest.code, found.newest.message) == (VideoState.FAILED, code, "it cannot be read.")
    assert (VersionState.FAILED, State.FAILED) in seen
    assert {job for version, job in seen if version is VersionState.FAILED} == {State.FAILED}
    assert {version for version, job in seen if job is State.FAILED} == {VersionState.FAILED}
    view = (await library.looking.jobs([found.newest.jobs.driving]))[0]
    assert view is not None
    assert view.error is not None
    assert view.error.code == ("RETRIES_EXHAUSTED" if code == STORAGE_READ_FAILED else code)
