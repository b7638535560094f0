"""The app of the images: put your own in its place."""

import asyncio

from holdfast import Holdfast

app = Holdfast()


@app.task()
async def greet(name: str, seconds: float = 0.0) -> str:
    """Greet somebody, after a while."""
    await asyncio.sleep(seconds)
    return f"Hello, {name}"
