"""`holdfast chains cancel` and `retry`: a whole chain, at the step where it stands."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from holdfast.cli import output
from holdfast.cli.common import COMMON, Common, actor, run, tell
from holdfast.core.states import TERMINAL
from holdfast.errors import JobNotFound
from holdfast.finding import Mistake, one_job
from holdfast.notify.port import Hint
from holdfast.store.port import Answer, ChainView, Store


@dataclass(frozen=True, slots=True)
class Verb:
    """What is done to chains: to those that have ended, or to those that have not."""

    name: str
    done: str
    ended: bool
    act: Callable[[Store, Sequence[UUID]], Awaitable[list[Answer]]]


def cancel(*chains: str, reason: str = "", common: Common = COMMON) -> int:
    """Cancel chains: the step that waits or runs now, whichever that is, and nothing follows.

    Example: holdfast chains cancel 01890a5d..9a8057 --reason "the customer withdrew"

    Parameters
    ----------
    chains
        The ids of their first jobs, or of any step: whole, or short as lists show them.
    reason
        Why, for those who look later.
    """

    async def act(store: Store, ids: Sequence[UUID]) -> list[Answer]:
        return await store.cancel(ids, by=actor(), reason=reason)

    return _steer(Verb("cancel", "canceled at", ended=False, act=act), chains, common)


def retry(*chains: str, common: Common = COMMON) -> int:
    """Bring chains that have ended back at their last step, with a fresh budget: they go on from there.

    Example: holdfast chains retry 01890a5d..9a8057

    Parameters
    ----------
    chains
        The ids of their first jobs, or of any step: whole, or short as lists show them.
    """

    async def act(store: Store, ids: Sequence[UUID]) -> list[Answer]:
        return await store.reopen(ids, by=actor())

    return _steer(Verb("retry", "goes on at", ended=True, act=act), chains, common)


def _steer(verb: Verb, words: Sequence[str], common: Common) -> int:
    if not words:
        raise Mistake(f"which chains? Give the ids of their first jobs. See: holdfast chains {verb.name} --help")

    async def work(store: Store) -> int:
        views = [await _chain_of(store, word) for word in words]
        answers = [await _done(store, verb, view) for view in views]
        await tell(common, Hint(later=True, jobs=frozenset(view.step for view, _ in answers), anything=True))
        if common.as_json:
            output.print_json({"answers": {view.id: answer for view, answer in answers}})
        else:
            for view, answer in answers:
                _tell_of(verb, view, answer)
        well = all(answer in (Answer.DONE, Answer.REQUESTED) for _, answer in answers)
        return output.OK if well else output.ERROR

    return run(common, work)


async def _chain_of(store: Store, word: str) -> ChainView:
    job = await one_job(store, word)
    return await _look(store, job.chain_id or job.id)


async def _look(store: Store, chain_id: UUID) -> ChainView:
    view = (await store.chains([chain_id]))[0]
    if view is None:
        raise JobNotFound(chain_id)
    return view


async def _done(store: Store, verb: Verb, view: ChainView) -> tuple[ChainView, Answer]:
    """Do it where the chain stands; a step that continues meanwhile is followed."""
    while (view.state in TERMINAL) is verb.ended:
        [answer] = await verb.act(store, [view.step])
        now = await _look(store, view.id)
        if answer is not Answer.REFUSED or now.step == view.step:
            return view, answer
        view = now
    return view, Answer.REFUSED


def _tell_of(verb: Verb, view: ChainView, answer: Answer) -> None:
    where = f"its step {view.steps}, {view.step_task}"
    match answer:
        case Answer.DONE:
            print(output.harmless(f"{view.id}: {verb.done} {where}"))
        case Answer.REQUESTED:
            print(output.harmless(f"{view.id}: asked to stop at {where}; its worker ends it"))
        case Answer.KEY_TAKEN:
            output.note(f"error: {view.id}: refused: another live job holds its unique key")
        case _ if view.state in TERMINAL:
            output.note(f"error: {view.id}: refused: it has ended already, as {view.state}")
        case _:
            output.note(output.harmless(f"error: {view.id}: refused: it has not ended, it is {view.state} at {where}"))
