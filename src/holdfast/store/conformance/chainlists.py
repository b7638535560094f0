"""Looking at chains: by their first steps, and in lists with filters and cursors."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Any

from uuid_utils.compat import uuid7

from holdfast.core.states import TERMINAL, State
from holdfast.store.conformance.chains import at_step, second_step
from holdfast.store.conformance.world import BLOCKER_TASK, HOUR, NEXT_TASK, OTHER_TASK, TASK, Subject, World, ids
from holdfast.store.port import ChainView, JobFilter

if TYPE_CHECKING:
    from uuid import UUID


async def all_chains(world: World, where: JobFilter | None = None, *, limit: int = 100) -> list[ChainView]:
    """Return every chain of a list, following its cursors to the end."""
    found: list[ChainView] = []
    after: UUID | None = None
    for _ in range(10_000):
        page = await world.store.find_chains(where or JobFilter(), limit=limit, after=after)
        found.extend(page.chains)
        if page.after is None:
            return found
        after = page.after
    raise AssertionError("the list never ended: 10,000 pages and still a cursor")


async def put_step(world: World, step: UUID, task: str, state: State) -> None:
    """Bring a step that waits into a state."""
    if state is State.RUNNING or state in TERMINAL:
        claimed = await world.claim_only(step, tasks=(task,))
        if state in TERMINAL:
            await world.end(claimed, state)


async def mixed(world: World) -> list[UUID]:
    """Make chains of two steps, of several tasks, queues, tags and keys, with one in each state; return their ids."""
    chains = []
    blocker = await world.create(task=BLOCKER_TASK)
    for state in State:
        for queue in ("a", "b"):
            task = TASK if queue == "a" else OTHER_TASK
            chain = await world.chain(task=task, queue=queue, tags=(queue, "all"), key=f"{state}:{queue}", lease=9 * HOUR)
            first = await world.claim_only(chain, tasks=(task,))
            fields: dict[str, Any] = {}
            if state is State.SCHEDULED:
                fields["delay"] = 9 * HOUR
            elif state is State.BLOCKED:
                fields["after"] = (blocker,)
            following = f"{NEXT_TASK}.{chain}"
            step = await world.proceed(first, task=following, queue="other", lease=9 * HOUR, **fields)
            await put_step(world, step, following, state)
            chains.append(chain)
    return chains


class ChainLists(Subject):
    """chains() and find_chains()."""

    async def test_job_that_never_continued_is_a_chain_of_one(self, world: World) -> None:
        job = world.job(queue="q", tags=("t",), key="k")
        await world.enqueue(job)
        claimed = await world.claim_only(job.id)
        await world.succeed(claimed, '"done"')

        view, last = await world.chain_view(job.id), await world.view(job.id)

        assert view == ChainView(
            id=job.id,
            task=TASK,
            queue="q",
            created_at=last.created_at,
            key="k",
            tags=("t",),
            steps=1,
            step=job.id,
            step_task=TASK,
            state=State.SUCCEEDED,
            finished_at=last.finished_at,
            result='"done"',
        )

    async def test_chains_are_answered_in_the_order_asked(self, world: World) -> None:
        chain, later = await second_step(world)
        plain = await world.create()

        views = await world.store.chains([plain, uuid7(), chain, later, plain])

        assert [view and view.id for view in views] == [plain, None, chain, None, plain], "a later step is no chain"
        assert await world.store.chains([]) == []

    async def test_list_shows_what_began_as_a_chain_or_has_continued(self, world: World) -> None:
        first = await world.chain(task=BLOCKER_TASK)
        plain = await world.create(task=BLOCKER_TASK)
        continued = await world.claimed()
        await world.proceed(continued)

        listed = await all_chains(world)

        assert [chain.id for chain in listed] == sorted([first, continued.job_id], reverse=True)
        assert plain not in [chain.id for chain in listed]

    async def test_list_shows_what_chains_shows_newest_first(self, world: World) -> None:
        chains = await mixed(world)

        listed = await all_chains(world)

        assert [chain.id for chain in listed] == sorted(chains, reverse=True)
        assert listed == await world.store.chains([chain.id for chain in listed])
        assert {chain.state for chain in listed} == set(State), "a chain stands where its last step stands"

    async def test_every_filter_and_combination_of_chains(self, world: World) -> None:
        chains = await mixed(world)
        await world.store.rewind(HOUR)
        new = await world.chain(task=OTHER_TASK, queue="a", tags=("a", "fresh"), key="new")
        views = await all_chains(world)
        assert {chain.id for chain in views} == {*chains, new}
        border = (await world.view(new)).created_at
        states = (frozenset({State.READY}), TERMINAL, frozenset({State.BLOCKED, State.RUNNING}), frozenset[State]())
        given: dict[str, tuple[Any, ...]] = {
            "states": states,
            "task": (TASK, OTHER_TASK, NEXT_TASK),
            "queue": ("a", "b", "other"),
            "tag": ("all", "fresh", "b"),
            "key": ("new", "ready:b"),
            "created_from": (border,),
            "created_before": (border,),
        }
        alone = [{name: value} for name, values in given.items() for value in values]
        together = [
            {name: value for field in fields for name, value in field.items()}
            for count in (2, 3)
            for fields in combinations(alone, count)
        ]
        for fields in [*alone, *Random(4).sample(together, 60)]:  # noqa: S311  a seed, so that a failure repeats
            where = JobFilter(**fields)
            expected = [view.id for view in views if self.shows(where, view)]
            found = [chain.id for chain in await all_chains(world, where)]
            assert found == expected, f"find_chains({where}) differs from a search by hand"

    def shows(self, where: JobFilter, view: ChainView) -> bool:
        """Say by hand whether a filter shows a chain."""
        return (
            (where.states is None or view.state in where.states)
            and where.task in (None, view.task)
            and where.queue in (None, view.queue)
            and where.tag in (None, *view.tags)
            and where.key in (None, view.key)
            and (where.created_from is None or view.created_at >= where.created_from)
            and (where.created_before is None or view.created_at < where.created_before)
        )

    async def test_cursor_walks_every_chain_once_while_new_ones_begin(self, world: World) -> None:
        old = [await world.chain() for _ in range(11)]
        seen: list[UUID] = []
        after: UUID | None = None
        for _ in range(100):
            page = await world.store.find_chains(JobFilter(task=TASK), limit=3, after=after)
            seen += [chain.id for chain in page.chains]
            after = page.after
            if after is None:
                break
            await world.chain()
            await world.create()

        assert seen == sorted(old, reverse=True), "each old chain once, in order, and none of the new"

    async def test_page_of_exactly_the_limit_ends_the_list_of_chains(self, world: World) -> None:
        chains = [await world.chain() for _ in range(4)]

        full = await world.store.find_chains(JobFilter(), limit=4)
        part = await world.store.find_chains(JobFilter(), limit=3)
        rest = await world.store.find_chains(JobFilter(), limit=3, after=part.after)

        assert (len(full.chains), full.after, full.searched_all) == (4, None, True)
        assert (len(part.chains), part.after) == (3, part.chains[-1].id)
        assert [chain.id for chain in (*part.chains, *rest.chains)] == sorted(chains, reverse=True)
        assert rest.after is None

    async def test_steps_of_a_chain_can_be_listed(self, world: World) -> None:
        chain, last = await at_step(world, 5)
        await world.chain(task=BLOCKER_TASK)
        plain = await world.create(task=BLOCKER_TASK)

        steps = await world.all_jobs(JobFilter(chain_id=chain), limit=2)
        running = await world.all_jobs(JobFilter(chain_id=chain, states=frozenset({State.RUNNING})))

        assert ids(steps) == sorted(ids(steps), reverse=True)
        path = {view.id: view.continued_by for view in steps}
        walked = [chain]
        while (following := path[walked[-1]]) is not None:
            walked.append(following)
        assert (len(path), len(walked), walked[-1]) == (5, 5, last.job_id), "each step names the one that follows it"
        assert ids(running) == [last.job_id]
        assert ids(await world.all_jobs(JobFilter(chain_id=plain))) == [plain], "a job alone is a chain of one"
        assert await world.all_jobs(JobFilter(chain_id=last.job_id)) == [], "a later step is no chain"
