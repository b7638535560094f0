"""The pages without a browser: filters, paging, roles, what is refused, and what is never shown."""

from __future__ import annotations

import html
import json
import re
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from starlette.testclient import TestClient

from holdfast.core.breaker import BREAKER, LASTS, TRANSITIONS
from holdfast.core.figures import EMPTY, Figure
from holdfast.core.job import NewJob, Policy
from holdfast.core.limits import LimitKey, LimitKind, LimitName, LimitRule
from holdfast.core.outcome import Error
from holdfast.core.retry import Retry
from holdfast.core.settle import Write
from holdfast.core.states import Event, State
from holdfast.errors import StoreUnavailable
from holdfast.server.alerts.delivering import QUEUE, TASK
from holdfast.server.settings import ServerSettings
from holdfast.server.ui import charts, overview, steering
from holdfast.server.ui import job as job_page
from holdfast.server.ui.live import Snapshot
from holdfast.server.ui.shown import NOTHING, short
from holdfast.store.port import (
    SEARCH_LIMIT,
    Action,
    Beat,
    Checkpoint,
    ClaimRequest,
    Grain,
    JobFilter,
    LogLine,
    Page,
    Part,
    PartState,
    Progress,
    Role,
    Settlement,
    StageMark,
    Stats,
    TaskCounts,
    Worker,
)
from holdfast.system import SystemEnvironment
from tests.server.served import bearer
from tests.server.ui.conftest import OWN, Place, opened
from tests.server.ui.incident import broken
from tests.server.ui.serving import SECRET, new_key

if TYPE_CHECKING:
    from holdfast.core.lease import Lease

WORLD = SystemEnvironment()
OVER_MAIL = LimitName(LimitKind.QUEUE, "mail")
MOST_LOOKS = 40
"""After which somebody who looks for jobs has been told something."""
IMAGES = Path(__file__).parents[3] / "docs" / "images"
PAGES = ("/", "/jobs", "/queues", "/limits", "/workers", "/schedules", "/chains", "/alerts", "/audit", "/keys")


def new(task: str = "mail.send", **options: Any) -> NewJob:
    return NewJob(id=WORLD.job_id(), task=task, **options)


def enqueue(place: Place, *jobs: NewJob) -> list[UUID]:
    return [one.job_id for one in place.do(place.store.enqueue(jobs))]


def ids_on(page: str) -> list[UUID]:
    return [UUID(found) for found in re.findall(r'<tr id="job-([0-9a-f-]{36})"', page)]


def work(place: Place, *errors: Error | None, task: str = "mail.send") -> list[UUID]:
    """Have a worker claim as many jobs as there are errors, and end each with it; `None`: well."""

    async def done() -> list[UUID]:
        worker = Worker(id=WORLD.job_id(), name="w-1", slots=8)
        await place.store.register(worker)
        claimed = await place.store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({task}), limit=len(errors), look=True))
        ends = []
        for one, error in zip(claimed, errors, strict=True):
            event = Event.SUCCEED if error is None else Event.FAIL
            ends.append(Settlement(lease=one.lease, write=write(event, error)))
        await place.store.settle(ends)
        return [one.lease.job_id for one in claimed]

    found: list[UUID] = place.do(done())
    return found


def write(event: Event, error: Error | None) -> Write:
    return Write(event=event, failures=int(error is not None), result="null" if error is None else None, error=error)


# -- looking ---------------------------------------------------------------------------------------------------------------


def test_the_pictures_of_the_docs_show_the_navigation_as_it_is(place: Place) -> None:
    """Every picture shows it, and nobody looks at all of them when it changes."""
    told = "The pictures are older than this: ./dev test -n 0 --screenshots tests/server/ui/test_browser.py tests/media/web"
    entries = re.findall(r'data-go="\w"[^>]*>.*?<span>([^<]+)</span>', place.client.get("/").text)
    assert (IMAGES / "dashboard-navigation.txt").read_text().splitlines() == entries, told


@pytest.mark.parametrize("path", PAGES)
def test_every_page_of_an_empty_store_is_a_page(place: Place, path: str) -> None:
    answer = place.client.get(path)
    assert answer.status_code == 200
    assert "<h1" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert " style=" not in answer.text
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=", answer.text)


def test_a_search_shows_what_matches_all_of_its_tokens(place: Place) -> None:
    wanted, _, _ = enqueue(place, new(queue="a", tags=("x",)), new(queue="a"), new(queue="b", tags=("x",)))
    assert ids_on(place.client.get("/jobs", params={"q": "queue:a tag:x"}).text) == [wanted]


def test_a_job_says_what_it_prefers_and_that_its_queue_keeps_one_order(place: Place) -> None:
    (job,) = enqueue(place, new(queue="line", fifo=True, prefers=("gpu", "ssd"), prefer_for=90.0))
    page = place.client.get(f"/jobs/{job}").text
    assert re.search(r"<dt>Prefers</dt><dd[^>]*>gpu, ssd <span[^>]*>for 1m 30s</span>", page)
    assert "priority 5, first in first out" in page


def test_a_search_for_what_the_counts_say_is_not_there_reads_no_job(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(place, new("tidy", queue="a"), new())
    work(place, Error("A", "x"))
    looks = endless(place, monkeypatch)
    for search in ("state:failed task:tidy", "state:failed queue:a tag:x", "task:nobody", "state:canceled"):
        page = place.client.get("/jobs", params={"q": search}).text
        assert "No job matches." in page, search
        assert "Only the newest" not in page, search
    assert looks == []


def test_a_search_ends_with_the_last_job_that_the_counts_say_can_match(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has failed among very many: a store would go on looking for a second one."""
    enqueue(place, new())
    (failed,) = work(place, Error("A", "x"))
    whole, looks = place.store.find, []

    async def find(where: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        looks.append(after)
        page = await whole(where, limit=limit, after=after)
        return Page(page.jobs, UUID(int=1), searched_all=False)

    monkeypatch.setattr(place.store, "find", find)
    page = place.client.get("/jobs", params={"q": "state:failed task:mail.send"}).text
    assert (ids_on(page), looks) == ([failed], [None])
    assert "Only the newest" not in page
    assert "Older" not in page
    enqueue(place, new())
    work(place, Error("A", "x"))
    place.client.get("/jobs", params={"q": "state:failed task:mail.send", "after": str(UUID(int=2**128 - 1))})
    assert len(looks) > 2  # a later page does not know how many were on those before


def test_a_word_by_itself_is_the_name_of_a_task_and_quotes_hold_spaces(place: Place) -> None:
    one, other = enqueue(place, new("send mail"), new("tidy"))
    assert ids_on(place.client.get("/jobs", params={"q": "tidy"}).text) == [other]
    assert ids_on(place.client.get("/jobs", params={"q": 'task:"send mail"'}).text) == [one]


def test_an_id_leads_to_its_job(place: Place) -> None:
    (job,) = enqueue(place, new())
    for text in (str(job), f"id:{job}", f"{job.hex[:8]}..{job.hex[-6:]}"):
        answer = place.client.get("/jobs", params={"q": text})
        assert answer.headers["location"] == f"/jobs/{job}"


def test_errors_are_found_by_their_code(place: Place) -> None:
    enqueue(place, new(), new())
    first, _ = work(place, Error("TIMEOUT", "too slow"), Error("OTHER", "no"))
    assert ids_on(place.client.get("/jobs", params={"q": "error:timeout"}).text) == [first]


def test_a_token_that_is_none_is_explained_on_the_page(place: Place) -> None:
    answer = place.client.get("/jobs", params={"q": "quueue:a"})
    assert answer.status_code == 200
    assert "do you mean queue:" in answer.text


def test_a_list_goes_on_where_its_page_ended(place: Place) -> None:
    jobs = enqueue(place, *(new() for _ in range(120)))
    seen: list[UUID] = []
    path = "/jobs?q=task%3Amail.send"
    for _ in range(3):
        page = place.client.get(path).text
        seen += ids_on(page)
        if found := re.search(r'rel="next" href="([^"]+)"', page):
            path = html.unescape(found[1])
    assert seen == sorted(jobs, reverse=True)


def test_counts_are_those_of_the_search(place: Place) -> None:
    enqueue(place, new(queue="a"), new(queue="a"), new(queue="b"))
    page = place.client.get("/jobs", params={"q": "queue:a"}).text
    assert re.search(r'ready <span class="count">2</span>', page)
    assert 'class="count"' not in place.client.get("/jobs", params={"q": "tag:x"}).text


def test_the_open_page_asks_for_its_content_alone(place: Place) -> None:
    enqueue(place, new())
    answer = place.client.get("/jobs", headers={"HX-Request": "true"})
    assert "<html" not in answer.text
    assert "<title>Jobs" in answer.text
    assert 'id="job-' in answer.text


def test_a_job_shows_exact_numbers_and_no_secrets(place: Place) -> None:
    args = (
        '{"big": 12345678901234567890123, "exact": 0.10000000000000000000001, "api_key": "sk", "iban": {"a": 1}, "l": [1e400]}'
    )
    (job,) = enqueue(place, new(args=args))
    page = html.unescape(place.client.get(f"/jobs/{job}").text)
    for text in ("12345678901234567890123", "0.10000000000000000000001", "1e400"):
        assert f'<span class="json-number">{text}</span>' in page
    assert page.count("[redacted]") == 2
    assert '"sk"' not in page


TEXTS = ("password: hunter2", "iban: ours is Quixotic Zephyr")
"""What jobs say in words: one thing that looks like a secret, and one of a field that is hidden."""


def test_no_text_of_a_job_shows_secrets_or_hidden_fields(place: Place) -> None:
    """Wherever it is shown: progress, parts, stages, log, error; on every page, and over the API to those who look."""
    enqueue(place, new(), new())

    async def run(*, kept: bool) -> Lease:
        worker = Worker(id=WORLD.job_id(), name="w-1", slots=1)
        await place.store.register(worker)
        (claimed,) = await place.store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"mail.send"}), limit=1, look=True))
        lease = claimed.lease
        await place.store.progress([Progress(lease, 40.0, TEXTS[0], TEXTS[1])])
        for text in TEXTS:
            await place.store.log([LogLine(lease=lease, message=text)])
            await place.store.checkpoint([Checkpoint(lease, Part(text, PartState.FAILED, error=text))])
            await place.store.mark([StageMark(lease=lease, name=text, event=Event.STAGE_ENTER)])
        if not kept:
            error = Error("OOPS", " and ".join(TEXTS), "\n".join(TEXTS))
            await place.store.settle([Settlement(lease=lease, write=write(Event.FAIL, error))])
        return lease

    running, failed = place.do(run(kept=True)).job_id, place.do(run(kept=False)).job_id
    told = place.do(place.store.get([running]))[0]
    assert told is not None
    assert (told.step, told.message) == TEXTS, "it is kept as it was said"
    viewer = place.do(new_key(place.store, "looks", Role.VIEWER))
    pages = {path: place.client.get(path).text for path in ("/", "/jobs", "/workers", f"/jobs/{running}", f"/jobs/{failed}")}
    for job in (running, failed):
        for path in (f"/api/v1/jobs/{job}", f"/api/v1/jobs/{job}/why"):
            pages[path] = place.anyone().get(path, headers=bearer(viewer)).text
    for path, page in pages.items():
        assert "hunter2" not in page, path
        assert "Quixotic" not in page, path
        assert "Zephyr" not in page, path
    for path in ("/", "/jobs", f"/jobs/{running}", f"/jobs/{failed}", f"/api/v1/jobs/{running}"):
        assert "[redacted]" in pages[path], path


def test_a_job_says_why_it_does_not_run(place: Place) -> None:
    (job,) = enqueue(place, new())
    assert "No worker was ever here" in place.client.get(f"/jobs/{job}").text


def test_a_job_shows_its_attempts_log_and_traceback(place: Place) -> None:
    enqueue(place, new())

    async def run() -> Lease:
        worker = Worker(id=WORLD.job_id(), name="w-<1>", slots=1)
        await place.store.register(worker)
        (claimed,) = await place.store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"mail.send"}), limit=1, look=True))
        await place.store.log([LogLine(lease=claimed.lease, message=f"line {number}") for number in range(1500)])
        trace = 'Traceback\n  File "/srv/app/mail.py", line 7, in send\n    raise Oops'
        await place.store.settle([Settlement(lease=claimed.lease, write=write(Event.FAIL, Error("OOPS", "no", trace)))])
        return claimed.lease

    lease = place.do(run())
    page = place.client.get(f"/jobs/{lease.job_id}").text
    assert "w-&lt;1&gt;" in page
    assert "line 1499" in page
    assert "line 1299<" not in page
    assert "line 7, in send" in page
    again = place.client.get(f"/jobs/{lease.job_id}").text
    assert re.findall(r"line \d+(?=</span>)", page) == re.findall(r"line \d+(?=</span>)", again)
    groups = place.client.get("/").text
    assert "app/mail.py:7 in send" in groups


def tried(place: Place, times: int, stages: int) -> UUID:
    """Have a job tried so many times, in so many stages each time."""
    (job,) = enqueue(place, new(policy=Policy(retry=Retry(max_attempts=None))))

    async def run() -> None:
        worker = Worker(id=WORLD.job_id(), name="w-1")
        await place.store.register(worker)
        request = ClaimRequest(worker=worker.id, tasks=frozenset({"mail.send"}), limit=1, look=True)
        for _ in range(times):
            (claimed,) = await place.store.claim(request)
            for number in range(stages):
                for event in (Event.STAGE_ENTER, Event.STAGE_LEAVE):
                    await place.store.mark([StageMark(lease=claimed.lease, event=event, name=f"stage {number}")])
            await place.store.settle([Settlement(lease=claimed.lease, write=write(Event.RETRY, Error("BUSY", "no")))])

    place.do(run())
    return job


def test_a_job_of_thousands_of_attempts_shows_the_last_and_says_where_the_others_are(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tried(place, 1203, 3)
    asked: list[int | None] = []
    for name in ("attempts", "events"):
        method = getattr(place.store, name)

        async def ask(job_id: UUID, *, last: int | None = None, method: Any = method) -> Any:
            asked.append(last)
            return await method(job_id, last=last)

        monkeypatch.setattr(place.store, name, ask)
    page = place.client.get(f"/jobs/{job}").text
    assert asked
    assert None not in asked, "all of it was read"
    lanes = [int(number) for number in re.findall(r'<tr id="lane-(\d+)"', page)]
    assert lanes == list(range(1004, 1204))
    assert f"the last 200 attempts; 1,003 earlier ones: holdfast jobs show {short(job)}" in page
    assert f"There are earlier ones; all of them: holdfast jobs show {short(job)} --events" in page
    assert page.count("<strong>stage:entered</strong>") < 100
    assert len(page) < 400_000
    assert '<div class="long" id="lanes" tabindex="0" role="region"' in page, "what comes below is a screen away, not ten"


def test_how_long_a_job_waited_is_not_told_where_the_log_was_not_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_page, "READ_EVENTS", 20)
    job = tried(place, 6, 3)
    page = place.client.get(f"/jobs/{job}").text
    assert 'id="lanes"' not in page
    waits = re.findall(r'<tr id="lane-\d+">.*?</svg></td>\s*<td class="right num nowrap">([^<]+)</td>', page, re.DOTALL)
    assert [wait == NOTHING for wait in waits] == [True, True, True, True, False, False]
    assert "earlier ones: holdfast jobs show" not in page, "every attempt is shown"


def test_a_job_speaks_of_one_attempt_and_of_a_lease_as_people_do(place: Place) -> None:
    enqueue(place, new(), new())
    (ended,) = work(place, Error("A", "x"))

    async def claim() -> UUID:
        worker = Worker(id=WORLD.job_id(), name="w-2")
        await place.store.register(worker)
        request = ClaimRequest(worker=worker.id, tasks=frozenset({"mail.send"}), limit=1, look=True)
        return (await place.store.claim(request))[0].job_id

    assert "after 1 attempt and 1 failure, at" in place.client.get(f"/jobs/{ended}").text
    running = place.client.get(f"/jobs/{place.do(claim())}").text
    assert "until in" not in running
    assert re.search(r"<dt>Lease</dt><dd>ends <time [^>]+>in \d+", running)


def test_a_page_says_what_time_it_is_for_the_store(place: Place) -> None:
    before = place.do(place.store.now())
    (told,) = re.findall(r'<body data-root="/" data-now="(\d+)">', place.client.get("/").text)
    assert before <= datetime.fromtimestamp(int(told) / 1000, UTC) + timedelta(milliseconds=1)
    assert re.search(r'data-now="\d+"', place.anyone().get("/login").text)


def test_what_is_not_there_is_said_so(place: Place) -> None:
    answer = place.client.get(f"/jobs/{WORLD.job_id()}")
    assert answer.status_code == 404
    assert "it never was, or it was deleted or pruned" in answer.text


def oldest_on(page: str) -> str:
    """Return what the overview says of the job that has waited longest."""
    found = re.search(r"<dt>Oldest waiting</dt>(.*?)</div>", page, re.DOTALL)
    assert found is not None
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split())


def test_what_waits_for_people_is_not_what_has_waited_longest(place: Place) -> None:
    about = json.dumps({"tasks": ["mail.send"], "outside": ["invoice.approve"]})
    place.do(place.store.register(Worker(id=WORLD.job_id(), name="w-1", info=about)))
    assert oldest_on(place.client.get("/").text) == f"{NOTHING} nothing waits"
    enqueue(place, new("invoice.approve", queue="people"), new(queue="held"), new(queue="later", delay=7200.0))
    place.do(place.store.pause("held", by="ada"))
    place.do(place.store.rewind(3600.0))
    assert oldest_on(place.client.get("/").text) == f"{NOTHING} what is ready waits for people"
    enqueue(place, new(queue="mail"))
    place.do(place.store.rewind(30.0))
    assert re.fullmatch(r"\d+s in mail", oldest_on(place.client.get("/").text))
    place.do(place.store.resume("held"))
    assert oldest_on(place.client.get("/").text) == "1h in held"


def wrong_on(page: str) -> list[tuple[str, list[str]]]:
    """Return what the overview says is wrong, and where its links lead."""
    found = re.search(r'<section class="card troubles".*?</section>', page, re.DOTALL)
    items = re.findall(r"<li>(.*?)</li>", found[0], re.DOTALL) if found else []
    texts = [re.findall(r"<strong>(.*?)</strong>", item)[0] for item in items]
    links = [[html.unescape(link) for link in re.findall(r'<a href="([^"]+)"', item)] for item in items]
    return list(zip(map(html.unescape, texts), links, strict=True))


def test_an_overview_of_what_goes_well_says_of_nothing_that_it_is_wrong(place: Place) -> None:
    assert wrong_on(place.client.get("/").text) == []
    about = '{"queues": ["default"]}'
    place.do(place.store.register(Worker(id=WORLD.job_id(), name="w-1", slots=2, info=about)))
    enqueue(place, new(), new("invoice.approve", queue="held"), new(TASK, queue=QUEUE))
    place.do(place.store.pause("held", by="ada"))
    assert wrong_on(place.client.get("/").text) == []


def test_an_overview_tells_first_what_is_wrong_and_where_to_look(place: Place) -> None:
    place.do(broken(place.store))
    page = place.client.get("/").text
    assert page.index("What is wrong") < page.index("Oldest waiting")
    assert wrong_on(page) == [
        (
            "No worker takes jobs, and 2,000 jobs wait: 3 are offline; the last sign of life was 2h ago.",
            ["/workers?all=1", "/jobs?q=state%3Aready"],
        ),
        (
            "The oldest job in the queue mail has waited for 2h; 2,000 are ready there.",
            ["/jobs?q=state%3Aready+queue%3Amail", "/queues"],
        ),
        ("3 stalled leases: 3 running jobs have lost the worker.", ["#running", "/jobs?q=state%3Arunning"]),
        (
            (
                "75% of the attempts of the last 5 minutes failed, 60 a minute; "
                "in the last hour most of mail.send with SMTP_CLOSED."
            ),
            ["#failing", "/jobs?q=state%3Afailed+since%3A1h"],
        ),
    ]
    workers = re.search(r"<dt>Live workers</dt>.*?</dd>", page, re.DOTALL)
    assert workers is not None
    assert ">0<" in workers[0], "one that delivers alerts runs nobody's jobs"
    for _, links in wrong_on(page):
        for link in links:
            assert f'id="{link[1:]}"' in page if link.startswith("#") else place.client.get(link).status_code == 200


def test_an_overview_says_what_no_worker_takes_and_who_is_silent(place: Place) -> None:
    knows = json.dumps({"tasks": ["mail.send"], "queues": ["mail"]})
    quiet, well = (Worker(id=WORLD.job_id(), name=name, slots=4, info=knows) for name in ("quiet", "well"))
    place.do(place.store.register(quiet))
    place.do(place.store.rewind(90.0))
    place.do(place.store.register(well))
    enqueue(place, new(queue="mail"), *(new(queue=queue) for queue in "abcde"), new("x.y", queue="mail"), new(queue="c"))
    assert [text for text, _ in wrong_on(place.client.get("/").text)] == [
        "1 of 2 workers said nothing for more than 1m.",
        "No worker takes mail.send from the queue c, and 2 jobs wait.",
        "No worker takes mail.send from the queue a, and 1 job waits.",
        "No worker takes mail.send from the queue b, and 1 job waits.",
        "Nor does any worker take 3 more tasks, of which 3 jobs wait.",
    ]
    some = place.having(Role.VIEWER, queues=("b",))
    assert [text for text, _ in wrong_on(some.get("/").text)] == [
        "No worker takes jobs, and 1 job waits: there never was one.",
    ]


def test_an_overview_of_a_slow_store_has_what_it_could_read_and_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.do(broken(place.store))
    environment, stats, late = place.server.context.environment, place.store.stats, [0.0]
    monotonic = environment.monotonic

    async def slowly() -> Stats:
        late[0] += 3.2
        return await stats()

    asked: list[str] = []

    async def too_slow(*_: object, **__: object) -> Any:
        asked.append("figures")
        raise StoreUnavailable("the database", 0.0, "it took longer than the 5 s that a look may take, and was given up")

    monkeypatch.setattr(environment, "monotonic", lambda: monotonic() + late[0])
    monkeypatch.setattr(place.store, "stats", slowly)
    assert wrong_on(place.client.get("/").text)[0][0].startswith(
        "The store is slow: it took 3.2s for the first counts of this page."
    )
    monkeypatch.setattr(place.store, "figures", too_slow)
    answer = place.client.get("/")
    assert answer.status_code == 200
    assert len(asked) == 1, "it was too slow for this, and asked again"
    told = [text for text, _ in wrong_on(answer.text)]
    assert told[0].endswith("for the first counts of this page, and too long for the rest, which is left out.")
    assert told[1].startswith("No worker takes jobs, and 2,000 jobs wait")
    assert "3 stalled leases" in answer.text
    assert answer.text.count("The store was too slow for this.") == 2


def test_many_paused_queues_leave_room_for_the_page(place: Place) -> None:
    for number in range(8):
        place.do(place.store.pause(f"q-{number}", by="ada"))
    page = place.client.get("/").text
    assert page.count("has been paused for") == 5
    assert "3 more" in page


def test_stalled_leases_are_counted_however_many_jobs_were_claimed_since(place: Place) -> None:
    async def claim(count: int) -> list[UUID]:
        worker = Worker(id=WORLD.job_id(), name="w-1", slots=count)
        await place.store.register(worker)
        await place.store.enqueue([new(lease=60.0) for _ in range(count)])
        request = ClaimRequest(worker=worker.id, tasks=frozenset({"mail.send"}), limit=count, look=True)
        return [one.job_id for one in await place.store.claim(request)]

    stalled = place.do(claim(3))
    place.do(place.store.rewind(300.0))
    place.do(claim(250))
    page = place.client.get("/").text
    assert "3 stalled leases" in page
    assert [UUID(found) for found in re.findall(r'<tr id="run-([0-9a-f-]{36})"', page)][:3] == stalled


BROWSER = {"Accept": "text/html,application/xhtml+xml"}


@pytest.mark.parametrize(
    ("path", "says", "leads"),
    [
        ("/nowhere", "There is no page /nowhere.", ["/"]),
        ("/jobs/not-an-id", "There is no page /jobs/not-an-id.", ["/jobs", "/"]),
        ("/<b>x</b>", "There is no page /%3Cb%3Ex%3C/b%3E.", ["/"]),
        (f"/jobs/{UUID(int=7)}", "it never was, or it was deleted or pruned", ["/jobs", "/"]),
        (f"/chains/{UUID(int=7)}", "it never was, or it was deleted or pruned", ["/chains", "/"]),
        (f"/workers/{UUID(int=7)}/revoke", "There is no such worker.", ["/workers", "/"]),
    ],
)
def test_an_address_that_is_none_is_a_page_that_leads_on(place: Place, path: str, says: str, leads: list[str]) -> None:
    answer = place.client.get(path, headers=BROWSER)
    assert answer.status_code == 404
    assert says in answer.text
    assert answer.headers["content-security-policy"] == place.client.get("/").headers["content-security-policy"]
    assert 'aria-label="Pages"' in answer.text
    assert re.findall(r'<a class="button[^"]*" href="([^"]+)"', answer.text) == leads
    for link in leads:
        assert place.client.get(link).status_code == 200


def test_an_address_that_is_none_tells_strangers_where_to_log_in_and_programs_in_a_word(place: Place) -> None:
    stranger = place.anyone()
    answer = stranger.get("/nowhere", headers=BROWSER)
    assert (answer.status_code, 'href="/login"' in answer.text, 'aria-label="Pages"' in answer.text) == (404, True, False)
    assert (stranger.get("/nowhere").status_code, stranger.get("/nowhere").text) == (404, "Not Found")
    assert place.client.get("/api/v1/nowhere", headers=BROWSER).json()["error"] == "not_found"
    opened = place.client.get("/logout", headers=BROWSER)
    assert (opened.status_code, opened.headers["allow"]) == (405, "POST")
    assert "/logout is no page to open." in opened.text


def test_an_address_that_is_none_is_told_below_the_prefix_alone() -> None:
    with ExitStack() as stack:
        place = opened(stack, ServerSettings(admin_secret=SECRET, prefix="/ops"))
        below = place.client.get("/ops/nowhere", headers=BROWSER)
        assert "There is no page /ops/nowhere." in below.text
        assert 'href="/ops/jobs"' in below.text
        assert place.client.get("/nowhere", headers=BROWSER).text == "Not Found"


def test_stalled_leases_of_other_queues_are_nobody_elses_business(place: Place) -> None:
    async def claim() -> None:
        worker = Worker(id=WORLD.job_id(), name="w-1", slots=8)
        await place.store.register(worker)
        await place.store.enqueue([new(queue=queue, lease=60.0) for queue in ("a", "b", "b")])
        await place.store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"mail.send"}), limit=3, look=True))

    place.do(claim())
    place.do(place.store.rewind(300.0))
    page = place.having(Role.VIEWER, queues=("a",)).get("/").text
    assert "1 stalled lease<" in page
    assert page.count('<tr id="run-') == 1


def test_charts_have_the_figures_of_their_window(place: Place) -> None:
    runs = (0, 0, 0, 0, 4, *EMPTY[5:])
    figure = Figure(queue="q", task="t", event=Event.SUCCEED, count=4, ran=0.4, runs=runs, waits=runs)
    place.do(place.store.measure([figure]))
    place.do(place.store.rewind(60))
    page = html.unescape(place.client.get("/").text)
    assert '"succeeded":[0.0,0.0,' in page
    assert re.search(r'"succeeded":\[[0.,]*4\.0', page)
    for window, step in (("6h", 300), ("7d", 3600)):
        place.do(place.store.rewind(step))
        page = html.unescape(place.client.get(f"/?window={window}").text)
        assert re.search(r'"succeeded":\[[0.,]+[1-9]', page)


def test_the_step_that_has_not_ended_is_told_by_its_rate_so_far(place: Place) -> None:
    place.do(place.store.measure([Figure(queue="q", task="t", event=Event.SUCCEED, count=4)]))
    begun = place.do(place.store.figures(Grain.MINUTE))[0].at
    for seconds, last in ((5, 0.0), (30, 8.0), (59, 4.1)):
        shown = place.do(charts.charts(place.store, charts.WINDOWS["15m"], begun + timedelta(seconds=seconds), None))
        counts = json.loads(shown[0].data)["series"]["succeeded"]
        assert round(counts[-1], 1) == last


# -- coming in -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_anything_without_a_session(place: Place, path: str) -> None:
    answer = place.anyone().get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login")


def test_an_open_page_is_led_to_the_login_when_its_session_ends(place: Place) -> None:
    answer = place.anyone().get("/jobs", headers={"HX-Request": "true"})
    assert answer.status_code == 401
    assert answer.headers["hx-redirect"] == "/login"


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(place: Place) -> None:
    cookie = place.anyone().post("/login", data={"secret": SECRET}).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "secure" not in cookie


def test_cookies_are_for_https_alone_where_that_is_set() -> None:
    with ExitStack() as stack:
        place = opened(stack, ServerSettings(admin_secret=SECRET, secure_cookies=True))
        assert "secure" in place.anyone().post("/login", data={"secret": SECRET}).headers["set-cookie"].lower()


def test_logins_and_refusals_are_audited(place: Place) -> None:
    assert place.anyone().post("/login", data={"secret": "wrong"}).status_code == 401
    place.client.post("/logout")
    lines = place.do(place.store.audits(limit=10))
    assert [line.action for line in lines] == [Action.LOGOUT, Action.LOGIN_FAILED, Action.LOGIN]
    assert place.client.get("/").status_code == 303


def test_who_is_refused_too_often_has_to_wait(place: Place) -> None:
    client = place.anyone()
    codes = [client.post("/login", data={"secret": "wrong"}).status_code for _ in range(12)]
    assert codes == [401] * 10 + [429] * 2
    assert client.post("/login", data={"secret": SECRET}).status_code == 429


def test_a_revoked_key_is_out_within_a_second(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    key = place.do(new_key(place.store, "ada", Role.VIEWER))
    client = place.log_in(key)
    assert client.get("/").status_code == 200
    place.do(place.store.revoke_key(key.split("_")[1], by="admin"))
    monkeypatch.setattr("holdfast.server.keyring.FRESH", 0.0)
    assert client.get("/").status_code == 303


@pytest.mark.parametrize("role", [Role.WORKER, Role.CLIENT])
def test_keys_of_machines_do_not_open_the_dashboard(place: Place, role: Role) -> None:
    key = place.do(new_key(place.store, "machine", role))
    answer = place.anyone().post("/login", data={"secret": key})
    assert answer.status_code == 401
    assert f"the key of a {role}" in answer.text


def test_an_expired_key_is_refused(place: Place) -> None:
    key = place.do(new_key(place.store, "old", Role.ADMIN, expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    assert "has expired" in place.anyone().post("/login", data={"secret": key}).text


def test_a_login_leads_back_to_the_page_that_was_asked_for_and_nowhere_else(place: Place) -> None:
    assert place.anyone().post("/login", data={"secret": SECRET, "next": "/jobs?q=a"}).headers["location"] == "/jobs?q=a"
    for elsewhere in ("https://example.org", "//example.org", "/\\example.org", "javascript:alert(1)"):
        assert place.anyone().post("/login", data={"secret": SECRET, "next": elsewhere}).headers["location"] == "/"


# -- what a role may -------------------------------------------------------------------------------------------------------


def test_viewers_see_no_buttons_and_are_refused_when_they_try(place: Place) -> None:
    (job,) = enqueue(place, new())
    viewer = place.having(Role.VIEWER)
    place.do(place.store.set_limit(OVER_MAIL, LimitRule(most=2)))
    for path in ("/", "/jobs", f"/jobs/{job}", "/queues", "/limits", "/workers", "/schedules", "/chains"):
        page = viewer.get(path).text
        main = page[page.index("<main") : page.index("</main>")]
        assert "<button" not in main, path
        assert "/keys" not in page
    for path, data in (
        (f"/jobs/{job}/cancel", {}),
        ("/jobs/act", {"verb": "delete", "job": str(job)}),
        ("/queues/pause", {"queue": "default"}),
        ("/limits/set", {"kind": "queue", "name": "mail", "most": "9"}),
        ("/limits/clear", {"kind": "queue", "name": "mail"}),
        (f"/workers/{WORLD.job_id()}/drain", {}),
        ("/schedules/run", {"name": "x"}),
        ("/keys", {"name": "me", "role": "admin"}),
    ):
        answer = viewer.post(path, data=data)
        assert answer.status_code == 403, path
    assert viewer.get("/keys").status_code == 403
    assert viewer.get("/audit").status_code == 403
    assert viewer.get("/limits/confirm?kind=queue&name=mail&most=9").status_code == 403
    assert place.do(place.store.limits())[0].rule == LimitRule(most=2)
    assert place.do(place.store.get([job]))[0].state is State.READY


def test_operators_steer_but_make_no_keys(place: Place) -> None:
    (job,) = enqueue(place, new())
    operator = place.having(Role.OPERATOR)
    assert operator.post(f"/jobs/{job}/cancel").status_code == 303
    assert operator.get("/audit").status_code == 200
    assert operator.get("/keys").status_code == 403
    assert place.do(place.store.get([job]))[0].state is State.CANCELED
    assert place.do(place.store.audits(limit=1))[0].actor == "operator one"


def test_a_key_of_some_queues_sees_and_steers_those_alone(place: Place) -> None:
    mine, other = enqueue(place, new(queue="a"), new(queue="b"))
    client = place.having(Role.OPERATOR, queues=("a",))
    assert ids_on(client.get("/jobs").text) == [mine]
    assert client.get(f"/jobs/{other}").status_code == 403
    assert "queue:b" not in client.get("/queues").text
    client.post("/jobs/act", data={"verb": "cancel", "job": [str(mine), str(other)]})
    client.post("/jobs/act", data={"verb": "delete", "all": "1", "q": "state:live"})
    assert client.post("/queues/pause", data={"queue": "b"}).status_code == 403
    assert [view and view.state for view in place.do(place.store.get([mine, other]))] == [State.CANCELED, State.READY]


# -- limits ----------------------------------------------------------------------------------------------------------------


def test_a_limit_is_set_after_a_question_and_cleared_again(place: Place) -> None:
    place.do(place.store.declare({OVER_MAIL: LimitRule(most=8, rate=0.5)}))
    operator = place.having(Role.OPERATOR)
    asked = operator.get("/limits/confirm?kind=queue&name=mail&most=3").text
    assert "Set the limit of queue mail?" in asked
    assert "at most 8 at once, 30 a minute" in asked
    assert "The rate of 30 a minute holds no more" in asked
    answer = operator.post("/limits/set", data={"kind": "queue", "name": "mail", "most": "3", "rate": "60", "per": "60"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/limits")
    (view,) = place.do(place.store.limits())
    assert (view.rule, view.override_by) == (LimitRule(most=3, rate=1.0), "operator one")
    page = html.unescape(operator.get("/limits").text)
    assert "at most 3 at once, 1 a second" in page
    assert "by operator one" in page
    assert "declared: at most 8 at once, 30 a minute" in page
    assert "at most 8 at once, 30 a minute" in operator.get("/limits/confirm?clear=1&kind=queue&name=mail").text
    assert operator.post("/limits/clear", data={"kind": "queue", "name": "mail"}).status_code == 303
    assert place.do(place.store.limits())[0].override is None
    lines = place.do(place.store.audits(limit=2, action=Action.SET_LIMIT))
    assert [(line.actor, line.targets) for line in lines] == [("operator one", ("queue mail",))] * 2


def test_a_limit_of_one_key_is_told_from_that_of_all(place: Place) -> None:
    post = place.client.post
    assert post("/limits/set", data={"kind": "scope", "name": "tenants", "key": "", "most": "3"}).status_code == 303
    assert post("/limits/set", data={"kind": "scope", "name": "tenants", "key": "acme", "weight": "2"}).status_code == 303
    assert post("/limits/set", data={"kind": "scope", "name": "tenants", "key": "", "one": "1", "most": "5"}).status_code == 303
    scope = LimitName(LimitKind.KEY, "tenants")
    found = {view.name: view.override for view in place.do(place.store.limits())}
    assert found == {
        scope: LimitRule(most=3),
        scope._replace(key="acme"): LimitRule(weight=2.0),
        scope._replace(key=""): LimitRule(most=5),
    }
    page = place.client.get("/limits").text
    assert "at most 3 at once, weight 2" in page
    assert "at most 3 at once, each key" in page


def test_a_limit_that_is_lowered_says_what_runs_on(place: Place) -> None:
    enqueue(place, new(), new())

    async def run() -> None:
        worker = Worker(id=WORLD.job_id(), name="w", slots=8)
        await place.store.register(worker)
        await place.store.claim(ClaimRequest(worker=worker.id, tasks=frozenset({"mail.send"}), limit=2, look=True))

    place.do(run())
    asked = place.client.get("/limits/confirm?kind=task&name=mail.send&most=1").text
    assert "2 run now. They run on; the next one starts when fewer than 1 are left." in asked
    assert "None may run" in place.client.get("/limits/confirm?kind=task&name=mail.send&most=0").text


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"kind": "worker", "name": "a", "most": "1"}, "choose a queue, a task or a scope"),
        ({"kind": "queue", "name": " ", "most": "1"}, "must not be empty"),
        ({"kind": "queue", "name": "a"}, "This limits nothing"),
        ({"kind": "queue", "name": "a", "most": "many"}, "Most: 'many' is no number"),
        ({"kind": "queue", "name": "a", "most": "1e400"}, "is no number"),
        ({"kind": "queue", "name": "a", "most": "nan"}, "is no number"),
        ({"kind": "queue", "name": "a", "most": "1.5"}, "must be a whole number"),
        ({"kind": "queue", "name": "a", "most": "-1"}, "must be a whole number from 0"),
        ({"kind": "queue", "name": "a", "rate": "0"}, "Rate: must be a number from"),
        ({"kind": "queue", "name": "a", "key": "b", "most": "1"}, "a queue has no keys"),
        ({"kind": "task", "name": "a", "weight": "2"}, "queues and single keys have a weight"),
    ],
)
def test_a_limit_that_makes_no_sense_is_explained(place: Place, fields: dict[str, str], says: str) -> None:
    for answer in (
        place.client.get("/limits/confirm", params=fields),
        place.client.post("/limits/set", data=fields),
    ):
        if answer.request.method == "POST" or "weight" not in fields:
            assert (answer.status_code, says in html.unescape(answer.text)) == (400, True), answer.text
    assert place.do(place.store.limits()) == []


def test_a_key_of_some_queues_sees_and_sets_limits_of_those_alone(place: Place) -> None:
    for name in (OVER_MAIL, LimitName(LimitKind.TASK, "mail.send"), LimitName(LimitKind.KEY, "tenants")):
        place.do(place.store.set_limit(name, LimitRule(most=2)))
    place.do(place.store.set_limit(LimitName(LimitKind.QUEUE, "a"), LimitRule(most=7)))
    client = place.having(Role.OPERATOR, queues=("a",))
    page = client.get("/limits").text
    assert "at most 7 at once" in page
    assert "at most 2 at once" not in page
    for kind, which in (("queue", "mail"), ("task", "mail.send"), ("scope", "tenants")):
        for path in ("/limits/set", "/limits/clear"):
            assert client.post(path, data={"kind": kind, "name": which, "most": "1"}).status_code == 403
    assert client.post("/limits/set", data={"kind": "queue", "name": "a", "most": "1"}).status_code == 303


def test_a_job_that_a_limit_holds_back_says_so(place: Place) -> None:
    (job,) = enqueue(place, new(queue="mail", limit=LimitKey("tenants", "acme")))
    place.do(place.store.set_limit(LimitName(LimitKind.KEY, "tenants"), LimitRule(most=0)))
    page = html.unescape(place.client.get(f"/jobs/{job}").text)
    assert 'class="state throttled"' in page
    assert "he limit of its key 'acme' in 'tenants' is used up: it lets none run" in page
    assert "key acme in tenants" in page
    assert 'class="state throttled"' in place.client.get("/jobs").text
    place.do(place.store.set_limit(OVER_MAIL, LimitRule(most=4)))
    assert "limit 4</a>" in place.client.get("/queues").text


@pytest.mark.parametrize(
    ("info", "status"), [('{"queues": ["a"]}', 303), ('{"queues": ["a", "b"]}', 403), ('{"queues": null}', 403), ("{}", 403)]
)
@pytest.mark.parametrize("verb", ["drain", "disable", "enable", "revoke"])
def test_a_key_of_some_queues_steers_workers_of_those_alone(place: Place, verb: str, info: str, status: int) -> None:
    worker = Worker(id=WORLD.job_id(), name="w-1", info=info)
    place.do(place.store.register(worker))
    client = place.having(Role.OPERATOR, queues=("a",))
    assert client.post(f"/workers/{worker.id}/{verb}").status_code == status
    if status == 403:
        view = place.do(place.store.workers())[0]
        assert (view.disabled_at, view.draining_at) == (None, None)


# -- where a request comes from --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}, 303),
        ({"Sec-Fetch-Site": "", "Origin": "http://testserver"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://example.org"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://example.org"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "null"}, 403),
    ],
)
def test_only_pages_of_the_dashboard_change_anything(place: Place, headers: dict[str, str], status: int) -> None:
    (job,) = enqueue(place, new())
    assert place.client.post(f"/jobs/{job}/cancel", headers=headers).status_code == status
    assert (place.do(place.store.get([job]))[0].state is State.CANCELED) is (status == 303)


@pytest.mark.parametrize(("origin", "status"), [("http://testserver", 303), ("http://example.org", 403), (None, 403)])
def test_browsers_that_do_not_say_their_site_are_judged_by_origin(place: Place, origin: str | None, status: int) -> None:
    (job,) = enqueue(place, new())
    del place.client.headers["sec-fetch-site"]
    headers = {} if origin is None else {"Origin": origin}
    assert place.client.post(f"/jobs/{job}/cancel", headers=headers).status_code == status


def test_an_open_server_answers_to_the_names_of_its_own_machine() -> None:
    with ExitStack() as stack:
        place = opened(stack, ServerSettings(open=True))
        assert place.client.get("/", headers={"Host": "127.0.0.1:7878"}).status_code == 200
        assert place.client.get("/", headers={"Host": "localhost"}).status_code == 200
        assert place.client.get("/", headers={"Host": "rebound.example.org"}).status_code == 403
        elsewhere = TestClient(place.server, "http://192.0.2.7")
        assert elsewhere.get("/", headers={"Host": "127.0.0.1"}).status_code == 403


# -- steering --------------------------------------------------------------------------------------------------------------


def test_a_bulk_action_asks_first_and_says_how_many(place: Place) -> None:
    enqueue(place, *(new() for _ in range(8)))
    work(place, *(Error("TIMEOUT", "slow") for _ in range(5)), *(Error("OTHER") for _ in range(3)))
    asks = place.client.get("/jobs/confirm", params={"verb": "retry", "all": "1", "q": "error:TIMEOUT"})
    assert "Retry 5 jobs?" in asks.text
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', asks.text))
    answer = place.client.post("/jobs/act", data={name: html.unescape(value) for name, value in fields.items()})
    assert answer.status_code == 303
    assert "5 jobs to run again" in place.client.get(answer.headers["location"]).text
    assert place.do(place.store.stats()).count(State.READY) == 5
    line = place.do(place.store.audits(limit=1))[0]
    assert (line.action, line.actor, line.count) == (Action.RETRY, "admin", 5)


def test_a_bulk_action_leaves_alone_what_came_after_the_question(place: Place) -> None:
    enqueue(place, new())
    asks = place.client.get("/jobs/confirm", params={"verb": "cancel", "all": "1", "q": "task:mail.send"}).text
    before = html.unescape(re.findall(r'name="before" value="([^"]+)"', asks)[0])
    enqueue(place, new())
    place.client.post("/jobs/act", data={"verb": "cancel", "all": "1", "q": "task:mail.send", "before": before})
    assert place.do(place.store.stats()).count(State.READY) == 1


def test_a_bulk_action_stops_at_its_cap_and_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "CAP", 3)
    enqueue(place, *(new() for _ in range(5)))
    asks = place.client.get("/jobs/confirm", params={"verb": "cancel", "all": "1", "q": ""}).text
    assert "Cancel 3+ jobs?" in asks
    assert "up to 3 are taken at once" in asks
    place.client.post("/jobs/act", data={"verb": "cancel", "all": "1", "q": ""})
    assert place.do(place.store.stats()).count(State.READY) == 2


@pytest.mark.parametrize("q", ["tag:nobody", "state:failed error:NOBODY"])
def test_a_question_looks_through_the_newest_jobs_and_says_so(place: Place, monkeypatch: pytest.MonkeyPatch, q: str) -> None:
    """A store of millions goes on for as long as it is asked: whoever asks has to stop."""
    looks = endless(place, monkeypatch)
    asks = place.client.get("/jobs/confirm", params={"verb": "retry", "all": "1", "q": q}).text
    assert len(looks) <= MOST_LOOKS
    assert f"The newest {len(looks) * SEARCH_LIMIT:,} jobs were looked through" in asks
    (older,) = [html.unescape(link) for link in re.findall(r'href="(/jobs/confirm\?[^"]+)"', asks)]
    last = looks[-1]
    assert f"The next {SEARCH_LIMIT * 12:,} jobs" in place.client.get(older).text
    assert last.int - 1 in [look.int for look in looks]


def test_an_action_looks_no_further_than_its_question_did(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = endless(place, monkeypatch)
    until = UUID(int=2**127 - 2)
    data = {"verb": "retry", "all": "1", "q": "tag:nobody", "until": str(until)}
    assert place.client.post("/jobs/act", data=data).status_code == 303
    assert looks == [UUID(int=2**127 - 1), until]
    looks.clear()
    place.client.post("/jobs/act", data={"verb": "retry", "all": "1", "q": "tag:nobody"})
    assert len(looks) <= MOST_LOOKS


def endless(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Have the store find nothing, however often it is asked to go on; returns where each look ended."""
    looks: list[UUID] = []

    async def find(where: JobFilter, *, limit: int, after: UUID | None = None) -> Page:
        assert len(looks) < 100, "it looks through everything"
        looks.append(UUID(int=(2**127 if after is None else after.int) - 1))
        return Page([], looks[-1], searched_all=False)

    monkeypatch.setattr(place.store, "find", find)
    return looks


def test_a_group_of_failures_is_retried_as_one(place: Place) -> None:
    enqueue(place, *(new() for _ in range(3)))
    work(place, Error("A", "x"), Error("A", "y"), Error("B", "z"))
    page = place.client.get("/").text
    links = [html.unescape(link) for link in re.findall(r'href="(/jobs/confirm\?[^"]+)"', page)]
    asks = place.client.get(next(link for link in links if "code=A" in link)).text
    assert "Retry 2 jobs?" in asks
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', asks))
    place.client.post("/jobs/act", data={name: html.unescape(value) for name, value in fields.items()})
    assert place.do(place.store.stats()).count(State.READY) == 2


def test_a_large_group_of_failures_is_retried_whole_and_said_to_be_large(place: Place) -> None:
    enqueue(place, *(new() for _ in range(1_500)))
    work(place, *(Error("A", "x") for _ in range(1_500)))
    page = place.client.get("/").text
    assert ">1,000+<" in page
    (link,) = [html.unescape(link) for link in re.findall(r'href="(/jobs/confirm\?[^"]+)"', page)]
    asks = place.client.get(link).text
    assert "Retry 1,000+ jobs?" in asks
    assert "up to 10,000 are taken at once" in asks
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', asks))
    answer = place.client.post("/jobs/act", data={name: html.unescape(value) for name, value in fields.items()})
    assert "1,500 jobs to run again" in place.client.get(answer.headers["location"]).text
    assert place.do(place.store.stats()).count(State.READY) == 1_500


def test_a_group_of_failures_is_retried_up_to_its_cap_and_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "CAP", 3)
    enqueue(place, *(new() for _ in range(5)))
    work(place, *(Error("A", "x") for _ in range(5)))
    answer = place.client.post("/jobs/act", data={"verb": "retry", "task": "mail.send", "code": "A", "frame": ""})
    assert place.do(place.store.stats()).count(State.READY) == 3
    assert "There are more" in place.client.get(answer.headers["location"]).text


def test_a_group_that_is_not_found_among_all_that_fails_is_said_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "FAILURES", 2)
    monkeypatch.setattr(overview, "MOST_PAGES", 2)
    enqueue(place, *(new() for _ in range(6)))
    work(place, Error("RARE", "x"))
    work(place, *(Error("A", "x") for _ in range(5)))
    asks = place.client.get("/jobs/confirm", params={"verb": "retry", "task": "mail.send", "code": "RARE", "frame": ""}).text
    assert "Retry 0 jobs?" in asks
    assert "more has failed than that" in asks


def test_a_group_leaves_alone_what_failed_after_the_question(place: Place) -> None:
    enqueue(place, new(), new())
    work(place, Error("A", "x"))
    before = place.do(place.store.now()).isoformat()
    work(place, Error("A", "x"))
    place.client.post("/jobs/act", data={"verb": "retry", "task": "mail.send", "code": "A", "frame": "", "before": before})
    assert place.do(place.store.stats()).count(State.READY) == 1


def test_a_queue_is_paused_with_a_reason_and_resumed(place: Place) -> None:
    enqueue(place, new(queue="mail"))
    place.client.post("/queues/pause", data={"queue": "mail", "reason": "the server moves"})
    page = place.client.get("/queues").text
    assert "by admin" in page
    assert "the server moves" in page
    place.client.post("/queues/resume", data={"queue": "mail"})
    assert place.do(place.store.queues())[0].paused_at is None


def test_a_queue_shows_how_far_its_slots_are_taken_and_how_its_last_half_hour_was(place: Place) -> None:
    async def furnish() -> None:
        store = place.store
        said = {"one": (4, '{"queues": ["mail"]}'), "all": (8, "{}"), "off": (16, '{"queues": ["mail"]}'), "manager": (0, "{}")}
        workers = {name: Worker(id=WORLD.job_id(), name=name, slots=slots, info=info) for name, (slots, info) in said.items()}
        for worker in workers.values():
            await store.register(worker)
        await store.disable(workers["off"].id)
        await store.enqueue([new(queue="mail") for _ in range(3)])
        await store.enqueue([new(queue="other")])
        request = ClaimRequest(worker=workers["one"].id, tasks=frozenset({"mail.send"}), queues=frozenset({"mail"}), limit=3)
        assert len(await store.claim(request)) == 3
        for count in (5, 0, 10):
            if count:
                await store.measure([Figure(queue="mail", task="mail.send", event=Event.SUCCEED, count=count)])
            await store.measure([Figure(queue="mail", task="mail.send", event=Event.FAIL, code="A", count=1)])
            await store.rewind(60.0)

    place.do(furnish())
    rows = dict(re.findall(r'<tr id="queue-\d+-(\w+)"(.*?)</tr>', place.client.get("/queues").text, re.DOTALL))
    assert "3 of 12 slots" in rows["mail"]
    assert '<progress value="3" max="12"' in rows["mail"]
    assert "0 of 8 slots" in rows["other"]
    assert re.search(r"ended a minute over the last 30 minutes: \d+ in the latest, 11 at most; \d badly", rows["mail"])
    (points,) = re.findall(r'<polyline class="all" points="([^"]+)"', rows["mail"])
    heights = [float(point.partition(",")[2]) for point in points.split()]
    assert len(heights) == 30
    first, second, third = (height for height in heights if height != max(heights))
    assert second > first > third
    assert "<polyline" not in rows["other"]
    assert "nothing ended in the last 30 minutes" in rows["other"]


def test_a_worker_shows_what_it_says_of_itself_and_whose_key_it_came_with(place: Place) -> None:
    info = {"host": "box-7", "queues": ["mail"], "tasks": ["mail.send", "<b>x</b>"], "more_tasks": 40, "rack": "r" * 5_000}
    info |= {"api_key": "s3cr3t"}
    worker = Worker(id=WORLD.job_id(), name="far", version="2.1", owner="key of ada", info=json.dumps(info))
    place.do(place.store.register(worker))
    page = place.client.get("/workers").text
    (row,) = re.findall(rf'<details id="about-{worker.id}">(.*?)</details>', page, re.DOTALL)
    for text in ("box-7", "mail.send", "and 40 more", "key of ada", "2.1", "&lt;b&gt;x&lt;/b&gt;"):
        assert text in row, text
    assert "s3cr3t" not in row
    assert len(row) < 5_000
    assert f'about-{worker.id}"' in place.having(Role.VIEWER, queues=("mail",)).get("/workers").text
    assert f'about-{worker.id}"' not in place.having(Role.VIEWER, queues=("other",)).get("/workers").text


def test_it_is_shown_how_often_a_worker_lost_redis_and_since_when_it_is_as_it_is(place: Place) -> None:
    worker = Worker(id=WORLD.job_id(), name="w-1", slots=2)
    place.do(place.store.register(worker))
    counts = {BREAKER: 2, LASTS: 90, f"{TRANSITIONS}:open": 3, f"{TRANSITIONS}:half-open": 2, f"{TRANSITIONS}:closed": 0}
    place.do(place.store.beat(Beat(worker=worker.id, counters=json.dumps(counts))))
    page = place.client.get("/workers").text
    assert re.search(r"Redis: open, entered .*1m 30s ago.*; opened 3\u00d7, 5 changes", page)
    counts |= {BREAKER: 0, LASTS: 1, f"{TRANSITIONS}:closed": 1}
    place.do(place.store.beat(Beat(worker=worker.id, counters=json.dumps(counts))))
    assert re.search(r"Redis: closed, entered .*; opened 3\u00d7, 6 changes", place.client.get("/workers").text)
    for odd in ("[1]", '{"redis_breaker": "x"}', '{"redis_breaker": 2, "redis_phase_seconds": 1e99}', "no json"):
        place.do(place.store.beat(Beat(worker=worker.id, counters=odd)))
        assert place.client.get("/workers").status_code == 200


@pytest.mark.parametrize("info", ['"text"', "[1]", "{no json", '{"tasks": 7}', '{"tasks": [1], "more_tasks": "x"}'])
def test_a_worker_may_say_anything_of_itself(place: Place, info: str) -> None:
    place.do(place.store.register(Worker(id=WORLD.job_id(), name="odd", info=info)))
    assert place.client.get("/workers").status_code == 200


def test_a_worker_is_drained_disabled_enabled_and_revoked(place: Place) -> None:
    worker = Worker(id=WORLD.job_id(), name="w-1", slots=2)
    place.do(place.store.register(worker))

    def view() -> Any:
        return place.do(place.store.workers())[0]

    place.client.post(f"/workers/{worker.id}/disable")
    assert view().disabled_by == "admin"
    place.client.post(f"/workers/{worker.id}/enable")
    assert view().disabled_at is None
    place.client.post(f"/workers/{worker.id}/drain")
    assert view().draining_at is not None
    assert ">draining<" in re.sub(r"<svg.*?</svg>", "", place.client.get("/workers").text, flags=re.DOTALL)
    assert "taken back at once" in place.client.get(f"/workers/{worker.id}/revoke").text
    place.client.post(f"/workers/{worker.id}/revoke")
    assert view().disabled_at is not None


def workers_on(page: str) -> list[UUID]:
    return [UUID(found) for found in re.findall(r'<tr id="worker-([0-9a-f-]{36})"', page)]


def test_workers_are_listed_page_by_page_the_living_first(place: Place) -> None:
    workers = [Worker(id=WORLD.job_id(), name=f"w-{number}", slots=1) for number in range(250)]

    async def come_and_go() -> None:
        for worker in workers:
            await place.store.register(worker)
        for worker in workers[120:]:
            await place.store.retire(worker.id)

    place.do(come_and_go())
    listed = [view.worker.id for view in place.do(place.store.workers())]
    for path, expected in (("/workers?all=1", [100, 100, 50]), ("/workers", [100, 20])):
        seen, lengths, link = list[UUID](), list[int](), path
        while link:
            page = place.client.get(link).text
            assert (">First</a>" in page) == (link != path)
            seen += workers_on(page)
            lengths.append(len(workers_on(page)))
            following = re.search(r'rel="next" href="([^"]+)"', page)
            link = html.unescape(following[1]) if following else ""
        assert lengths == expected
        assert seen == listed[: sum(expected)]
    assert place.client.get("/workers?after=nonsense").status_code == 400
    assert place.client.get(f"/workers?after=~0001-01-01T00:00:00%2B23:00~{workers[0].id}").status_code == 400


def test_decisions_of_managers_are_shown_with_the_workers(place: Place) -> None:
    assert "Scaling" not in place.client.get("/workers").text
    place.do(place.store.register(Worker(id=WORLD.job_id(), name="manager m", slots=0)))
    place.do(place.store.note(Action.SCALE, ["4 workers"], by="manager m", detail="up from 2 to 4: 90 wait"))
    page = place.client.get("/workers").text
    assert "Scaling" in page
    assert "up from 2 to 4: 90 wait" in page
    assert ">manages<" in page
    assert "Revoke" not in page


def test_why_a_manager_leaves_the_number_as_it_is_stands_beside_it(place: Place) -> None:
    manager = Worker(id=WORLD.job_id(), name="manager m", slots=0)
    place.do(place.store.register(manager))
    place.do(place.store.beat(Beat(worker=manager.id, counters=json.dumps({"reason": "stays at 2: m.2 does not come up"}))))
    assert "stays at 2: m.2 does not come up" in place.client.get("/workers").text


def test_a_manager_that_was_killed_is_silent_and_its_last_word_has_its_age(place: Place) -> None:
    manager = Worker(id=WORLD.job_id(), name="manager m", slots=0)
    place.do(place.store.register(manager))
    place.do(place.store.beat(Beat(worker=manager.id, counters=json.dumps({"reason": "stays at 2: 0 wait"}))))
    assert "silent for" not in place.client.get("/workers").text
    place.do(place.store.rewind(23))
    page = re.sub(r"<[^>]*>", "", place.client.get("/workers").text)
    assert "silent for 23s" in page
    assert "23s ago: stays at 2: 0 wait" in page
    assert "manages" not in page


@pytest.mark.parametrize(("level", "said"), [(0, ["closed"]), (1, ["half-open"] * 2), (2, ["open"] * 2)])
def test_a_worker_that_has_lost_redis_is_shown_as_such(place: Place, level: int, said: list[str]) -> None:
    """In its row and among what is known of it; that all is well there alone."""
    worker = Worker(id=WORLD.job_id(), name="far", slots=4)
    place.do(place.store.register(worker))
    place.do(place.store.beat(Beat(worker=worker.id, counters=json.dumps({BREAKER: level}))))
    page = place.client.get("/workers").text
    assert re.findall(r"Redis: ([a-z-]+)", page) == said


def test_a_key_is_shown_once_when_it_is_made(place: Place) -> None:
    page = place.client.post("/keys", data={"name": "ada", "role": "viewer", "queues": "a, b", "expires": "90d"}).text
    key = re.findall(r"hf_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", page)[0]
    assert place.log_in(key).get("/").status_code == 200
    assert key not in place.client.get("/keys").text
    kept = place.do(place.store.keys())[0]
    assert (kept.name, kept.queues, kept.created_by) == ("ada", ("a", "b"), "admin")
    place.client.post(f"/keys/{kept.id}/revoke")
    assert place.do(place.store.keys([kept.id]))[0].revoked_by == "admin"


def test_a_key_is_narrowed_to_what_its_role_may(place: Place) -> None:
    made = {"name": "farm", "role": "worker", "actions": "work, get"}
    assert "work, get" in place.client.post("/keys", data=made).text
    assert place.do(place.store.keys())[0].actions == ("work", "get")
    refused = place.client.post("/keys", data=made | {"actions": "work, steer"})
    assert refused.status_code == 400
    assert "may enqueue, get, work, and not &#39;steer&#39;" in refused.text
    assert len(place.do(place.store.keys())) == 1


def test_a_key_takes_over_from_another_for_as_long_as_that_was_made_for(place: Place) -> None:
    place.do(new_key(place.store, "farm", Role.VIEWER, expires_at=datetime.now(UTC) + timedelta(days=90)))
    old = place.do(place.store.keys())[0]
    for expires, lives in (("", timedelta(days=90)), ("never", None), ("2h", timedelta(hours=2))):
        page = place.client.post(f"/keys/{old.id}/rotate", data={"overlap": "1d", "expires": expires}).text
        (text,) = re.findall(r"hf_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", page)
        assert place.log_in(text).get("/").status_code == 200
        new = place.do(place.store.keys([text.split("_")[1]]))[0]
        assert new.created_at is not None
        if lives is None:
            assert new.expires_at is None
        else:
            assert new.expires_at is not None
            assert abs(new.expires_at - new.created_at - lives) < timedelta(seconds=60)
        old = new
    assert [line.action for line in place.do(place.store.audits(limit=9))].count(Action.ROTATE_KEY) == 3


def test_a_key_that_has_ended_is_not_rotated(place: Place) -> None:
    key = place.do(new_key(place.store, "farm", Role.VIEWER)).split("_")[1]
    assert place.client.post(f"/keys/{key}/rotate", data={"overlap": "soon"}).status_code == 400
    place.do(place.store.revoke_key(key, by="admin"))
    for answer in (place.client.get(f"/keys/{key}/rotate"), place.client.post(f"/keys/{key}/rotate", data={"overlap": "1h"})):
        assert answer.status_code == 409
        assert "was revoked" in answer.text
    assert place.client.get("/keys/000000000000/rotate").status_code == 404
    assert len(place.do(place.store.keys())) == 1


@pytest.mark.parametrize(
    ("narrowed", "why"),
    [
        ({"queues": ("mail",)}, "to the queues mail"),
        ({"actions": ("keys", "look")}, "to the actions keys, look"),
        ({"expires_at": datetime.now(UTC) + timedelta(days=1)}, "by the time it ends"),
    ],
)
def test_a_narrowed_admin_makes_no_keys_and_is_told_why(place: Place, narrowed: dict[str, Any], why: str) -> None:
    """Not even one like its own: a key that ends could live on for ever by its successors."""
    whole, bound = place.having(Role.ADMIN), place.having(Role.ADMIN, **narrowed)
    before = place.do(place.store.keys())
    for wanted in ({"role": "admin"}, {"role": "viewer", "queues": "mail", "expires": "1h"}):
        answer = bound.post("/keys", data={"name": "heir", **wanted})
        assert answer.status_code == 403
        assert f"its own key is narrowed {why}" in html.unescape(answer.text)
    for key in before:
        assert bound.get(f"/keys/{key.id}/rotate").status_code == 403
        assert bound.post(f"/keys/{key.id}/rotate", data={"overlap": "1h"}).status_code == 403
    assert [key.id for key in place.do(place.store.keys())] == [key.id for key in before]
    open_page = {"HX-Request": "true"}
    assert "Make a key" in whole.get("/keys", headers=open_page).text
    page = bound.get("/keys", headers=open_page).text  # not the page that others who are admins have open
    assert f"Your own key is narrowed {why}" in page
    assert "Make a key" not in page


# -- trouble ---------------------------------------------------------------------------------------------------------------


def test_a_store_that_is_away_is_a_page_and_a_banner(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> None:
        raise StoreUnavailable("postgresql://user:pw@db/x", 3.0, "connection refused")

    monkeypatch.setattr(place.store, "stats", away)
    answer = place.client.get("/jobs")
    assert answer.status_code == 503
    assert "The store does not answer." in answer.text
    assert "Traceback" not in answer.text
    part = place.client.get("/jobs", headers={"HX-Request": "true"})
    assert part.headers["hx-retarget"] == "#banner"
    assert "The page below is as it last was" in part.text


def test_a_mistake_of_ours_is_a_page_that_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(place.store, "queues", broken)
    answer = place.client.get("/queues")
    assert answer.status_code == 500
    assert "there is a mistake in Holdfast" in answer.text
    assert "ZeroDivisionError" not in answer.text


def test_a_form_that_is_too_large_is_refused(place: Place) -> None:
    assert place.client.post("/queues/pause", data={"queue": "x" * 3_000_000}).status_code == 413


def test_it_works_under_a_prefix() -> None:
    with ExitStack() as stack:
        place = opened(stack, ServerSettings(admin_secret=SECRET, prefix="/ops/jobs"))
        (job,) = enqueue(place, new())
        page = place.client.get("/ops/jobs/jobs").text
        assert f'href="/ops/jobs/jobs/{job}"' in page
        assert 'hx-sse:connect="/ops/jobs/live"' in page
        assert not re.search(r'(?:href|src|action)="/(?!ops/jobs)', page)
        for address in re.findall(r'(?:href|src)="(/ops/jobs/static/[^"]+)"', page):
            answer = place.client.get(html.unescape(address))
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
        cookie = place.client.post("/ops/jobs/login", data={"secret": SECRET}).headers
        assert cookie["location"] == "/ops/jobs/"
        anyone = place.anyone()
        anyone.headers.update(OWN)
        assert "path=/ops/jobs;" in anyone.post("/ops/jobs/login", data={"secret": SECRET}).headers["set-cookie"].lower()


def test_hostile_texts_are_texts_on_every_page(place: Place) -> None:
    evil = '"><img src=x onerror=alert(1)>'
    jobs = enqueue(place, new(evil, queue=evil, tags=(evil,), args=f'{{"a": "{evil[2:]}"}}'))
    place.do(place.store.pause(evil, by=evil, reason=evil))
    place.do(place.store.register(Worker(id=WORLD.job_id(), name=evil, version=evil, capabilities=(evil,))))
    client: TestClient = place.client
    for path in (*PAGES, f"/jobs/{jobs[0]}", f"/jobs?q={evil}", f"/jobs/confirm?verb=cancel&job={jobs[0]}&back={evil}"):
        assert "<img" not in client.get(path).text, path


def test_what_is_about_every_queue_is_kept_from_those_who_may_see_some(place: Place) -> None:
    narrow = place.having(Role.OPERATOR, queues=("mail",))
    assert narrow.get("/audit").status_code == 403
    assert "tells of every queue" in narrow.get("/audit").text
    assert place.having(Role.OPERATOR).get("/audit").status_code == 200
    snapshot = Snapshot(
        version=1, stats=Stats([TaskCounts("mail", "t", {State.READY: 2}), TaskCounts("x", "t", {State.READY: 5})])
    )
    assert "2 ready" in snapshot.told_of(frozenset({"mail"}))
    assert "7 ready" in snapshot.summary()
    key = place.do(new_key(place.store, "narrow", Role.VIEWER, queues=("mail",)))
    told = {name: place.anyone().get("/health/ready", headers=bearer(name)).json() for name in (key, SECRET)}
    assert ("figures" in told[key], "figures" in told[SECRET]) == (False, True)
