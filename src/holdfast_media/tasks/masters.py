"""Master playlists: that of a version, and the stable one that always plays what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast_media.library import QualityState
from holdfast_media.tasks import layout
from holdfast_media.tasks.artifacts import read_marker
from holdfast_media.tasks.work import VersionPlan
from holdfast_media.transcode import PackageFacts, write_master

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast_media.library import Version
    from holdfast_media.tasks.context import Context

AUDIO = "audio"


def packages(version: Version) -> dict[str, tuple[str, PackageFacts]]:
    """Return the qualities of a version that can be played, the highest first: folder and facts by name."""
    return {
        one.name: (one.result["folder"], msgspec.convert(one.result["facts"], PackageFacts))
        for one in version.qualities
        if one.state is QualityState.READY and one.result is not None
    }


def sound_of(context: Context, version_plan: VersionPlan) -> PackageFacts | None:
    """Return what is known of the packaged sound; `None`: there is none, or not yet."""
    if version_plan.audio_folder is None:
        return None
    marker = read_marker(context.storage, version_plan.audio_folder)
    return None if marker is None else marker.facts


def master_text(context: Context, version: Version, work: Path, *, base: str) -> str | None:
    """Return the master playlist of what is ready, as seen from the folder `base`; `None`: nothing is."""
    if version.plan is None:
        return None
    version_plan = msgspec.convert(version.plan, VersionPlan)
    ready, sound = packages(version), sound_of(context, version_plan)
    if version_plan.plan.renditions and not ready:
        return None
    if not ready and sound is None:
        return None
    path = write_master(work, [facts for _, facts in ready.values()], sound)
    folders = {facts.name: folder for folder, facts in ready.values()}
    if sound is not None and version_plan.audio_folder is not None:
        folders[sound.name] = version_plan.audio_folder
    return layout.pointed(path.read_text(encoding="utf-8"), folders, base=base)


def settle(context: Context, video_id: str, work: Path) -> None:
    """Bring the stable master of a video to what the library says, however many do that at once.

    Whoever has written looks again: the last one to write has looked after all changes that the others knew of. A retranscode
    does not show here before it is published.
    """
    written = None
    while True:
        video = context.look_up(video_id)
        if video is None:
            return
        shown = video.plays or next((one for one in video.versions if one.active), None)
        text = None if shown is None else master_text(context, shown, work, base=layout.home(video_id))
        if text is None or text == written:
            return
        path = work / "stable.m3u8"
        path.write_text(text, encoding="utf-8")
        context.storage.put(layout.stable_master(video_id), path, overwrite=True)
        written = text
