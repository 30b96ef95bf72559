"""Metrics of master and slave: their distance, and whether one follows the other."""

from __future__ import annotations

import pytest
import trio

from trocket.broker.metrics.service import MetricsService
from trocket.store.config import BrokerRole

from ...kit import send_fields
from ..group import Node, group
from .test_service import Page, read

SEND = 310


def service(node: Node) -> MetricsService:
    metrics = MetricsService(node.running.parts, lambda: node.running.server)
    metrics.start()
    metrics.is_serving = True
    return metrics


async def page(node: Node) -> Page:
    return await read(service(node))


@pytest.mark.slow
async def test_a_master_and_its_slave_that_has_all_show_no_distance(autojump_clock) -> None:
    async with group() as made:
        master = await made.master()
        slave = await made.slave()
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"x" * 1000)
        await made.has_log(slave, master)
        await trio.sleep(6)  # a report of the idle slave
        of_master, of_slave = await page(master), await page(slave)
        assert of_master.value("trocket_ha_slaves") == 1
        assert of_master.value("trocket_ha_slaves_in_sync") == 1
        assert of_master.value("trocket_ha_slaves_wanted") == 0
        assert of_master.value("trocket_ha_slave_behind_bytes") == 0
        assert of_master.value("trocket_ha_slave_behind_seconds") == 0
        assert of_master.value("trocket_ha_slave_ack_age_seconds") <= 5
        assert of_slave.value("trocket_ha_following") == 1
        assert of_slave.value("trocket_ha_master_last_read_age_seconds") <= 5
        end = of_master.value("trocket_commit_log_end_bytes", role="master")
        assert end > 1000
        assert of_slave.value("trocket_commit_log_end_bytes", role="slave") == end


async def test_a_slave_that_is_cut_off_says_so_and_its_log_is_shorter(autojump_clock) -> None:
    async with group() as made:
        master = await made.master()
        slave = await made.slave()
        await made.has_log(slave, master)
        made.ha_refused = True
        made.cut_ha()
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"x" * 1000)
        await trio.sleep(1)
        of_master, of_slave = await page(master), await page(slave)
        assert of_master.value("trocket_ha_slaves") == 0
        assert of_slave.value("trocket_ha_following") == 0
        assert "trocket_ha_master_last_read_age_seconds" not in of_slave.names()
        assert (
            of_master.value("trocket_commit_log_end_bytes")
            - of_slave.value("trocket_commit_log_end_bytes")
            > 1000
        )


async def test_a_sync_master_shows_how_many_slaves_its_sends_wait_for(autojump_clock) -> None:
    async with group() as made:
        master = await made.master(broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=3)
        assert (await page(master)).value("trocket_ha_slaves_wanted") == 2
