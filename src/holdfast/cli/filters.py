"""Which jobs are meant: by id (whole, short or its beginning), or by filter tokens such as `state:failed task:mail.send`."""

from __future__ import annotations

import re
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from holdfast.cli.common import Mistake, NotThere, seconds
from holdfast.core.states import LIVE, TERMINAL, WAITING, State
from holdfast.errors import JobNotFound
from holdfast.store.port import JobFilter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from holdfast.store.port import JobView, Store

GROUPS: Final = {"live": LIVE, "waiting": WAITING, "ended": TERMINAL}
"""Words for several states."""
TOKENS: Final = ("state", "task", "queue", "tag", "key", "since", "before")
SHORTEST_PREFIX: Final = 8
PAGE: Final = 500
SHOWN_CANDIDATES: Final = 5
SEARCHES: Final = 10


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
    given.setdefault("states", states)
    return JobFilter(**given)


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


async def first_page(
    store: Store, where: JobFilter, *, limit: int, after: UUID | None
) -> tuple[list[JobView], UUID | None, bool]:
    """Return the newest matches, where to go on (`None`: there are no more), and whether the search was not given up early.

    Each search of a store is bounded; after some of them a person should hear that nothing was found rather than wait.
    """
    jobs: list[JobView] = []
    for _ in range(SEARCHES):
        page = await store.find(where, limit=limit - len(jobs), after=after)
        jobs += page.jobs
        after = page.after
        if after is None or len(jobs) >= limit:
            return jobs, after, True
    return jobs, after, False


async def matching(store: Store, where: JobFilter, *, limit: int | None, after: UUID | None = None) -> AsyncIterator[JobView]:
    """Go through the jobs of a filter, newest first, also past the bound of one search."""
    count = 0
    while limit is None or count < limit:
        page = await store.find(where, limit=PAGE if limit is None else min(PAGE, limit - count), after=after)
        for job in page.jobs:
            yield job
        count += len(page.jobs)
        after = page.after
        if after is None:
            return


def _states(value: str) -> frozenset[State]:
    found: frozenset[State] = frozenset()
    for word in value.split(","):
        if word in GROUPS:
            found |= GROUPS[word]
        elif word in set(State):
            found |= {State(word)}
        else:
            raise Mistake(f"state:{value}: {word!r} is none of {', '.join(State)}, nor {', '.join(GROUPS)}")
    return found


def _unknown(token: str, name: str) -> str:
    near = get_close_matches(name, TOKENS, n=1)
    hint = f"do you mean {near[0]}:…?" if near and ":" in token else f"there are {', '.join(f'{one}:…' for one in TOKENS)}"
    return f"{token!r} is no filter token: {hint}"
