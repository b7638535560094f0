"""What the workers of these tests run: `holdfast worker tests.fleet_redis.tasks:app`, as the settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import Holdfast, Job, Reschedule

if TYPE_CHECKING:
    from holdfast.tasks.task import Task


def declare(app: Holdfast) -> tuple[Task[..., Any], Task[..., Any]]:
    """Return the tasks: one that ends at once, and one that gives its job back once, to be run a moment later."""

    @app.task(name="note")
    async def note(number: int) -> int:
        return number

    @app.task(name="again")
    async def again(*, job: Job) -> int:
        if job.attempt == 1:
            raise Reschedule(after=0.01)
        return job.attempt

    return note, again


app = Holdfast()
declare(app)
