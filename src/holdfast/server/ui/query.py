"""What is typed into the search field: filter tokens as on the command line, and two that only people need.

`task:x queue:y tag:z key:k state:failed chain:ID since:1h before:7d`, `error:CODE`, and `id:…` or an id by itself, which leads
to its job. A word without a colon is the name of a task. Values with spaces are quoted: `task:"send mail"`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast.core.states import State
from holdfast.finding import Mistake, job_filter
from holdfast.server.ui.shown import cause
from holdfast.store.port import SEARCH_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from holdfast.store.port import JobFilter, JobView, Store

SEARCHES: Final = 10
"""Looks of a store after which a person should see a page rather than wait for the rest."""
PAGE: Final = 500
BADLY_ENDED: Final = frozenset({State.FAILED, State.CANCELED})

_WORD: Final = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+|"')
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PLAIN: Final = re.compile(r'[^\s"\\]+')
_ID: Final = re.compile(r"[0-9a-fA-F]{8}(?:[0-9a-fA-F-]*|(?:\.\.|…)[0-9a-fA-F]+)")


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for."""

    text: str
    where: JobFilter
    error: str | None = None
    job: str | None = None
    """An id, whole or in part: leads to that job."""

    def matches(self, job: JobView) -> bool:
        """Tell whether a job that the store found is meant: it does not look at codes of errors."""
        if self.error is None or job.error is None:
            return self.error is None
        return self.error.casefold() in (job.error.code.casefold(), cause(job.error)[0].casefold())

    @property
    def counted(self) -> bool:
        """Whether the store's counts, which are by queue and task, are those of this search."""
        where = self.where
        return self.error is None and not any((where.tag, where.key, where.chain_id, where.created_from, where.created_before))


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a search for an action goes: whichever of these comes first."""

    limit: int
    """Matches that it returns."""
    late: Callable[[], bool] = lambda: False
    """Whether somebody has waited for it long enough."""
    after: UUID | None = None
    """The id behind which it begins; `None`: with the newest job."""
    until: UUID | None = None
    """The id at which it ends; `None`: with the oldest job."""


@dataclass(frozen=True, slots=True)
class Matches:
    """What a search for an action has found, the newest first."""

    ids: Sequence[UUID]
    more: bool = False
    """Whether there are more than it was to return."""
    looked: int = 0
    """How many jobs it has looked through, at least."""
    after: UUID | None = None
    """The id at which it was given up: what is older was not looked at. `None`: it has come to its end."""


def parse(text: str, now: datetime, *, states: frozenset[State] | None = None) -> Search:
    """Return what a text looks for; `states` holds unless the text names some. Raises `Mistake`."""
    tokens, error, job = [], None, None
    for word in words(text):
        name, colon, value = word.partition(":")
        if not colon:
            if _ID.fullmatch(word):
                job = word
            else:
                tokens.append(f"task:{word}")
        elif name == "error":
            error = value
        elif name == "id":
            job = value
        else:
            tokens.append(word)
    if error is not None:
        states = states or BADLY_ENDED
    return Search(text, job_filter(tokens, now, states=states), error, job)


def words(text: str) -> list[str]:
    """Return the words of a text, without their quotes."""
    return [_QUOTED.sub(lambda quoted: re.sub(r"\\(.)", r"\1", quoted[1]), word) for word in _WORD.findall(text)]


def token(name: str, value: str) -> str:
    """Return a token that `words` reads back as it was."""
    if _PLAIN.fullmatch(value):
        return f"{name}:{value}"
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}:"{quoted}"'


def with_token(text: str, name: str, value: str | None) -> str:
    """Return a search with this token instead of those of the same name; without it where there is no value."""
    kept = [word for word in words(text) if word.partition(":")[0] != name]
    parts = [token(*word.partition(":")[::2]) if ":" in word else token("task", word) for word in kept]
    return " ".join(parts if value is None else [*parts, token(name, value)])


async def find(
    store: Store, search: Search, seen: Callable[[JobView], bool], *, limit: int, after: UUID | None = None, most: int
) -> tuple[list[JobView], UUID | None, bool]:
    """Return the newest matches, where to go on (`None`: there are no more), and whether the search was not given up early.

    No more than `most` can match, by the counts. They are kept anyway; what is not read for it is every job of a task of which
    none has failed, each from a page of the disk of its own.
    """
    found: list[JobView] = []
    if not most:
        return found, None, True
    first = after is None
    for _ in range(SEARCHES):
        page = await store.find(search.where, limit=limit, after=after)
        for job in page.jobs:
            if search.matches(job) and seen(job):
                found.append(job)
                if len(found) == limit:
                    more = page.after is not None or job.id != page.jobs[-1].id
                    return found, job.id if more else None, True
        after = page.after
        if after is None or (first and len(found) >= most):
            return found, None, True
    return found, after, False


async def all_ids(store: Store, search: Search, seen: Callable[[JobView], bool], reach: Reach) -> Matches:
    """Return the ids of the newest matches, having looked no further than `reach` lets it.

    Every look of a store is short, however many jobs there are, and so no time-out of a statement ends a row of them.
    """
    found: list[UUID] = []
    looked, after = 0, reach.after
    for _ in range(SEARCHES + reach.limit // PAGE):
        page = await store.find(search.where, limit=PAGE, after=after)
        wanted = (job for job in page.jobs if reach.until is None or job.id >= reach.until)
        found += [job.id for job in wanted if search.matches(job) and seen(job)]
        looked += len(page.jobs) if page.searched_all else SEARCH_LIMIT
        after = page.after
        if len(found) > reach.limit:
            return Matches(found[: reach.limit], more=True, looked=looked)
        if after is None or (reach.until is not None and after <= reach.until):
            return Matches(found, looked=looked, after=None if after is None else reach.until)
        if reach.late():
            break
    return Matches(found, looked=looked, after=after)


def checked(text: str) -> str:
    """Return a search that a person typed, refused where it is too long to be one."""
    if len(text) > PAGE * 4:
        raise Mistake("this search is too long: 2,000 characters are enough for anyone")
    return text


def cursor(text: str | None) -> UUID | None:
    """Return a place in a list of jobs; `None`: its beginning. Raises `Mistake`."""
    if not text:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise Mistake(f"{text!r} is no place in the list: go back to its beginning") from None
