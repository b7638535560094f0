"""`holdfast jobs retry`, `cancel` and `delete`: one job, several, or all that match a filter."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from cyclopts import Parameter

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, Yes, actor, run, tell
from holdfast.core.states import LIVE, TERMINAL, State
from holdfast.finding import Mistake, is_filter, job_filter, job_ids, jobs_where, matching
from holdfast.notify.port import Hint
from holdfast.store.port import Answer, Store

BATCH = 500
SHOWN = 20
MOST_TOLD = 100
"""Jobs that a hint names; of more, workers find out when they look."""
MOST = 10_000

Limit = Annotated[int, Parameter(alias="-n")]


@dataclass(frozen=True, slots=True)
class Verb:
    """What is done to jobs, and to which when a filter names no state."""

    name: str
    done: str
    states: frozenset[State]
    act: Callable[[Store, Sequence[UUID]], Awaitable[list[Answer]]]
    refused: str
    """Why a job may be refused, and what to do."""
    chained: str
    """What to do about a step in the middle of a chain; `{chain}` is that."""


def retry(*jobs: str, yes: Yes = False, dry_run: Yes = False, limit: Limit = MOST, common: Common = COMMON) -> int:
    """Bring jobs that have ended back with a fresh budget.

    Example: holdfast jobs retry state:failed task:mail.send since:1d --yes

    Parameters
    ----------
    jobs
        Ids (whole, or short as `jobs ls` shows them), or filter tokens as for `jobs ls`. Tokens without a state:
        failed and canceled.
    yes
        Needed with filter tokens.
    dry_run
        Only say which jobs it would be.
    limit
        With filter tokens: at most so many, the newest.
    """

    async def act(store: Store, ids: Sequence[UUID]) -> list[Answer]:
        return await store.reopen(ids, by=actor())

    states = frozenset({State.FAILED, State.CANCELED})
    refused = "it has not ended: cancel it first (holdfast jobs cancel ID)"
    chained = "it is one of several steps of a chain, which goes on from its last one: holdfast chains retry {chain}"
    verb = Verb("retry", "to run again", states, act, refused, chained)
    return _steer(verb, jobs, yes=yes, dry_run=dry_run, limit=limit, common=common)


def cancel(
    *jobs: str, reason: str = "", yes: Yes = False, dry_run: Yes = False, limit: Limit = MOST, common: Common = COMMON
) -> int:
    """Cancel jobs: waiting ones at once, running ones through their worker.

    Example: holdfast jobs cancel 01890a5d-ac96-774b-bcce-b302099a8057 --reason "wrong file"

    Parameters
    ----------
    jobs
        Ids (whole, or short as `jobs ls` shows them), or filter tokens as for `jobs ls`. Tokens without a state:
        all live jobs.
    reason
        Kept with the job, for those who look later.
    yes
        Needed with filter tokens.
    dry_run
        Only say which jobs it would be.
    limit
        With filter tokens: at most so many, the newest.
    """

    async def act(store: Store, ids: Sequence[UUID]) -> list[Answer]:
        return await store.cancel(ids, by=actor(), reason=reason)

    chained = "it has ended, and its chain goes on. To end that: holdfast chains cancel {chain}"
    verb = Verb("cancel", "canceled", LIVE, act, "it has ended already", chained)
    return _steer(verb, jobs, yes=yes, dry_run=dry_run, limit=limit, common=common)


def delete(*jobs: str, yes: Yes = False, dry_run: Yes = False, limit: Limit = MOST, common: Common = COMMON) -> int:
    """Remove jobs with all their records, in whatever state; a running one loses its lease.

    Example: holdfast jobs delete state:succeeded tag:import before:7d --yes

    Parameters
    ----------
    jobs
        Ids (whole, or short as `jobs ls` shows them), or filter tokens as for `jobs ls`. Tokens without a state:
        jobs that have ended.
    yes
        Needed with filter tokens.
    dry_run
        Only say which jobs it would be.
    limit
        With filter tokens: at most so many, the newest.
    """

    async def act(store: Store, ids: Sequence[UUID]) -> list[Answer]:
        return await store.delete(ids, by=actor())

    refused = "a live job waits for it, or will be handed its result: cancel that one first"
    chained = "it is one of several steps of a chain, which is deleted as a whole: holdfast chains delete {chain}"
    verb = Verb("delete", "deleted", TERMINAL, act, refused, chained)
    return _steer(verb, jobs, yes=yes, dry_run=dry_run, limit=limit, common=common)


def _steer(verb: Verb, words: Sequence[str], *, yes: bool, dry_run: bool, limit: int, common: Common) -> int:
    if not words:
        raise Mistake(f"which jobs? Give ids, or filter tokens such as state:failed. See: holdfast jobs {verb.name} --help")
    if limit < 1:
        raise Mistake(f"--limit must be 1 or more, not {limit}")
    by_filter = is_filter(words)

    async def work(store: Store) -> int:
        ids, more = await _chosen(store, verb, words, limit) if by_filter else (await job_ids(store, words), False)
        if dry_run or (by_filter and not yes):
            return _only_say(verb, ids, more=more, dry_run=dry_run, as_json=common.as_json)
        answers: dict[UUID, Answer] = {}
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            answers.update(zip(batch, await verb.act(store, batch), strict=True))
        await tell(common, Hint(later=True, jobs=frozenset(list(answers)[:MOST_TOLD]), anything=True))
        chains = {} if by_filter else await _live_chains(store, answers)
        return _told(verb, answers, chains, more=more, as_json=common.as_json, by_filter=by_filter)

    return run(common, work)


async def _live_chains(store: Store, answers: Mapping[UUID, Answer]) -> dict[UUID, UUID]:
    """Return the chains of those that were refused because they are steps: of what has ended, only if its chain has not."""
    asked = [job_id for job_id, answer in answers.items() if answer in (Answer.REFUSED, Answer.CHAINED)]
    steps = {view.id: view.chain_id for view in await store.get(asked) if view is not None and view.chain_id is not None}
    live = {view.id for view in await store.chains(list(set(steps.values()))) if view is not None and view.state in LIVE}
    return {step: chain for step, chain in steps.items() if chain in live or answers[step] is Answer.CHAINED}


async def _chosen(store: Store, verb: Verb, words: Sequence[str], limit: int) -> tuple[list[UUID], bool]:
    where = job_filter(words, await store.now(), states=verb.states)
    ids = [job.id async for job in matching(jobs_where(store, where), limit=limit + 1)]
    return ids[:limit], len(ids) > limit


def _only_say(verb: Verb, ids: Sequence[UUID], *, more: bool, dry_run: bool, as_json: bool) -> int:
    """Say which jobs it would be; without --dry-run that is a refusal, for --yes is missing."""
    if as_json:
        output.print_json({"dry_run": True, "jobs": ids, "more": more})
    elif dry_run:
        for job_id in ids[:SHOWN]:
            print(job_id)
        output.note(_count(verb, ids, more=more) + (f", the first {SHOWN} are shown" if len(ids) > SHOWN else ""))
    if dry_run:
        return output.OK
    output.note(f"error: {_count(verb, ids, more=more)}. To do it: the same with --yes; to see which: --dry-run")
    return output.USAGE


def _count(verb: Verb, ids: Sequence[UUID], *, more: bool) -> str:
    least = f"the newest {len(ids)} of more" if more else str(len(ids))
    return f"{verb.name} would act on {least} job(s)"


def _told(
    verb: Verb, answers: Mapping[UUID, Answer], chains: Mapping[UUID, UUID], *, more: bool, by_filter: bool, as_json: bool
) -> int:
    counts = Counter(answers.values())
    if as_json:
        output.print_json({"answers": answers, "counts": counts, "more": more})
    elif by_filter:
        print(", ".join(f"{count} {_word(verb, answer)}" for answer, count in counts.items()) or "no job matches")
    else:
        for job_id, answer in answers.items():
            if answer in (Answer.DONE, Answer.REQUESTED):
                print(f"{job_id}: {_word(verb, answer)}")
            else:
                output.note(f"error: {job_id}: {_word(verb, answer, chains.get(job_id))}")
    if more:
        output.note("there are more: the cap of --limit was reached; do the same again for the rest")
    if by_filter:  # what changed its state meanwhile is no mistake of the caller's
        return output.OK
    if counts[Answer.NOT_FOUND]:
        return output.NOT_FOUND
    return output.OK if set(counts) <= {Answer.DONE, Answer.REQUESTED} else output.ERROR


def _word(verb: Verb, answer: Answer, chain: UUID | None = None) -> str:
    chained = f"refused: {verb.chained.replace('{chain}', str(chain or 'ID'))}"
    return {
        Answer.DONE: verb.done,
        Answer.REQUESTED: "asked to stop; its worker ends it",
        Answer.REFUSED: f"refused: {verb.refused}" if chain is None else chained,
        Answer.NOT_FOUND: "not found: it never was, or it was deleted or pruned",
        Answer.KEY_TAKEN: "refused: another live job holds its unique key",
        Answer.NEEDED: f"refused: {verb.refused}",
        Answer.CHAINED: chained,
    }[answer]
