"""Each way to ask for the job gets it at run time, and takes the args that a type checker sees."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast import BadArgs, Holdfast, Job

WAIT = 30.0


async def first(job: Job, user_id: int, name: str = "nobody") -> list[Any]:
    return [job.attempt, user_id, name]


async def optional_first(job: Job | None = None, user_id: int = 0, name: str = "nobody") -> list[Any]:
    return [job and job.attempt, user_id, name]


async def optional(user_id: int, name: str = "nobody", *, job: Job | None = None) -> list[Any]:
    return [job and job.attempt, user_id, name]


async def keyword(user_id: int, name: str = "nobody", *, job: Job) -> list[Any]:
    return [job.attempt, user_id, name]


async def between(user_id: int, job: Job, name: str = "nobody") -> list[Any]:
    return [job.attempt, user_id, name]


@pytest.mark.parametrize("function", [first, optional_first, optional, keyword, between])
async def test_the_job_is_injected_and_no_arg(function: Any) -> None:
    app = Holdfast("memory://")
    task = cast("Any", app.task()(function))
    async with app, app.worker():
        assert await (await task.enqueue(7)).result(timeout=WAIT) == [1, 7, "nobody"]
        assert await (await task.enqueue(7, "ann")).result(timeout=WAIT) == [1, 7, "ann"]
        assert await (await task.enqueue(name="ann", user_id=7)).result(timeout=WAIT) == [1, 7, "ann"]
        with pytest.raises(BadArgs):
            await task.enqueue(7, "ann", None)
        with pytest.raises(BadArgs):
            await task.enqueue(7, job=None)


async def test_a_function_with_an_optional_job_runs_plainly_without_one() -> None:
    task = Holdfast("memory://").task()(optional)
    assert await task(7) == [None, 7, "nobody"]
