"""Which page is where, and what all of them share."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import BadSetting
from holdfast.server import Extension, Page, Right
from holdfast_media.transfer import Limits
from holdfast_media.web.acting import Acting
from holdfast_media.web.files import Files
from holdfast_media.web.incoming import Incoming
from holdfast_media.web.titles import Titles
from holdfast_media.web.uploading import Uploading

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from holdfast_media.media import Media

HERE: Final = Path(__file__).parent
ICON: Final = "M2 3.500h12v9H2zM6.500 6l4 2-4 2z"
ONE: Final = "/{video_id:uuid}"


def media_pages(media: Media, *, uploads: Path | None = None, limits: Limits | None = None) -> Extension:
    """Return the pages of a media application, for `create_server(…, extensions=[media_pages(media)])`.

    A server that is given the app finds them by itself. `uploads` is the folder in which uploads grow, best on the storage's
    file system: unless it is given, one beside the scratch folders of jobs. `limits` says how large they may be.
    """
    if not (HERE / "static" / "vendor" / "hls.js").is_file():
        raise BadSetting(
            "the player's file hls.js is missing: it is fetched when Holdfast is installed from its source. Install it again: "
            "pip install -e . (./dev setup does so)"
        )
    incoming = Incoming(uploads or media.settings.scratch / "uploads", limits or Limits(), media.storage)
    titles, acting, files, uploading = Titles(media), Acting(media), Files(media), Uploading(media, incoming)
    steer, enqueue = Right.STEER, Right.ENQUEUE

    @asynccontextmanager
    async def alongside() -> AsyncIterator[None]:
        await media.library.database.make()
        try:
            yield
        finally:
            await media.library.close()

    return Extension(
        name="media",
        label="Media",
        icon=ICON,
        key="v",
        queue=media.settings.queue,
        templates=HERE / "templates",
        static=HERE / "static",
        styles=("media.css",),
        scripts=("player.js", "hash.js", "upload.js"),
        policy={"media-src": "'self' blob:"},  # what hls.js plays is put together by the script
        lifespan=alongside,
        pages=(
            Page(path="", handler=titles.all),
            Page(path=ONE, handler=titles.one),
            Page(path=f"{ONE}/files/{{name:path}}", handler=files.serve),
            Page(path=f"{ONE}/retranscode", handler=acting.ask_retranscode, right=steer),
            Page(path=f"{ONE}/retranscode", handler=acting.retranscode, right=steer, method="POST"),
            Page(path=f"{ONE}/retry", handler=acting.retry, right=steer, method="POST"),
            Page(path=f"{ONE}/delete", handler=acting.ask_delete, right=steer),
            Page(path=f"{ONE}/delete", handler=acting.delete, right=steer, method="POST"),
            Page(path="/upload", handler=uploading.page, right=enqueue),
            Page(path="/upload", handler=uploading.begin, right=enqueue, method="POST", raw=True),
            Page(path="/upload/{upload}/parts/{number:int}", handler=uploading.part, right=enqueue, method="PUT", raw=True),
            Page(path="/upload/{upload}/complete", handler=uploading.complete, right=enqueue, method="POST", raw=True),
            Page(path="/upload/{upload}/discard", handler=uploading.discard, right=enqueue, method="POST"),
        ),
    )
