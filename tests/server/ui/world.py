"""A small shop whose jobs do what a dashboard shows: succeed, fail, wait, run for long, log, continue, wait for others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast import Fatal, Holdfast, Job, Retry, Retryable

if TYPE_CHECKING:
    from holdfast.tasks.task import Task


@dataclass
class Shop:
    """An app, and what its jobs wait for. Everything of it happens on one event loop."""

    app: Holdfast
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    broken: set[str] = field(default_factory=lambda: {"acme", "globex"})
    """Customers whose mail cannot be sent, until somebody mends it."""

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    def task(self, name: str) -> Task[..., Any]:
        return self.app.tasks[name]


def shop(app: Holdfast) -> Shop:
    """Declare the tasks of the shop."""
    world = Shop(app)

    @app.task(name="mail.send", queue="mail", retry=Retry(max_attempts=1))
    async def send(to: str, order: int, *, job: Job) -> dict[str, Any]:
        job.log.info("sending order %s to %s", order, to)
        if to in world.broken:
            raise Retryable(f"the mail server of {to} hung up", code="SMTP_CLOSED")
        return {"to": to, "order": order, "message_id": 9007199254740993}

    @app.task(name="video.transcode", queue="video", timeout=600)
    async def transcode(source: str, gate: str, *, job: Job) -> str:
        with job.stage("probe"):
            job.log.info("probing %s", source)
        job.progress(35, "700 of 2000 frames", step="encode")
        await world.gate(gate).wait()
        job.progress(80, "1600 of 2000 frames", step="encode")
        job.log.warning("frame 1312 was dropped")
        await world.gate(f"{gate}:end").wait()
        return f"{source}.mp4"

    @app.task(name="report.build", queue="reports", cron="0 3 * * mon-fri", timezone="Europe/Berlin")
    async def report() -> int:
        return 42

    @app.task(name="stock.sync", cron="*/15 * * * *")
    async def sync() -> int:
        return 7

    @app.task(name="orders.ship")
    async def ship(order: int) -> str:
        return f"order {order} is on its way"

    @app.task(name="orders.charge", continues_with=["orders.ship"])
    async def charge(order: int, *, job: Job) -> str:
        return job.continue_with(ship, order)

    @app.task(name="orders.check", continues_with=["orders.charge"])
    async def check(order: int, *, job: Job) -> str:
        return job.continue_with(charge, order)

    @app.task(name="rows.import", retry=Retry(max_attempts=1))
    async def rows(path: str, api_token: str = "") -> None:
        raise Fatal(f"row 7 of {path} has no price", code="BAD_ROW")

    @app.task(name="invoice.approve", queue="people", executor="outside")
    async def approve(order: int) -> bool:
        raise NotImplementedError

    return world
