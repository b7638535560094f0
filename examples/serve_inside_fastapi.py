"""One program: an API of its own, its worker, and Holdfast's server with the dashboard under /jobs."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import uvicorn
from fastapi import FastAPI

from holdfast import Holdfast
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings

SECRET = os.environ.get("JOBS_SECRET", "sixteen characters or more")

jobs = Holdfast("sqlite:///jobs.db")


@jobs.task()
async def greet(name: str) -> str:
    return f"hello {name}"


server = create_server(jobs, ServerSettings(admin_secret=SECRET), worker={"concurrency": 4})


@asynccontextmanager
async def lifespan(_api: FastAPI) -> AsyncIterator[None]:
    async with jobs, server.running():
        yield


api = FastAPI(lifespan=lifespan)
api.mount("/jobs", server)


@api.post("/greetings/{name}")
async def greeting(name: str) -> str:
    handle = await greet.enqueue(name)
    return await handle.result(timeout=10)


async def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        web = uvicorn.Server(uvicorn.Config(api, log_level="warning"))
        serving = asyncio.create_task(web.serve([sock]))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            print("of the program:", (await client.post("/greetings/ada")).json())
            page = await client.get("/jobs/")
            print("the dashboard:", page.status_code, page.headers["location"])
            key = {"Authorization": f"Bearer {SECRET}"}
            print("the HTTP API:", (await client.get("/jobs/api/v1/server", headers=key)).status_code)
        web.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
