"""Pages that other packages add to the dashboard: behind the same door, in the same frame, under the same rules.

A package makes an `Extension`, and gives it to `create_server(…, extensions=[…])`, or has it found: the entry points of the
group `holdfast.pages` are functions that are given the app, and return the extension that belongs to it, or `None`.

    [project.entry-points."holdfast.pages"]
    media = "holdfast_media.web.found:pages_of"
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from holdfast.errors import BadSetting
from holdfast.server.principal import Right

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from holdfast.app import Holdfast
    from holdfast.server.ui.frame import Handler

logger = logging.getLogger("holdfast.server")

GROUP: Final = "holdfast.pages"
TAKEN: Final = frozenset(
    (
        *("alerts", "api", "audit", "chains", "health", "jobs", "keys", "live", "login", "logout"),
        *("metrics", "overview", "queues", "schedules", "static", "workers"),
    )
)
"""What the server's own pages are called."""
KEYS_TAKEN: Final = frozenset("ojqwsclak")
"""What the server's own pages have after `g`."""
DIRECTIVES: Final = frozenset({"media-src", "font-src", "manifest-src"})
"""What an extension may add to the policy: nothing by which a page could run other scripts or send something elsewhere."""
SOURCES: Final = frozenset({"'self'", "blob:", "data:"})
METHODS: Final = frozenset({"GET", "POST", "PUT", "DELETE"})
ICON: Final = "M3 3h10v10H3zM3 6.500h10"

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")
_ICON: Final = re.compile(r"[MmLlHhVvCcSsQqTtAaZz0-9 ,.-]{1,2000}")


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page or an action of an extension."""

    path: str
    """Below the extension's own, such as `/{name}`; empty: its first page."""
    handler: Handler
    """Is given a `Visit` and returns a response: `visit.render(…)`, `visit.go(…)`, or any of Starlette's."""
    right: Right = Right.LOOK
    method: str = "GET"
    raw: bool = False
    """Whether the handler reads the body itself, as it comes. Else it is that of a form, and read before (`visit.field`)."""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Pages of another package below `/NAME`, and their place in the navigation. Raises `BadSetting` for what cannot be.

    Who sees them has logged in and has the page's right, and so the link. Whatever changes something is taken from the pages of
    this server alone. Pages are sent with the dashboard's policy: no script but files of the server, nothing inline.
    """

    name: str
    label: str
    """What the navigation says."""
    pages: Sequence[Page]
    templates: Path | None = None
    """A folder of Jinja templates, which are called `NAME/file.html` and begin with `{% extends layout %}`."""
    static: Path | None = None
    """A folder of files that anyone may have, such as scripts and styles."""
    scripts: Sequence[str] = ()
    """Files of `static` that its pages load, in this order, after those of the dashboard."""
    styles: Sequence[str] = ()
    icon: str = ICON
    """The path of an icon on 16 x 16, drawn as a line."""
    key: str = ""
    """The letter that leads there after `g`."""
    queue: str | None = None
    """The queue that its pages are about: keys that are narrowed to others see nothing of it."""
    policy: Mapping[str, str] = field(default_factory=dict)
    """What its pages need besides, such as `{"media-src": "'self' blob:"}`."""
    lifespan: Callable[[], AbstractAsyncContextManager[None]] | None = None
    """Is entered when the server starts, on its event loop, and left when it ends."""

    def __post_init__(self) -> None:
        """Refuse what would hide a page of the server, or weaken its policy."""
        if not _NAME.fullmatch(self.name) or self.name in TAKEN:
            raise BadSetting(
                f"an extension cannot be called {self.name!r}: small letters and digits, and no page of the server"
            )
        if self.key and (len(self.key) != 1 or not self.key.islower() or self.key in KEYS_TAKEN):
            raise BadSetting(f"the key of {self.name} must be a small letter that no other page has, not {self.key!r}")
        if not _ICON.fullmatch(self.icon):
            raise BadSetting(f"the icon of {self.name} must be the data of an SVG path")
        for directive, sources in self.policy.items():
            if directive not in DIRECTIVES or not SOURCES.issuperset(sources.split()):
                raise BadSetting(
                    f"{self.name} cannot add {directive} {sources} to the policy, but {', '.join(sorted(DIRECTIVES))} "
                    f"from {', '.join(sorted(SOURCES))}"
                )
        for page in self.pages:
            if page.method not in METHODS or (page.path and not page.path.startswith("/")):
                raise BadSetting(
                    f"{page.method} {page.path!r} of {self.name} is no page: a method and a path such as /{{name}}"
                )

    @property
    def path(self) -> str:
        """Where its first page is, below the server's own path."""
        return f"/{self.name}"


def found_for(app: Holdfast) -> list[Extension]:
    """Return what installed packages have to show of an app. One that cannot be loaded is told of, and left out."""
    found: list[Extension] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            extension = entry.load()(app)
        except ImportError as error:
            logger.warning("the pages of %s are not served: %s", entry.name, error)
            continue
        if extension is not None:
            found.append(extension)
    return found


def checked(extensions: Sequence[Extension]) -> tuple[Extension, ...]:
    """Return extensions no two of which have the same name or key."""
    for what in ("name", "key"):
        said = [value for one in extensions if (value := getattr(one, what))]
        if twice := {value for value in said if said.count(value) > 1}:
            raise BadSetting(f"two extensions have the {what} {', '.join(sorted(twice))}")
    return tuple(extensions)
