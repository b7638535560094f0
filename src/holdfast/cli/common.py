"""What every command shares: the store it talks to, how it prints, and how its mistakes are told."""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from cyclopts import Parameter

from holdfast.config import load
from holdfast.errors import BadSetting, BadUrl
from holdfast.notify.port import Hint
from holdfast.store.port import Store

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """The options that every command about a store has."""

    url: str | None = None
    """The store. Else HOLDFAST_URL, else `url` in holdfast.toml or in [tool.holdfast] of pyproject.toml."""

    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False
    """Print JSON: stable keys, ISO times."""


COMMON = Common()
Yes = Annotated[bool, Parameter(negative="")]
"""A flag that is on or left out."""


def run(common: Common, work: Callable[[Store], Awaitable[T]], *, create: bool = False) -> T:
    """Run `work` with the store of the command line, open; `create` makes a missing schema."""
    return asyncio.run(with_store(store_url(common.url), work, create=create))


async def with_store(url: str, work: Callable[[Store], Awaitable[T]], *, create: bool = False) -> T:
    """Run `work` with an open store."""
    from holdfast.connect import connect  # noqa: PLC0415  not needed for --help

    store = connect(url, create=create)
    try:
        await store.open()
        return await work(store)
    finally:
        await store.close()


async def tell(common: Common, hint: Hint) -> None:
    """Tell workers of what was changed: without it they would find out when they next look."""
    from holdfast.connect import Adapters  # noqa: PLC0415  not needed for --help

    notifier = Adapters(store_url(common.url)).notifier()
    notifier.hint(hint)
    await notifier.close()


def store_url(flag: str | None) -> str:
    """Return the URL of the store: from the flag, the environment or the file. Raises `BadSetting` when nobody says."""
    url = load({"url": flag}).settings.url
    if url is None:
        raise BadSetting(
            "which store? Say it in one of three ways:\n"
            "  --url sqlite:///jobs.db\n"
            "  export HOLDFAST_URL=postgresql://user@host/database\n"
            '  url = "…" in holdfast.toml, or in [tool.holdfast] of pyproject.toml'
        )
    if url.startswith("memory:"):
        raise BadUrl("a memory:// store lives and dies with its process: there is nothing to see from here")
    return url


def actor() -> str:
    """Return who acts, for the event log: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for its user
        user = "cli"
    return f"{user}@{socket.gethostname()}"
