"""What every page shares: who looks at it, how it is rendered, and what is said when something goes wrong."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from jinja2 import ChoiceLoader, FileSystemLoader, PrefixLoader, StrictUndefined
from jinja2 import Environment as Templates
from starlette.datastructures import ImmutableMultiDict
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from holdfast.errors import BadJob, BadResult, HoldfastError, JobNotFound, SchemaError, StoreUnavailable
from holdfast.finding import Mistake, NotThere
from holdfast.notify.port import Hint
from holdfast.server.principal import Principal, Right
from holdfast.server.proxies import is_own
from holdfast.server.ui import query, shown
from holdfast.server.ui.files import fingerprint
from holdfast.store.port import Action, patience

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

    from starlette.requests import Request

    from holdfast.server.context import Context
    from holdfast.server.extending import Extension
    from holdfast.server.ui.live import Live
    from holdfast.server.ui.sessions import Sessions
    from holdfast.server.ui.sharing import Shared
    from holdfast.server.ui.sparklines import Sparklines
    from holdfast.store.port import JobView, Store

logger = logging.getLogger("holdfast.server")

HERE: Final = Path(__file__).parent
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    # no other site learns an address; with "no-referrer" browsers would hide from this server too where a form came from
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SAID: Final = "holdfast_said"
"""The cookie that carries what an action said over to the page that follows it."""
THEME: Final = "holdfast_theme"
THEMES: Final = frozenset({"light", "dark"})
SAID_SECONDS: Final = 20
ASKING: Final = frozenset({"GET", "HEAD"})
"""What changes nothing."""
MOST_FORM_FIELDS: Final = 10_500
SECTIONS: Final = frozenset({"jobs", "queues", "limits", "workers", "schedules", "chains", "alerts"})
"""Lists that everybody may see who may look."""
SHOWN_PATH: Final = 200
MOST_TOLD: Final = 100
"""Jobs that a hint names; of more, workers find out when they look."""


class Problem(HoldfastError):
    """What a page could not do: a status, what happened, and what to do."""

    def __init__(self, status: int, what: str, fix: str = "") -> None:
        self.status = status
        self.what = what
        self.fix = fix
        super().__init__(what)


@dataclass
class Ui:
    """The dashboard of one server."""

    context: Context
    sessions: Sessions
    live: Live
    templates: Templates
    tails: dict[UUID, int]
    """Where the shown end of a job's log begins: what was shown once is found again without reading all of it."""
    sparklines: Sparklines
    shared: Shared
    extensions: tuple[Extension, ...] = ()
    """Pages of other packages."""

    @property
    def store(self) -> Store:
        """The store that it shows."""
        return self.context.store

    def page(
        self,
        path: str,
        handler: Handler,
        right: Right | None = Right.LOOK,
        method: str = "GET",
        *,
        extension: Extension | None = None,
        raw: bool = False,
        shared: bool = True,
    ) -> Route:
        """Return the route of a page or an action; `right` is what it needs, `None`: nothing. A `raw` body is left unread.

        A page is `shared` by all who may see the same, when it is open and asks for its content anew. Those of an extension
        are not: they may be about who looks.
        """
        more = "" if extension is None else "".join(f"; {name} {value}" for name, value in extension.policy.items())

        async def endpoint(request: Request) -> Response:
            visit = Visit(self, request, None, extension=extension, shared=shared and extension is None)
            return _guarded(await _answered(visit, handler, right, raw=raw), POLICY + more)

        name = f"ui:{path}" if method == "GET" else f"ui:{method.lower()}:{path}"
        return Route(path, endpoint, methods=[method], name=name)

    async def nothing(self, request: Request, status: int) -> Response:
        """Return the page for an address that is none, or that does nothing when it is asked for like this."""

        async def refuse(visit: Visit) -> Response:
            path = shown.cut(shown.plain(visit.link(_path(request))), SHOWN_PATH)
            if status == HTTPStatus.NOT_FOUND:
                raise Problem(status, f"There is no page {path}.", "The address may be cut off, or of another version.")
            raise Problem(status, f"{path} is no page to open.", "It belongs to a button of another page.")

        return _guarded(await _answered(Visit(self, request, None), refuse, None, raw=True), POLICY)


@dataclass
class Visit:
    """One request of somebody who may make it."""

    ui: Ui
    request: Request
    principal: Principal | None
    form: ImmutableMultiDict[str, str] | None = None
    extension: Extension | None = None
    """Whose page it is; `None`: the dashboard's own."""
    shared: bool = False
    """Whether it is the same for all who may see the same."""

    @property
    def store(self) -> Store:
        """The store that is looked at."""
        return self.ui.store

    @property
    def who(self) -> Principal:
        """Who makes the request."""
        if self.principal is None:
            raise Problem(HTTPStatus.UNAUTHORIZED, "Nobody is logged in.", "Log in.")
        return self.principal

    @property
    def is_fragment(self) -> bool:
        """Whether the page that is open asks for its content anew."""
        return self.request.headers.get("hx-request") == "true"

    def may(self, right: Right | str, queue: str | None = None) -> bool:
        """Tell whether this one may do something."""
        return self.principal is not None and self.principal.may(Right(right), queue)

    def need(self, right: Right, queue: str | None = None) -> None:
        """Refuse what this one may not do."""
        if not self.may(right, queue):
            where = "" if queue is None else f" in the queue {queue!r}"
            raise Problem(
                HTTPStatus.FORBIDDEN,
                f"{self.who.name} is {_a(self.who.role)} and may not do this{where}.",
                "Log in with a key that may, or ask somebody who has one.",
            )

    def sees(self, job: JobView) -> bool:
        """Tell whether a job is of a queue that this one may look at."""
        return self.may(Right.LOOK, job.queue)

    def link(self, path: str, /, **params: Any) -> str:
        """Return where something is, below the prefix that the server is mounted under."""
        given = [(name, value) for name, value in params.items() if value not in (None, "")]
        text = f"?{urlencode(given, doseq=True)}" if given else ""
        return f"{self.request.scope.get('root_path', '')}{quote(path)}{text}"

    def render(
        self, template: str, *, title: str, section: str = "", status: int = 200, still: bool = False, **data: Any
    ) -> Response:
        """Return a page; of one that is open already, only what may have changed. One that is `still` does not change."""
        said = "" if self.is_fragment else _said(self.request)
        text = self.ui.templates.get_template(template).render(
            layout="fragment.html" if self.is_fragment else "page.html",
            title=title,
            section=section,
            visit=self,
            link=self.link,
            static=self.static,
            file=self.file,
            may=self.may,
            extension=self.extension,
            extensions=[one for one in self.ui.extensions if self.may(Right.LOOK, one.queue)],
            own=f"{self.link(_path(self.request))}{'?' if self.request.url.query else ''}{self.request.url.query}",
            said=said,
            theme=self.theme,
            clock=int(1000 * data.get("now", self.ui.context.environment.now()).timestamp()),
            version=self.ui.context.version,
            redacted=self.ui.context.settings.redacted,
            watched=status == HTTPStatus.OK and self.principal is not None and not still,
            **data,
        )
        response = HTMLResponse(text, status_code=status)
        if said:
            response.delete_cookie(SAID, path=self.root)
        return response

    @property
    def is_secure(self) -> bool:
        """Whether cookies are for HTTPS alone: where the request came by it, and where a setting says so."""
        return self.ui.context.settings.secure_cookies or self.request.url.scheme == "https"

    @property
    def theme(self) -> str:
        """The theme that was chosen; empty: the system's."""
        chosen = self.request.cookies.get(THEME, "")
        return chosen if chosen in THEMES else ""

    @property
    def root(self) -> str:
        """The path of cookies."""
        return str(self.request.scope.get("root_path", "")) or "/"

    def static(self, name: str) -> str:
        """Return where a file of the dashboard is; the address changes with its content, so that browsers may keep it."""
        return self.link(f"/static/{name}", v=fingerprint(name))

    def file(self, name: str) -> str:
        """Return where a file of the extension is, as `static` does for those of the dashboard."""
        if self.extension is None or self.extension.static is None:
            raise LookupError(f"there is no folder that {name} could be in")
        return self.link(f"/static-{self.extension.name}/{name}", v=fingerprint(name, self.extension.static))

    async def note(self, targets: Iterable[str], detail: str) -> None:
        """Write into the audit log what an extension is about to do, and to what: before, so that nothing is missing."""
        name = "" if self.extension is None else f"{self.extension.name}: "
        await self.store.note(Action.EXTENSION, list(targets), by=self.who.name, detail=f"{name}{detail}")

    def go(self, to: str, said: str = "") -> Response:
        """Lead to the page that follows an action, with a word about it."""
        response = RedirectResponse(to, status_code=HTTPStatus.SEE_OTHER)
        if said:
            response.set_cookie(
                SAID,
                urlsafe_b64encode(said[:1000].encode()).decode(),
                max_age=SAID_SECONDS,
                path=self.root,
                secure=self.is_secure,
                httponly=True,
                samesite="strict",
            )
        return response

    def back(self, default: str) -> str:
        """Return the page that an action was begun on, as its form says; never one of another site."""
        return self.own(self.field("back")) or self.link(default)

    def own(self, to: str) -> str:
        """Return an address as it was given, if it is one of this site; empty for any other."""
        root = str(self.request.scope.get("root_path", ""))
        parts = urlsplit(to)
        own = to.startswith(f"{root}/") and not to.startswith("//") and "\\" not in to and not parts.netloc and not parts.scheme
        return to if own and to.isprintable() else ""

    def field(self, name: str) -> str:
        """Return what a form says."""
        return "" if self.form is None else self.form.get(name, "")

    def told(self, jobs: Iterable[UUID] = (), queues: Iterable[str] = ()) -> None:
        """Have workers and open pages hear of what was changed."""
        first = frozenset(list(jobs)[:MOST_TOLD])
        self.ui.context.notifier.hint(Hint(queues=frozenset(queues), later=True, jobs=first, anything=True))


Handler = Callable[[Visit], Awaitable[Response]]


def _guarded(response: Response, policy: str) -> Response:
    """Add what keeps browsers from doing with a page what it is not meant for."""
    for name, value in (HEADERS | {"Content-Security-Policy": policy}).items():
        response.headers.setdefault(name, value)
    return response


def make_templates(extensions: Iterable[Extension] = (), redacted: Collection[str] = ()) -> Templates:
    """Return the templates with what they are written in; `redacted` are the fields that are never shown."""
    added = {one.name: FileSystemLoader(one.templates) for one in extensions if one.templates is not None}
    templates = Templates(
        loader=ChoiceLoader([FileSystemLoader(HERE / "templates"), PrefixLoader(added)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(when=shown.when, moment=shown.moment, since=shown.since)
    templates.globals.update(token=query.token, with_token=query.with_token)
    templates.filters.update(
        age=shown.age,
        short=shown.short,
        number=shown.number,
        pretty=shown.pretty,
        one_line=shown.one_line,
        plain=partial(shown.plain, redacted=redacted),
        cause=partial(shown.cause, redacted=redacted),
        moment=shown.moment,
    )
    return templates


async def _answered(visit: Visit, handler: Handler, right: Right | None, *, raw: bool) -> Response:
    """Let in who may, and turn whatever goes wrong into a page that says so."""
    ui, request = visit.ui, visit.request
    asks = request.method in ASKING
    try:
        if not asks:
            _check_origin(request)
        visit.principal = await ui.context.door.principal(request)
        if right is not None:
            if visit.principal is None:
                return _to_login(visit)
            visit.need(right, None if visit.extension is None else visit.extension.queue)
        if not asks:
            visit.form = None if raw else await _form(visit)
            return await handler(visit)
        return await _looked_at(visit, handler)
    except Problem as problem:
        return _problem(visit, problem.status, problem.what, problem.fix)
    except (JobNotFound, NotThere) as error:
        return _problem(visit, HTTPStatus.NOT_FOUND, _sentence(error), "Look for it in the list of jobs.")
    except (Mistake, BadJob, BadResult) as error:
        return _problem(visit, HTTPStatus.BAD_REQUEST, _sentence(error), "Go back and correct it.")
    except (StoreUnavailable, SchemaError) as error:
        logger.warning("a page could not be shown: %s", error)
        return _away(visit, shown.plain(str(error)))
    except HoldfastError as error:
        retry_after = getattr(error, "retry_after", None)
        status = HTTPStatus.BAD_REQUEST if retry_after is None else HTTPStatus.TOO_MANY_REQUESTS
        return _problem(visit, status, _sentence(error), "" if retry_after is None else f"Try again in {retry_after} s.")
    except Exception:
        logger.exception("a page of the dashboard failed: %s %s", request.method, request.url.path)
        return _problem(
            visit,
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "This page could not be made: there is a mistake in Holdfast.",
            "The log of the server has the traceback. Nothing was changed unless it says so; please report it.",
        )


async def _looked_at(visit: Visit, handler: Handler) -> Response:
    """Return a page; what an open one asks for anew, as others have got it who may see the same."""

    async def make() -> Response:
        with patience(visit.ui.context.settings.page_timeout):
            return await handler(visit)

    who, scope = visit.principal, visit.request.scope
    if who is None or not visit.shared:
        return await make()
    # not who it is: what is shown of a page that is open depends on what somebody may see and do, and on nothing else
    seen = (who.role, who.queues, who.actions, who.expires)
    key = (scope.get("root_path", ""), visit.request.url.path, visit.request.url.query, *seen)
    if visit.is_fragment:
        return await visit.ui.shared.get(key, make)
    response = await make()
    visit.ui.shared.seen(key)
    return response


def _check_origin(request: Request) -> None:
    """Refuse what another site, or no page at all, has a browser send."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin", "")
    ours = bool(origin) and is_own(origin, request)
    if not (site == "same-origin" if site is not None else ours) or (origin and not ours):
        raise Problem(
            HTTPStatus.FORBIDDEN,
            "This request did not come from a page of this dashboard.",
            "Do it on the page itself; programs use the HTTP API with a key. A proxy in front of this server has to pass on "
            "the header Host (nginx: proxy_set_header Host $host).",
        )


async def _form(visit: Visit) -> ImmutableMultiDict[str, str]:
    """Read what a form sends, and no more than the server takes."""
    limit = visit.ui.context.settings.body_limit
    body = b""
    async for part in visit.request.stream():
        body += part
        if len(body) > limit:
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"This form is larger than the {limit:,} bytes that are taken.")
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FORM_FIELDS)
    except ValueError as error:
        raise Mistake(f"this form cannot be read: {error}") from None
    return ImmutableMultiDict(fields)


def _to_login(visit: Visit) -> Response:
    to = visit.link("/login")
    if visit.is_fragment:
        return Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"HX-Redirect": to})
    if visit.request.method != "GET":
        raise Problem(HTTPStatus.UNAUTHORIZED, "Nobody is logged in, or no longer.", "Log in, and do it again.")
    path = _path(visit.request) + (f"?{visit.request.url.query}" if visit.request.url.query else "")
    return RedirectResponse(visit.link("/login", next=path if path != "/" else None), status_code=HTTPStatus.SEE_OTHER)


def _problem(visit: Visit, status: int, what: str, fix: str) -> Response:
    title = f"{int(status)} {HTTPStatus(status).phrase}"
    if visit.is_fragment:
        return _banner(visit, status, what, fix)
    section = _path(visit.request).lstrip("/").partition("/")[0]
    return visit.render(
        "problem.html",
        title=title,
        section=section if section in SECTIONS else "",
        status=int(status),
        number=int(status),
        what=what,
        fix=fix,
        lists=section in SECTIONS,
    )


def _away(visit: Visit, why: str) -> Response:
    status = HTTPStatus.SERVICE_UNAVAILABLE
    what = "The store does not answer."
    fix = f"Nothing here is lost: jobs are where they were. {why}"
    return (
        _banner(visit, status, what, fix)
        if visit.is_fragment
        else visit.render("problem.html", title=what, status=int(status), number=int(status), what=what, fix=fix, lists=False)
    )


def _banner(visit: Visit, status: int, what: str, fix: str) -> Response:
    """Return what is said above an open page, whose content stays as it was."""
    text = visit.ui.templates.get_template("banner.html").render(what=what, fix=fix)
    return HTMLResponse(text, status_code=status, headers={"HX-Retarget": "#banner", "HX-Reswap": "innerHTML"})


def _path(request: Request) -> str:
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", "")) or "/"


def _said(request: Request) -> str:
    try:
        return urlsafe_b64decode(request.cookies.get(SAID, "").encode()).decode()
    except ValueError:
        return ""


def _sentence(error: Exception) -> str:
    text = shown.plain(str(error))
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def _a(role: str) -> str:
    return f"an {role}" if role[0] in "aeiou" else f"a {role}"
