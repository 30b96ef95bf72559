"""Every kind of peer misbehaves as a process beside a broker process: see `process_promises.py`.

A broker goes through all phases beside one peer, and several brokers do so at once: most of the
time is waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from trocket.interop.ports import free_port

from .broker_life import BrokerLife
from .peer_processes import launch, wait_booted
from .process_promises import PROMISES, Cell, Kind, Way, cells
from .stand_in import HOST

LIVES_MAX = 6
"""At once; each has up to three processes."""
CELLS = list(cells())
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
        if item.path == request.path and hasattr(item, "callspec")
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
@pytest.mark.parametrize("cell", CELLS, ids=[name_of(cell) for cell in CELLS])
def test_a_broker_process_keeps_its_promise_while_another_process_misbehaves(
    lives: Lives, cell: Cell
):
    kind, way, phase = cell
    failure = lives[kind, way].result().failures.get(phase)
    if failure is not None:
        raise AssertionError(f"promised: {PROMISES[kind].says}") from failure
