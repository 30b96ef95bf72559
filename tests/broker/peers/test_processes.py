"""Every kind of peer misbehaves as a process beside a broker process: see `process_promises.py`.

A broker goes through all phases beside one peer, and several brokers do so at once: most of the
time is waiting.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from trocket.interop.ports import free_port

from .broker_life import BrokerLife, within
from .peer_processes import Site, launch, reached, wait_booted
from .process_promises import PROMISES, Cell, Kind, Way, cells
from .stand_in import HOST, StandIn

LIVES_MAX = 6
"""At once; each has up to three processes."""
FILTER_SERVER_STARTS_S = 10.0
"""It waits for the first answer of its broker for 3 s; the rest is for a busy machine."""
FILTER_SERVER_STOPS_S = 4.0
CELLS = list(cells())
FAST_WAY = Way.STOPPED
"""How peers misbehave in `make test`; in virtual time they do so in every way."""
WAYS = [
    pytest.param(way, id=way.value, marks=() if way is FAST_WAY else pytest.mark.matrix)
    for way in Way
]
Lives = dict[tuple[Kind, Way], Future[BrokerLife]]


def name_of(cell: Cell) -> str:
    kind, way, phase = cell
    return f"{phase.value}: {kind.value} {way.value}"


def play(life: BrokerLife) -> BrokerLife:
    life.play()
    return life


@pytest.fixture(scope="module")
def lives(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lives]:
    """The lives of the cells that were chosen; they begin together."""
    folder: Path = tmp_path_factory.mktemp("lives")
    chosen = {
        item.callspec.params["cell"][:2]: None
        for item in request.session.items
        if item.path == request.path and "cell" in getattr(item, "fixturenames", ())
    }
    port = free_port()
    namesrv = launch(folder, "namesrv", "namesrv", {"listenPort": port, "bindAddress": HOST})
    pool = ThreadPoolExecutor(LIVES_MAX)
    try:
        wait_booted(namesrv)
        made = {
            (kind, way): BrokerLife(folder / f"{kind.name}-{way.name}", kind, way, port)
            for kind, way in chosen
        }
        yield {key: pool.submit(play, life) for key, life in made.items()}
    finally:
        pool.shutdown(cancel_futures=True)
        namesrv.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(
            cell, id=name_of(cell), marks=() if cell[1] is FAST_WAY else pytest.mark.matrix
        )
        for cell in CELLS
    ],
)
def test_a_broker_process_keeps_its_promise_while_another_process_misbehaves(
    lives: Lives, cell: Cell
):
    kind, way, phase = cell
    failure = lives[kind, way].result().failures.get(phase)
    if failure is not None:
        raise AssertionError(f"promised: {PROMISES[kind].says}") from failure


@contextmanager
def misbehaving_server(folder: Path, port: int, way: Way) -> Iterator[None]:
    """A server at a port that has misbehaved from the first connection on."""
    if way is Way.STOPPED:
        server = launch(folder, "namesrv", "namesrv", {"listenPort": port, "bindAddress": HOST})
        try:
            wait_booted(server)
            os.kill(server.pid, signal.SIGSTOP)
            yield
        finally:
            server.kill()
    elif way is Way.REFUSE:
        yield
    else:
        with StandIn(way, listens=[port]):
            yield


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_broker_process_that_never_reached_its_name_server_serves_and_stops(
    tmp_path: Path, way: Way
):
    promise = PROMISES[Kind.NAME_SERVER]
    site = Site(tmp_path, "b", free_port())
    with misbehaving_server(tmp_path, site.namesrv_port, way):
        broker = launch(tmp_path, "broker", "broker", site.keys("store", site.port))
        try:
            with reached(site.port, timeout_s=promise.serves_s) as client:
                with within(promise.makes_s, "the first send of a topic"):
                    assert client.send("T", 0, b"while it starts")[0] == 0
                with within(promise.answers_s, "a send"):
                    assert client.send("T", 0, b"later")[0] == 0
            with within(promise.stops_s, "the stop"):
                assert broker.stop() == 0
        finally:
            broker.kill()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_filter_server_process_starts_and_stops_while_its_broker_misbehaves(
    tmp_path: Path, way: Way
):
    port = free_port()
    keys: dict[str, object] = {
        "connectWhichBroker": f"{HOST}:{port}", "filterServerIP": HOST, "bindAddress": HOST,
    }  # fmt: skip
    with misbehaving_server(tmp_path, port, way):
        began_s = time.monotonic()
        server = launch(tmp_path, "filtersrv", "filtersrv", keys)
        try:
            wait_booted(server)
            assert time.monotonic() - began_s <= FILTER_SERVER_STARTS_S
            with within(FILTER_SERVER_STOPS_S, "the stop"):
                assert server.stop() == 0
        finally:
            server.kill()
