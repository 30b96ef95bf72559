"""Metrics and health of a controller."""

from __future__ import annotations

import trio

from trocket.common.metrics_keys import MetricsExporterType
from trocket.controller.metrics import ControllerMetrics

from .fake_etcd import FakeEtcd
from .harness import World, running


def metrics_of(world: World) -> ControllerMetrics:
    server = world.server
    return ControllerMetrics(
        server.config, server.leadership, server.server, server.requests, node_id="here"
    )


def lines(text: bytes) -> set[str]:
    """The samples of trocket_controller, without the labels of the node."""
    found = set()
    for line in text.decode().splitlines():
        if line.startswith("trocket_controller_"):
            head, _, value = line.rpartition(" ")
            name, _, labels = head.strip("}").partition("{")
            kept = [each for each in labels.split(",") if not each.startswith("node_")]
            found.add(f"{name.removeprefix('trocket_controller_')} {' '.join(kept)} {value}")
    return found


async def test_a_leader_shows_its_sets(autojump_clock: object) -> None:
    async with running(metrics_exporter_type=MetricsExporterType.DISABLE) as world:
        await world.pair()
        third = world.connect(3)
        await third.apply()
        answer = await metrics_of(world).answer("/metrics?x")
        shown = lines(answer.body if isinstance(answer.body, bytes) else answer.body.encode())
        labels = 'broker="a" cluster="C"'
        for line in (
            "ready  1",
            "leads  1",
            "term  1",
            "elections_total  1",
            f"master_epoch {labels} 1",
            f"master_id {labels} 1",
        ):
            assert sorted(line.split()) in [sorted(each.split()) for each in shown], line
        counts = {
            each.split('state="')[1].split('"')[0]: each.rsplit(" ", 1)[1]
            for each in shown
            if each.startswith("members ")
        }
        assert counts == {"all": "3", "alive": "2", "in_sync": "2"}
        assert (await metrics_of(world).answer("/health/live")).status == 200
        assert (await metrics_of(world).answer("/health/ready")).status == 200
        assert (await metrics_of(world).answer("/x")).status == 404


async def test_without_a_leader_it_is_not_ready(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        etcd = FakeEtcd()
        await nursery.start(etcd.run)
        etcd.down |= {"e1", "e2", "e3"}
        async with running(store=etcd.store()) as world:  # it starts all the same
            assert (await metrics_of(world).answer("/health/ready")).status == 503
            etcd.down.clear()
            await trio.sleep(2)
            assert (await metrics_of(world).answer("/health/ready")).status == 200
        nursery.cancel_scope.cancel()
