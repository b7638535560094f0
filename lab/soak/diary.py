"""What producers write down: a line for each job they try to enqueue, and one for what they were told.

    ? ID KIND           it is about to be enqueued
    + ID KIND           it was acknowledged
    = ID KIND HOLDER    it was acknowledged that HOLDER has its unique key: no job was made
    - ID KIND           its transaction was rolled back on purpose: there must be no such job
    ! ID KIND ERROR     nobody knows: the store did not answer, or the producer gave up
    x ID KIND ANSWER    its cancel is about to be asked for (asked), or was answered (taken, refused)
    o ID KIND ANSWER    its completion from outside, likewise

A file that only grows, one write for each call: a producer that is killed leaves everything that it had written before. What
was tried or asked for and never answered is unknown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TRIED, KEPT, HELD, UNDONE, FAILED, CANCEL, COMPLETE = "?", "+", "=", "-", "!", "x", "o"
ASKED, TAKEN, REFUSED = "asked", "taken", "refused"


class Diary:
    """The file of one producer, over all its lives."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, sign: str, jobs: Iterable[tuple[object, str]], more: str = "") -> None:
        """Append a line for each job, by its id and kind."""
        text = "".join(f"{sign} {job_id} {kind}{' ' + more if more else ''}\n" for job_id, kind in jobs)
        os.write(self._descriptor, text.encode())

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


@dataclass(slots=True)
class Asked:
    """What became of the requests to end one job in one way."""

    times: int = 0
    taken: int = 0
    refused: int = 0

    @property
    def in_vain(self) -> bool:
        """Whether each was refused: it surely changed nothing. One that was never answered may have."""
        return self.times == self.refused


@dataclass(slots=True)
class Told:
    """What all producers know together."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    """Ids of jobs that must be there, with their kinds."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Jobs that may be there."""
    undone: dict[str, str] = field(default_factory=dict)
    """Jobs that must not be there."""
    held: int = 0
    """How often a unique key was found taken."""
    lines: list[list[str]] = field(default_factory=list)
    """For each producer the jobs of the queue that keeps its order, each acknowledged before the next was tried."""

    cancels: dict[str, Asked] = field(default_factory=dict)
    """Jobs whose cancel was asked for."""
    completions: dict[str, Asked] = field(default_factory=dict)
    """Jobs whose completion from outside was asked for."""

    def read(self, path: Path, ordered: str) -> None:
        """Take a diary into account; `ordered` is the kind whose order matters."""
        line: list[str] = []
        for text in path.read_text().splitlines(keepends=True):
            if text.endswith("\n"):
                self._see(text.split(), line, ordered)
        self.lines.append(line)

    def _see(self, words: list[str], line: list[str], ordered: str) -> None:
        sign, job_id, kind = words[:3]
        if sign == TRIED:
            if job_id not in self.acknowledged:
                self.unknown[job_id] = kind
        elif sign == FAILED:
            pass  # it was tried, and stays unknown
        elif sign in (CANCEL, COMPLETE):
            _count((self.cancels if sign == CANCEL else self.completions).setdefault(job_id, Asked()), words[3])
        else:
            self.unknown.pop(job_id, None)
            if sign == KEPT:
                self.acknowledged[job_id] = kind
                if kind == ordered:
                    line.append(job_id)
            elif sign == HELD:
                self.held += 1
                self.acknowledged[words[3]] = kind
            elif sign == UNDONE:
                self.undone[job_id] = kind


def _count(asked: Asked, word: str) -> None:
    if word == ASKED:
        asked.times += 1
    elif word == TAKEN:
        asked.taken += 1
    else:
        asked.refused += 1
