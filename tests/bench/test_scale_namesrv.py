"""A few brokers and clients: the measuring program of name servers itself."""

from __future__ import annotations

import math

import pytest
import typer
from typer.testing import CliRunner

from trocket.bench.scale_curve import Curve
from trocket.bench.scale_namesrv import PARTS, main, measure
from trocket.bench.scale_namesrv_peers import Broker, Peer, Simulated, Size, registered

TINY = Size(most=10, round_s=0.0001, idle_s=0.01, requests=2, is_apart=False)
CURVES = {
    "registrations": 10, "routes": 4, "lists": 2, "leaving": 3, "memory": 2, "clients": 5,
    "process": 10,
}  # fmt: skip
SLOW = pytest.mark.slow


def test_every_part_is_tested() -> None:
    assert list(CURVES) == list(PARTS)


@pytest.mark.parametrize(
    "part", [each for each in CURVES if each != "process"] + [pytest.param("process", marks=SLOW)]
)
def test_a_part_is_measured(part: str) -> None:
    seen: dict[tuple[str, str], Curve] = {}
    curves = measure(TINY, part, lambda one: seen.update({(one.what, one.per): one}))
    assert {(one.what, one.per): one for one in curves} == seen
    assert len(curves) == CURVES[part]
    for curve in curves:
        assert curve.points
        assert all(1 <= each.size <= 10 * TINY.most for each in curve.points)
        assert all(math.isfinite(each.cost) for each in curve.points)


async def test_what_is_measured_is_served() -> None:
    server, broker = Simulated(), Broker(3, 20)
    await registered(server, [broker, Broker(4, 20)])
    routes = server.controller.routes
    assert len(routes.topics) == 20
    assert list(routes.topics.queues("topic-19")) == ["broker-3", "broker-4"]
    await server.ask(broker.one_topic(3), broker.peer)
    assert routes.topics.queues("topic-0")["broker-3"].read_queue_nums == 5
    await server.ask(broker.unregistration(), broker.peer)
    assert list(routes.topics.queues("topic-19")) == ["broker-4"]


async def test_a_refusal_ends_a_measurement() -> None:
    with pytest.raises(RuntimeError, match="103"):
        await Simulated().ask(Broker(1, 2).one_topic(1), Peer())


def test_the_sizes_are_decades_up_to_the_most() -> None:
    assert Size().decades(10_000) == [10, 100, 1_000, 10_000]
    assert Size(most=100).decades(10_000) == [10, 100]
    assert Size(most=3).decades(10_000) == [2]


def test_an_unknown_part_is_refused() -> None:
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, ["--part", "nothing"])
    assert result.exit_code == 2
