"""From an exception to an outcome: what is worth another attempt, and what is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping  # noqa: TC003  dataclass fields, kept readable for introspection
from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.core.outcome import Error, Failed, Outcome, Rescheduled, Stopped
from holdfast.errors import Cancel, Fatal, HoldfastError, Reschedule, Retryable

_WORD = re.compile(r"[A-Z][A-Z0-9_]*")


class Verdict(StrEnum):
    """Whether another attempt could help."""

    RETRYABLE = "retryable"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class Classification:
    """The rules, asked in this order: what the error itself says, the hook, the table of codes, the default.

    Unknown errors are retryable unless `default` says otherwise.
    """

    codes: Mapping[str, Verdict] = field(default_factory=dict)
    hook: Callable[[BaseException], Verdict | None] | None = None
    default: Verdict = Verdict.RETRYABLE

    def verdict(self, error: BaseException, code: str) -> Verdict:
        """Return whether `error`, known by `code`, is worth another attempt."""
        if isinstance(error, Fatal):
            return Verdict.FATAL
        if isinstance(error, Retryable):
            return Verdict.RETRYABLE
        if (verdict := self._ask_hook(error)) is not None:
            return verdict
        return self.codes.get(code, self.default)

    def _ask_hook(self, error: BaseException) -> Verdict | None:
        if self.hook is None:
            return None
        try:
            return self.hook(error)
        except Exception:  # noqa: BLE001  a broken hook must not hide the error it was asked about
            return None


DEFAULT_CLASSIFICATION = Classification()


def code_of(error: BaseException) -> str:
    """Return the code of an error: its own `code` where that is a word in upper case, else the name of its class.

    Libraries use the name for other things: SQLAlchemy for the address of a help page. Errors of Holdfast's own say what they
    mean, and are taken at their word.
    """
    try:
        code = getattr(error, "code", None)
    except Exception:  # noqa: BLE001  a property of the user's class may raise anything
        code = None
    if isinstance(code, str) and code and (isinstance(error, HoldfastError) or _WORD.fullmatch(code)):
        return code
    return type(error).__name__


def outcome_of(error: BaseException, rules: Classification = DEFAULT_CLASSIFICATION, *, traceback: str = "") -> Outcome:
    """Return what an attempt that raised `error` gave."""
    if isinstance(error, Cancel):
        return Stopped(error.reason)
    if isinstance(error, Reschedule):
        return Rescheduled(after=error.after, at=error.at)
    why = error_of(error, traceback=traceback)
    return Failed(why, fatal=rules.verdict(error, why.code) is Verdict.FATAL)


def error_of(error: BaseException, *, traceback: str = "") -> Error:
    """Return what is kept of an error: its code, its text and where it was raised."""
    return Error(code_of(error), _message(error), traceback)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001  an exception whose __str__ raises must not take the worker with it
        return f"(the error's own text could not be read: {type(broken).__name__})"
