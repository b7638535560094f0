"""Which jobs or chains are meant: by id (whole, short or its beginning), or by filter tokens such as `state:failed task:a`."""

from __future__ import annotations

import re
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from holdfast.config import duration
from holdfast.core.states import STATE_GROUPS, State
from holdfast.errors import HoldfastError, JobNotFound
from holdfast.store.port import JobFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from datetime import datetime

    from holdfast.store.port import ChainView, JobView, Store

T = TypeVar("T")

if TYPE_CHECKING:
    Search = Callable[[int, UUID | None], Awaitable[tuple[Sequence[T], UUID | None]]]
    """Looks for at most so many, from a cursor on; returns them and where to go on."""

TOKENS: Final = ("state", "task", "queue", "tag", "key", "chain", "since", "before")
SHORTEST_PREFIX: Final = 8
PAGE: Final = 500
SHOWN_CANDIDATES: Final = 5
SEARCHES: Final = 10


class NotThere(HoldfastError):
    """What was asked about does not exist."""


class Mistake(HoldfastError):
    """A request that cannot be carried out as it was written."""


def job_filter(tokens: Sequence[str], now: datetime, *, states: frozenset[State] | None = None) -> JobFilter:
    """Return the filter that tokens describe; `states` holds unless they name some. Raises `Mistake`."""
    given: dict[str, Any] = {}
    for token in tokens:
        name, colon, value = token.partition(":")
        if not colon or not value or name not in TOKENS:
            raise Mistake(_unknown(token, name))
        if name == "state":
            given["states"] = given.get("states", frozenset()) | _states(value)
        elif name in given:
            raise Mistake(f"{name}: is given twice; a job has to match every token")
        else:
            given[name] = value
    times = {"since": "created_from", "before": "created_before"}
    for name, field in times.items():
        if name in given:
            given[field] = now - timedelta(seconds=seconds(given.pop(name), f"{name}:"))
    if "chain" in given:
        given["chain_id"] = _whole_id(given.pop("chain"))
    given.setdefault("states", states)
    return JobFilter(**given)


def seconds(text: str, option: str) -> float:
    """Return the seconds of a duration as people write it. Raises `Mistake`, naming where it stood."""
    try:
        return duration(text)
    except ValueError as error:
        raise Mistake(f"{option}: {error}") from None


def is_filter(words: Sequence[str]) -> bool:
    """Tell whether words are filter tokens rather than ids. Raises `Mistake` when they are both."""
    tokens = [word for word in words if ":" in word]
    if tokens and len(tokens) < len(words):
        raise Mistake("give either ids or filter tokens, not both")
    return bool(tokens)


async def job_ids(store: Store, words: Sequence[str]) -> list[UUID]:
    """Return the ids that are meant, each once. Raises `NotThere`, `Mistake`."""
    return list(dict.fromkeys([await job_id(store, word) for word in words]))


async def job_id(store: Store, word: str) -> UUID:
    """Return the id that is meant: a whole one, whether or not the job exists, or the only one that is like `word`.

    That is a beginning, or the short form `01890a5d..9a8057`: beginning and end. Raises `NotThere`, `Mistake`.
    """
    begin, _, end = word.lower().replace("-", "").replace("…", "..").partition("..")
    end = end.lstrip(".")
    if not re.fullmatch(r"[0-9a-f]{1,32}", begin) or not re.fullmatch(r"[0-9a-f]{0,24}", end):
        raise Mistake(
            f"{word!r} is no job id: a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057, "
            "or short, as `holdfast jobs ls` shows it: 01890a5d..9a8057"
        )
    if len(begin) == 32:  # noqa: PLR2004  a whole UUID
        return UUID(begin)
    if len(begin) < SHORTEST_PREFIX:
        raise Mistake(f"{word!r} is too short: give the whole id, or its first {SHORTEST_PREFIX} digits or more")
    found = [found async for found in _alike(store, begin, end)]
    if not found:
        raise NotThere(f"no job has an id like {word}: it never was, or it was deleted or pruned")
    if len(found) > 1:
        names = "\n  ".join(map(str, found[:SHOWN_CANDIDATES]))
        more = "\n  …" if len(found) > SHOWN_CANDIDATES else ""
        raise Mistake(f"several jobs have an id like {word} (its first digits are the time); which one?\n  {names}{more}")
    return found[0]


async def _alike(store: Store, begin: str, end: str) -> AsyncIterator[UUID]:
    """Go through the ids with this beginning and end, up to as many as are worth showing.

    Ids are listed newest first from a cursor on, so all that begin like this follow the largest possible one. Eight digits are
    about a minute of jobs: those are looked through, however many there are and however old.
    """
    count = 0
    after: UUID | None = UUID(begin.ljust(32, "f"))
    while after is not None and count <= SHOWN_CANDIDATES:
        page = await store.find(JobFilter(), limit=PAGE if end else SHOWN_CANDIDATES + 1, after=after)
        for job in page.jobs:
            if not job.id.hex.startswith(begin):
                return
            if job.id.hex.endswith(end):
                count += 1
                yield job.id
        after = page.after


async def one_job(store: Store, word: str) -> JobView:
    """Return the job that is meant. Raises `JobNotFound`, `NotThere`, `Mistake`."""
    wanted = await job_id(store, word)
    view = (await store.get([wanted]))[0]
    if view is None:
        raise JobNotFound(wanted)
    return view


def jobs_where(store: Store, where: JobFilter) -> Search[JobView]:
    """Return the search for the jobs of a filter."""

    async def search(limit: int, after: UUID | None) -> tuple[Sequence[JobView], UUID | None]:
        page = await store.find(where, limit=limit, after=after)
        return page.jobs, page.after

    return search


def chains_where(store: Store, where: JobFilter) -> Search[ChainView]:
    """Return the search for the chains of a filter."""

    async def search(limit: int, after: UUID | None) -> tuple[Sequence[ChainView], UUID | None]:
        page = await store.find_chains(where, limit=limit, after=after)
        return page.chains, page.after

    return search


async def listed(search: Search[T], *, limit: int, after: UUID | None, everything: bool) -> tuple[list[T], UUID | None, bool]:
    """Return what a list shows: the newest matches, or all of them. As `first_page`."""
    if not everything:
        return await first_page(search, limit=limit, after=after)
    return [one async for one in matching(search, limit=None, after=after)], None, True


async def first_page(search: Search[T], *, limit: int, after: UUID | None) -> tuple[list[T], UUID | None, bool]:
    """Return the newest matches, where to go on (`None`: there are no more), and whether the search was not given up early.

    Each search of a store is bounded; after some of them a person should hear that nothing was found rather than wait.
    """
    found: list[T] = []
    for _ in range(SEARCHES):
        page, after = await search(limit - len(found), after)
        found += page
        if after is None or len(found) >= limit:
            return found, after, True
    return found, after, False


async def matching(search: Search[T], *, limit: int | None, after: UUID | None = None) -> AsyncIterator[T]:
    """Go through the matches, newest first, also past the bound of one search."""
    count = 0
    while limit is None or count < limit:
        page, after = await search(PAGE if limit is None else min(PAGE, limit - count), after)
        for one in page:
            yield one
        count += len(page)
        if after is None:
            return


def _whole_id(value: str) -> UUID:
    try:
        return UUID(value)
    except ValueError:
        raise Mistake(f"chain:{value}: needs the whole id of the first job, as `holdfast chains ls --json` shows it") from None


def _states(value: str) -> frozenset[State]:
    found: frozenset[State] = frozenset()
    for word in value.split(","):
        if word in STATE_GROUPS:
            found |= STATE_GROUPS[word]
        elif word in set(State):
            found |= {State(word)}
        else:
            raise Mistake(f"state:{value}: {word!r} is none of {', '.join(State)}, nor {', '.join(STATE_GROUPS)}")
    return found


def _unknown(token: str, name: str) -> str:
    near = get_close_matches(name, TOKENS, n=1)
    hint = f"do you mean {near[0]}:…?" if near and ":" in token else f"there are {', '.join(f'{one}:…' for one in TOKENS)}"
    return f"{token!r} is no filter token: {hint}"
