"""An app that encrypts, and versions its args, as child processes import it."""

from __future__ import annotations

import os
from typing import Any

from holdfast import Holdfast, Job, Retryable
from holdfast.encryption import Encryption

app = Holdfast("memory://", encryption=Encryption(keys={"a": b"a" * 32}, current="a", hash_key=b"h" * 32))


@app.task(name="sealed.where", executor="process", version=2, retry=2)
def where(text: str, *, job: Job) -> dict[str, Any]:
    if job.attempt == 1:
        job.checkpoint("seen", data=text)
        raise Retryable("once more")
    return {"process": os.getpid(), "text": text, "seen": job.data("seen")}


@where.upgrade(1)
def with_text(args: dict[str, Any]) -> dict[str, Any]:
    return {"text": f"from version 1: {args['word']}"}
