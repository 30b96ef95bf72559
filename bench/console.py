"""Times of the web console's pages in Chromium, their requests to the broker, and its memory.

    python -m trocket.bench.console                      # 1,000 topics and groups, 50 loads a page
    python -m trocket.bench.console --page topics --loads 10
    python -m trocket.bench.console --memory-loads 10000 --streams 1000

The broker runs in this process, the console is `trocket console` as a process beside it, and
Chromium is the machine's own. Each page is opened again and again in one window; the times are
those of the browser (Navigation Timing). The requests are those that reach the broker from the
opening of a page to the next: at 50 loads in a few seconds most of them share one sample, so the
column `first` has what the first opening asked, with a console that was just started.

The memory is that of the console's process, before and after page loads and opened and closed event
streams, without a browser.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import anyio
import typer
from rich.console import Console

from trocket.bench.kit import Columns, chosen, percentile, resident_mb, show
from trocket.blocking import Producer, PushConsumer
from trocket.client import Client, Message
from trocket.console.pages.table import PAGES
from trocket.interop.trocket_peer import COMMAND
from trocket.remoting.headers.consumer import UpdateConsumerOffsetRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

QUERIES: Final[Mapping[str, Mapping[str, str]]] = {
    "topic": {"topic": "Orders"},
    "group": {"group": "billing"},
    "broker": {"name": "broker-a"},
    "dead_letters": {"group": "billing"},
    "popped": {"group": "billing"},
    "tail": {"topic": "Orders"},
    "search": {"q": "ill"},
    "messages": {"topic": "Orders"},
}
"""Of pages that need one; `query_of` has that of a message and of a member."""
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CHROMIUMS: Final = ("chromium", "chromium-browser", "google-chrome")
FINDINGS_S: Final = 30.0
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class PageResult:
    """One page.

    Attributes:
      first_byte_p50_ms, first_byte_p95_ms: from the beginning of the navigation.
      load_p50_ms, load_p95_ms: to the end of the load event.
      first_requests: that the broker got at the first opening, those of the doctor among them.
      requests: that it got for each of the others, on average.
      size: bytes of the page, without its files.
    """

    page: str
    loads: int
    first_byte_p50_ms: float
    first_byte_p95_ms: float
    load_p50_ms: float
    load_p95_ms: float
    first_requests: int
    requests: float
    size: int


@dataclass(frozen=True)
class MemoryResult:
    """The console's process before and after many loads and event streams."""

    loads: int
    streams: int
    before_mb: float
    after_mb: float
    took_s: float


class Served(NamedTuple):
    """A running console: its process, its address, and the cookie of a person."""

    pid: int
    address: str
    cookie: str

    def get(self, path: str) -> http.client.HTTPResponse:
        """The answer to a request, to be read."""
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=TIMEOUT_S)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        return connection.getresponse()


@contextmanager
def served(url: str) -> Iterator[Served]:
    """`trocket console` of a cluster, logged in."""
    command = [*COMMAND, "console", "-n", url, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = urlsplit(process.stdout.readline().strip())
            address = f"http://{line.netloc}"
            answer = Served(process.pid, address, "").get(f"{line.path}?{line.query}")
            cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
            yield Served(process.pid, address, cookie)
        finally:
            process.terminate()


@contextmanager
def stocked(topics: int, groups: int) -> Iterator[Broker]:
    """A broker with many topics and groups, and one group with two members."""
    names = [f"T{number:04}" for number in range(topics)]
    made: tuple[tuple[RequestCode, dict[str, Any]], ...] = (
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            {"topicConfigList": [{"topicName": name} for name in names]},
        ),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            {"groupConfigList": [{"groupName": f"g{number:04}"} for number in range(groups)]},
        ),
    )
    with Broker() as broker:

        async def make() -> None:
            async with Client(broker.url) as client:
                for code, tree in made:
                    body = json.dumps(tree).encode()
                    await client.request(broker.broker_address, code, body=body)
                for number in range(groups):
                    header = UpdateConsumerOffsetRequestHeader(
                        topic=names[number % topics],
                        consumer_group=f"g{number:04}",
                        queue_id=0,
                        commit_offset=0,
                    )
                    code = RequestCode.UPDATE_CONSUMER_OFFSET
                    await client.request(broker.broker_address, code, header)

        anyio.run(make)
        with Producer(broker.url, group="bench") as producer:
            for number in range(100):
                producer.send(Message("Orders", b"%d" % number, tags="paid"))
        with (
            PushConsumer(broker.url, group="billing", subscriptions={"Orders": "paid"}),
            PushConsumer(broker.url, group="billing", subscriptions={"Orders": "*"}),
        ):
            yield broker


def counter(broker: Broker) -> Callable[[], int]:
    """Gives how many requests the broker got from now on, without those of the consumers.

    An earlier counter ends.
    """
    broker.faults.clear()
    consumers = {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    }
    codes = [code for code in RequestCode if code not in consumers]
    faults = [broker.faults.delay(code, seconds=0, times=None) for code in codes]
    return lambda: sum(fault.hits for fault in faults)


def query_of(console: Served, name: str) -> Mapping[str, str]:
    """The query of a page, of a console that is not the one that is measured."""

    def tree(of: str) -> Any:
        return json.loads(console.get(f"/{of}.json?{urlencode(QUERIES[of])}").read())

    if name == "message":
        return {"topic": "Orders", "id": tree("messages")["messages"][0]["messageId"]}
    if name == "member":
        return {"group": "billing", "client": tree("group")["members"][0]["clientId"]}
    return QUERIES.get(name, {})


def measure(browser: Any, broker: Broker, name: str, loads: int) -> PageResult | None:
    """Open a page of a console that was just started; None: it needs a query, or is none here."""
    with served(broker.url) as known:
        path = f"/{name}?{urlencode(query_of(known, name))}"
    asked = counter(broker)
    with served(broker.url) as console:
        first = console.get(path)
        size = len(first.read())
        if first.status != 200:
            return None
        if name == "overview":
            _wait_for_findings(console)
        first_requests = asked()
        window = browser.new_context()
        key, _, value = console.cookie.partition("=")
        window.add_cookies([{"name": key, "value": value, "url": console.address}])
        page = window.new_page()
        page.goto(console.address + path)  # the files are in the browser's cache afterwards
        before, times = asked(), []
        for _ in range(loads):
            page.goto(console.address + path, wait_until="load")
            page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
            times.append(
                page.evaluate(
                    "(() => { const of = performance.getEntriesByType('navigation')[0];"
                    " return [of.responseStart, of.loadEventEnd]; })()"
                )
            )
        requests = (asked() - before) / loads
        window.close()
    first_bytes, ends = (sorted(column) for column in zip(*times, strict=True))
    return PageResult(
        name,
        loads,
        percentile(first_bytes, 0.5),
        percentile(first_bytes, 0.95),
        percentile(ends, 0.5),
        percentile(ends, 0.95),
        first_requests=first_requests,
        requests=requests,
        size=size,
    )


def _wait_for_findings(console: Served) -> None:
    until_s = time.monotonic() + FINDINGS_S
    while json.loads(console.get("/overview.json").read())["findings"] is None:
        if time.monotonic() > until_s:
            raise TimeoutError(f"the doctor found nothing in {FINDINGS_S:g} s")
        time.sleep(0.05)


def measure_memory(broker: Broker, loads: int, streams: int) -> MemoryResult:
    """Load pages and open event streams, and see what the console's process keeps."""
    names = [page.name for page in PAGES]
    with served(broker.url) as console:

        def load(pages: int, opened: int) -> None:
            for number in range(pages):
                name = names[number % len(names)]
                console.get(f"/{name}?{urlencode(QUERIES.get(name, {}))}").read()
            for _ in range(opened):
                answer = console.get("/overview.events")
                answer.readline()
                answer.close()

        load(loads // 10, streams // 10)
        before_mb, begin_s = resident_mb(console.pid), time.monotonic()
        load(loads, streams)
        after_mb = resident_mb(console.pid)
        return MemoryResult(loads, streams, before_mb, after_mb, time.monotonic() - begin_s)


COLUMNS: Columns[PageResult] = {
    "page": lambda one: one.page,
    "first byte p50 ms": lambda one: f"{one.first_byte_p50_ms:.0f}",
    "p95": lambda one: f"{one.first_byte_p95_ms:.0f}",
    "load p50 ms": lambda one: f"{one.load_p50_ms:.0f}",
    "p95 ": lambda one: f"{one.load_p95_ms:.0f}",
    "requests, first": lambda one: str(one.first_requests),
    "others": lambda one: f"{one.requests:.2f}",
    "kB": lambda one: f"{one.size / 1000:.0f}",
}
MEMORY_COLUMNS: Columns[MemoryResult] = {
    "loads": lambda one: f"{one.loads:,}",
    "event streams": lambda one: f"{one.streams:,}",
    "RSS MB before": lambda one: f"{one.before_mb:.1f}",
    "after": lambda one: f"{one.after_mb:.1f}",
    "s": lambda one: f"{one.took_s:.0f}",
}


def _chromium() -> str:
    for name in CHROMIUMS:
        if found := shutil.which(name):
            return found
    raise typer.BadParameter(f"none of {', '.join(CHROMIUMS)} is in PATH")


def main(
    page: Annotated[list[str] | None, typer.Option(help="Measure this page (repeatable).")] = None,
    topics: Annotated[int, typer.Option(min=1, help="Create these.")] = 1_000,
    groups: Annotated[int, typer.Option(min=0, help="Create these, with an offset each.")] = 1_000,
    loads: Annotated[int, typer.Option(min=1, help="Open each page this often.")] = 50,
    memory_loads: Annotated[
        int, typer.Option(min=0, help="Load this number of pages for the memory; 0: none.")
    ] = 0,
    streams: Annotated[int, typer.Option(min=0, help="Event streams for the memory.")] = 1_000,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure the web console."""
    pages = chosen(page, {each.name: each for each in PAGES}, "--page")
    with stocked(topics, groups) as broker:
        if memory_loads:
            kept = measure_memory(broker, memory_loads, streams)
            show([kept], MEMORY_COLUMNS, as_json=json_, title="console")
            return
        try:
            from playwright.sync_api import sync_playwright
        except ModuleNotFoundError as error:
            raise typer.BadParameter("playwright is missing: pip install playwright") from error
        results = []
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=_chromium(), args=[*FLAGS])
            for name in pages:
                Console(stderr=True).print(name)
                if (result := measure(browser, broker, name, loads)) is not None:
                    results.append(result)
            browser.close()
        show(results, COLUMNS, as_json=json_, title="console")


if __name__ == "__main__":
    typer.run(main)
