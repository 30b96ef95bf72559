"""Sends per second at a broker of `trocket up`, without a console beside it and with one.

    python -m trocket.bench.console_beside               # five rounds
    python -m trocket.bench.console_beside --rounds 9 --count 100000

Each run starts `trocket up --memory` anew and `trocket bench send` against it. The sides take turns
in each round, since what else a machine does changes slowly: a round's ratio compares runs that
follow each other. The sides:

    without    no console
    beside     `--console`, no page open: it asks the broker nothing
    feed       `--console`, with the page of what happens open, which looks each 2 s
    overview   `--console`, with the first page open, which takes a sample each 5 s
"""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookiejar import CookieJar
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer
from rich.console import Console

from trocket.bench.kit import Columns, by_turns, round_ratios, show, spread_of, spread_text
from trocket.interop.trocket_peer import COMMAND
from trocket.interop.usage import cpu_seconds

FREE_PORTS: Final = ("--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0")
TIMEOUT_S: Final = 300.0
SIDES: Final[Mapping[str, str | None]] = {
    "without": None, "beside": "", "feed": "feed", "overview": "overview"
}  # fmt: skip
"""By name: the page that is open; "": none; None: there is no console."""


@dataclass(frozen=True)
class BesideResult:
    """One side.

    Attributes:
      rates: messages per second of each round.
      ratios: of each round, to that without a console.
      cpu_us: the broker's time on the processor for each message of each round, in microseconds;
        on a machine that does something else, it tells more than a rate.
      cpu_ratios: of each round, to that without a console.
    """

    side: str
    rates: list[float]
    ratios: list[float]
    cpu_us: list[float]
    cpu_ratios: list[float]


@contextmanager
def started(with_console: bool) -> Iterator[dict[str, Any]]:
    """`trocket up --memory`: what it prints when it is ready."""
    more = ("--console", "--console-port", "0") if with_console else ()
    command = [*COMMAND, "up", "--memory", "--json", *FREE_PORTS, *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def opened(address: str, page: str) -> Iterator[None]:
    """The event stream of a page, which is read to its end in a thread."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    opener.open(address, timeout=TIMEOUT_S).close()
    stream = opener.open(f"http://{urlsplit(address).netloc}/{page}.events", timeout=TIMEOUT_S)
    has_event = threading.Event()

    def read() -> None:
        try:
            for line in stream:
                if line.startswith(b"data:"):
                    has_event.set()
        except (OSError, ValueError):
            return  # the console has ended

    threading.Thread(target=read, daemon=True).start()
    if not has_event.wait(TIMEOUT_S):
        raise TimeoutError(f"the page {page} sent nothing")
    yield


def run_of(side: str, count: int) -> tuple[float, float]:
    """One run: messages per second, and the broker's microseconds for each."""
    page = SIDES[side]
    with started(page is not None) as facts:
        command = [*COMMAND, "bench", "send", "-n", facts["namesrv"], "--json"]
        command += ["--count", str(count)]

        def run() -> tuple[float, float]:
            before_s = cpu_seconds(facts["pid"])
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
            )
            (figures,) = json.loads(done.stdout)
            cpu_us = (cpu_seconds(facts["pid"]) - before_s) / count * 1e6
            return float(figures["messagesPerSecond"]), cpu_us

        if not page:
            return run()
        with opened(facts["console"], page):
            return run()


def measure(rounds: int, count: int) -> list[BesideResult]:
    """All sides, by turns."""
    runs: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    for order in by_turns(list(SIDES), rounds):
        for side in order:
            Console(stderr=True).print(side)
            runs[side].append(run_of(side, count))
    results = []
    without_rates, without_us = (list(each) for each in zip(*runs["without"], strict=True))
    for side, found in runs.items():
        rates, cpu_us = (list(each) for each in zip(*found, strict=True))
        results.append(
            BesideResult(
                side,
                rates,
                round_ratios(rates, without_rates),
                cpu_us,
                round_ratios(cpu_us, without_us),
            )
        )
    return results


COLUMNS: Final[Columns[BesideResult]] = {
    "side": lambda each: each.side,
    "sends/s": lambda each: spread_text(spread_of(each.rates)),
    "ratio": lambda each: spread_text(spread_of(each.ratios)),
    "broker us": lambda each: spread_text(spread_of(each.cpu_us)),
    "us ratio": lambda each: spread_text(spread_of(each.cpu_ratios)),
}


def main(
    rounds: Annotated[int, typer.Option("--rounds", min=1)] = 5,
    count: Annotated[int, typer.Option("--count", min=1, help="Messages of a run.")] = 150_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare sends per second without a console and with one."""
    show(measure(rounds, count), COLUMNS, as_json=as_json)


if __name__ == "__main__":
    typer.run(main)
