"""The commands, by name. What a command line does not name is not loaded."""

import importlib
import sys
from collections.abc import Sequence
from typing import Final, Literal

from cyclopts import App, CycloptsError, Parameter

import holdfast
from holdfast.cli import output
from holdfast.cli.contributed import Contribution, contributions
from holdfast.errors import MissingExtra

HELP: Final = """Durable jobs for Python.

The store is named by --url, by HOLDFAST_URL, or by `url` in holdfast.toml or [tool.holdfast] of pyproject.toml.

Exit codes: 0 done, 1 error, 2 wrong usage, 3 not found, 130 interrupted.
"""

GROUPS: Final = {
    "jobs": "List, explain, retry, cancel, complete and delete jobs.",
    "chains": "List, show, cancel, retry and delete chains.",
    "queues": "List, pause and resume queues.",
    "limits": "List, set and clear limits: how many run at once, and how often they start.",
    "workers": "List, disable, enable, drain and revoke workers.",
    "schedules": "List what is enqueued again and again.",
    "alerts": "Where alerts go, what was delivered, and a test.",
    "keys": "Make, list, rotate and revoke the keys of a server.",
}

COMMANDS: Final = {
    "demo": "demo:demo",
    "worker": "worker:worker",
    "manager": "manager:manager",
    "server": "server:server",
    "enqueue": "enqueue:enqueue",
    "watch": "watch:watch",
    "jobs ls": "jobs:ls",
    "jobs show": "jobs:show",
    "jobs why": "jobs:why",
    "jobs logs": "logs:logs",
    "jobs retry": "steering:retry",
    "jobs cancel": "steering:cancel",
    "jobs delete": "steering:delete",
    "jobs complete": "outside:complete",
    "jobs fail": "outside:fail",
    "chains ls": "chains:ls",
    "chains show": "chains:show",
    "chains retry": "chaining:retry",
    "chains cancel": "chaining:cancel",
    "chains delete": "chains:delete",
    "signal": "outside:signal",
    "queues ls": "queues:ls",
    "queues pause": "queues:pause",
    "queues resume": "queues:resume",
    "limits ls": "limits:ls",
    "limits set": "limits:set_limit",
    "limits clear": "limits:clear",
    "workers ls": "workers:ls",
    "workers disable": "workers:disable",
    "workers enable": "workers:enable",
    "workers drain": "workers:drain",
    "workers revoke": "workers:revoke",
    "schedules ls": "workers:schedules",
    "alerts ls": "alerts:ls",
    "alerts log": "alerts:log",
    "alerts test": "alerts:test",
    "alerts secret": "alerts:secret",
    "keys add": "keys:add",
    "keys ls": "keys:ls",
    "keys rotate": "keys:rotate",
    "keys revoke": "keys:revoke",
    "keys secret": "keys:secret",
    "audit": "audit:audit",
    "top": "top:top",
    "doctor": "doctor:doctor",
    "config": "housekeeping:config",
    "migrate": "housekeeping:migrate",
    "move": "move:move",
    "prune": "housekeeping:prune",
    "bench": "bench:bench",
    "load": "load:load",
    "completion": "commands:completion",
}
"""Command -> module of this package, and the function in it. In the order in which help shows them."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run what it names; returns the exit code. Mistakes in the command line itself end with 2."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = build(words)(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        output.note(f"error: {error}\nSee: {' '.join(['holdfast', *(error.command_chain or ())])} --help")
        return output.USAGE
    return code if isinstance(code, int) else output.OK


def build(words: Sequence[str] = ()) -> App:
    """Return the program with the command that the words name; when they name none, with all that could be meant."""
    app = App(
        name="holdfast",
        help=HELP,
        version=holdfast.__version__,
        help_format="markdown",
        default_parameter=Parameter(show_default=False),
    )
    groups = {name: App(name=name, help=text, sort_key=_place(name)) for name, text in GROUPS.items()}
    for group in groups.values():
        app.command(group)
    for name in _meant(words):
        group_name, _, own_name = name.rpartition(" ")
        module, _, function = COMMANDS[name].partition(":")
        command = getattr(importlib.import_module(f"holdfast.cli.{module}"), function)
        (groups[group_name] if group_name else app).command(command, name=own_name, sort_key=_place(name))
    for place, contribution in enumerate(_brought(words), start=len(COMMANDS)):
        app.command(_group(contribution, words, place))
    return app


def _brought(words: Sequence[str]) -> list[Contribution]:
    """Return the groups of other packages that could be meant; what names one of our own commands does not look for them."""
    if words and words[0] in {name.split()[0] for name in COMMANDS}:
        return []
    found = contributions()
    own = {name.split()[0] for name in COMMANDS}
    return [one for name, one in found.items() if name not in own and (not words or words[0] not in found or words[0] == name)]


def _group(contribution: Contribution, words: Sequence[str], place: int) -> App:
    """Return a group of another package: with its commands where it is named, else with what help says of it alone."""
    group = App(name=contribution.name, help=contribution.text, sort_key=place)
    named = bool(words) and words[0] == contribution.name
    if words and not named:
        return group
    try:
        commands = contribution.commands()
    except MissingExtra:
        if named:
            raise
        return group
    meant = {words[1]} & set(commands) if len(words) > 1 else set()
    for at, (name, where) in enumerate(commands.items()):
        if not meant or name in meant:
            group.command(contribution.command(where), name=name, sort_key=at)
    return group


def _meant(words: Sequence[str]) -> list[str]:
    exact = [name for name in COMMANDS if name.split() == list(words[: len(name.split())])]
    return exact or [name for name in COMMANDS if words and name.split()[0] == words[0]] or list(COMMANDS)


def _place(name: str) -> int:
    return next(place for place, command in enumerate(COMMANDS) if command == name or command.startswith(f"{name} "))


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands and options.

    Example: holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    print(build().generate_completion(shell=shell))
