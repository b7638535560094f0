"""Sending one alert to one target: an attempt of a job. What went wrong is the job's error, and its log the delivery log."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import httpcore2
import msgspec
from standardwebhooks import Webhook

from holdfast import Fatal, Retry, Retryable
from holdfast.core.redact import redact
from holdfast.server.alerts.guarding import Forbidden, Guarded
from holdfast.server.alerts.kinds import Alert, Form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast import Holdfast, Job, Task
    from holdfast.server.alerts.target import Target
    from holdfast.store.port import JobView, WorkerView

QUEUE: Final = "holdfast"
"""The queue of Holdfast's own jobs."""
TASK: Final = "holdfast.deliver"
TIMEOUT: Final = 10.0
"""Seconds that a delivery may take, from looking up the name to the end of the answer."""
MOST_READ: Final = 4096
"""Bytes of an answer that are read."""
MOST_SHOWN: Final = 200
"""Characters of it that the error has."""
RETRIES: Final = Retry(max_attempts=8, initial=5, factor=4, max=3600)
"""Eight attempts over about four hours."""
GONE: Final = 410
ACCEPTED: Final = range(200, 300)
REDIRECTS: Final = range(300, 400)


class Delivery(msgspec.Struct, frozen=True):
    """What a target answered."""

    status: int
    milliseconds: float


class Told(msgspec.Struct, frozen=True):
    """What a delivery tells, and to whom."""

    target: str
    kind: str
    text: str
    newest: str


def told_of(view: JobView) -> Told:
    """Return what a delivery tells, by its args; those of a job that only pretends to be one may be anything."""
    found = msgspec.json.decode(view.args)
    parts = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else []
    target = next((one for one in parts if isinstance(one, str)), "-")
    alert = next((one for one in parts if isinstance(one, dict)), {})
    return Told(target, str(alert.get("kind", "-")), str(alert.get("text", "")), str(alert.get("newest", "")))


def deliveries(app: Holdfast, targets: Mapping[str, Target], version: str) -> Task[[str, Alert, datetime], Delivery]:
    """Declare the task that delivers alerts to these targets."""

    @app.task(name=TASK, queue=QUEUE, retry=RETRIES, timeout=2 * TIMEOUT, lease=60.0, tags=["alert"])
    async def deliver(target: str, alert: Alert, at: datetime, *, job: Job) -> Delivery:
        if (known := targets.get(target)) is None:
            raise Fatal(f"there is no target {target!r} any more: look at [alerts.{target}] of the settings", code="NO_TARGET")
        return await send(known, alert, at, message_id=f"msg_{job.id.hex}", agent=f"Holdfast/{version}")

    return deliver


async def send(target: Target, alert: Alert, at: datetime, *, message_id: str, agent: str) -> Delivery:
    """Send an alert; raises `Retryable` or `Fatal` with the status as code."""
    body = body_of(target.form, alert, at)
    headers: dict[bytes | str, bytes | str] = {"content-type": "application/json", "user-agent": agent}
    if target.secret is not None:
        now = datetime.now(UTC)
        headers |= {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": Webhook(target.secret).sign(message_id, now, body),
        }
    begun = datetime.now(UTC)
    try:
        async with asyncio.timeout(TIMEOUT):  # of the whole: time-outs of its parts are begun anew by every byte
            status, said = await _posted(target, headers, body.encode())
    except Forbidden as error:
        raise Fatal(
            f"{error}. If it is meant to be, say allow_private = true in [alerts.{target.name}]", code="FORBIDDEN_TARGET"
        ) from None
    except (TimeoutError, httpcore2.TimeoutException):
        raise Retryable(f"{target.host} did not answer within {TIMEOUT:g} s", code="TIMEOUT") from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError, ssl.SSLError) as error:
        raise Retryable(f"{target.host}: {str(error) or type(error).__name__}", code="UNREACHABLE") from None
    _judge(status, said, target)
    return Delivery(status, round((datetime.now(UTC) - begun).total_seconds() * 1000, 1))


async def _posted(target: Target, headers: dict[bytes | str, bytes | str], body: bytes) -> tuple[int, str]:
    """Return the status of the answer and, of a refusal, the beginning of what it says. No more than that is read."""
    limits = dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT)
    async with (
        httpcore2.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(), network_backend=Guarded(allow_private=target.allow_private)
        ) as pool,
        pool.stream("POST", target.url, headers=headers, content=body, extensions={"timeout": limits}) as answer,
    ):
        said = b"" if answer.status in ACCEPTED else await _beginning(answer)
        return answer.status, said.decode(errors="replace")


async def _beginning(answer: httpcore2.Response) -> bytes:
    """Return as much of what an answer says as comes soon: it is already known that it is a refusal."""
    said = b""
    with suppress(TimeoutError, httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError):
        async with asyncio.timeout(TIMEOUT / 10):
            async for piece in answer.aiter_stream():
                said += piece
                if len(said) >= MOST_READ:
                    break
    return said[:MOST_READ]


def body_of(form: Form, alert: Alert, at: datetime) -> str:
    """Return what is sent."""
    body: dict[str, Any]
    if form is Form.SLACK:
        body = {"text": f"*{alert.kind}*: {_escaped(alert.text)}"}
    else:
        data = {"text": alert.text, "count": alert.count, "about": alert.about}
        body = {"type": alert.kind, "timestamp": at.astimezone(UTC).isoformat().replace("+00:00", "Z"), "data": data}
    return msgspec.json.encode(body).decode()


def _escaped(text: str) -> str:
    """Return a text as Slack wants it: what looks like a mention or a link is none."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _judge(status: int, said: str, target: Target) -> None:
    if status in ACCEPTED:
        return
    code = f"HTTP_{status}"
    if status in REDIRECTS:
        raise Fatal(
            f"{target.host} redirects, and alerts go nowhere else: write the final address into the settings", code=code
        )
    if status == GONE:
        raise Fatal(f"{target.host} wants no more alerts", code=code)
    words = redact(" ".join(said.split()))
    short = words if len(words) <= MOST_SHOWN else f"{words[:MOST_SHOWN]}…"
    raise Retryable(f"{target.host} answered with {status}{': ' if short else ''}{short}", code=code)


def delivers(view: WorkerView) -> bool:
    """Tell whether a worker is a server's own, which delivers alerts and runs nobody's jobs."""
    return view.queues == (QUEUE,)
