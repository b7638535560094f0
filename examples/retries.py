"""What an attempt can give: success, a retry, a failure for good, a cancellation, a later try."""

import asyncio

from holdfast import Cancel, Fatal, Handle, Holdfast, Job, JobCanceled, JobFailed, Reschedule, Retry, Retryable, Verdict

app = Holdfast("sqlite:///jobs.db")
QUICK = Retry(max_attempts=3, initial=0.2, jitter=0)


class CardDeclined(Exception):
    """No second try will change that."""


def judge(error: BaseException) -> Verdict | None:
    return Verdict.FATAL if "no such account" in str(error) else None


@app.task(retry=QUICK, codes={"CardDeclined": Verdict.FATAL}, classify=judge)
async def charge(case: str, *, job: Job) -> str:
    match case:
        case "flaky" if job.attempt == 1:
            raise Retryable("the provider is busy", code="PROVIDER_BUSY")
        case "down":
            raise ConnectionError("refused")  # unknown errors are tried again
        case "declined":
            raise CardDeclined("card 4242")  # by the table of codes
        case "unknown":
            raise LookupError("no such account")  # by the hook
        case "malformed":
            raise Fatal("amount is negative", code="BAD_AMOUNT")
        case "withdrawn":
            raise Cancel("the order was withdrawn")
        case "early" if job.attempt == 1:
            raise Reschedule(after=0.2)
    return f"charged in attempt {job.attempt}, {job.failures} failures before"


async def told(case: str, handle: Handle[str]) -> None:
    try:
        answer = await handle.result(timeout=10)
    except JobFailed as failed:
        answer = f"failed: {failed.code}: {failed.error}"
    except JobCanceled as canceled:
        answer = f"canceled: {canceled.reason}"
    print(f"{case:<10} {answer}")


async def main() -> None:
    async with app, app.worker():
        for case in ("flaky", "down", "declined", "unknown", "malformed", "withdrawn", "early"):
            await told(case, await charge.enqueue(case))

        failed = await charge.enqueue("down")
        await told("down", failed)
        print(await failed.report())


if __name__ == "__main__":
    asyncio.run(main())
