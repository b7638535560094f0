"""A Django program under ASGI, and beside it Holdfast's server with the dashboard under /jobs."""

import asyncio
import os
import socket
from typing import Any

import django
import httpx2
import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from holdfast import Holdfast
from holdfast.server.asgi import create_server
from holdfast.server.settings import ServerSettings

SECRET = os.environ.get("JOBS_SECRET", "sixteen characters or more")

jobs = Holdfast("sqlite:///jobs.db")


@jobs.task()
async def greet(name: str) -> str:
    return f"hello {name}"


async def greeting(_request: HttpRequest, name: str) -> JsonResponse:
    handle = await greet.enqueue(name)
    return JsonResponse({"said": await handle.result(timeout=10)})


urlpatterns = [path("greetings/<str:name>", greeting)]
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"])
django.setup()


site = get_asgi_application()
server = create_server(jobs, ServerSettings(admin_secret=SECRET, prefix="/jobs"), worker={"concurrency": 4})


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Holdfast has what is under /jobs, and the lifespan, which Django does not know; Django has the rest."""
    path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
    own = scope["type"] == "lifespan" or f"{path}/".startswith("/jobs/")
    await (server if own else site)(scope, receive, send)


async def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        web = uvicorn.Server(uvicorn.Config(application, lifespan="on", log_level="warning"))
        serving = asyncio.create_task(web.serve([sock]))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            print("of the program:", (await client.get("/greetings/ada")).json())
            page = await client.get("/jobs/")
            print("the dashboard:", page.status_code, page.headers["location"])
            key = {"Authorization": f"Bearer {SECRET}"}
            print("the HTTP API:", (await client.get("/jobs/api/v1/server", headers=key)).status_code)
        web.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
