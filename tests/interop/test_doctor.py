"""`trocket doctor` looks at Apache's clusters: a good one, and what is wrong in a bad one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import anyio
import pytest

from tests.client.admin.conftest import runtime_info
from trocket.client import Admin, Message, Producer, PushConsumer
from trocket.interop.apache import ApacheCluster

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def doctor(cluster: ApacheCluster, status: int) -> dict[str, Any]:
    """What the command finds, by the names of the checks."""
    done = subprocess.run(
        [sys.executable, "-m", "trocket.cli.main", "doctor", cluster.namesrv_address, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return {each["check"]: each for each in json.loads(done.stdout)["checks"]}


def text_of(check: Any) -> str:
    return " ".join(each["text"] for each in check["findings"])


async def test_a_good_cluster_and_a_bad_one(cluster: ApacheCluster) -> None:
    async with Admin(cluster.namesrv_address) as admin:
        with anyio.fail_after(30):
            await runtime_info(admin, "broker-a")
    checks = doctor(cluster, 0)
    skipped = {name for name, each in checks.items() if each["result"] == "skipped"}
    assert skipped == {"health"}  # Apache's brokers have no such page
    assert {each["result"] for each in checks.values()} == {"ok", "skipped"}
    url = cluster.namesrv_address

    def member(selector: str) -> PushConsumer:
        return PushConsumer(url, group="divided", subscriptions={"Both": selector})

    async with Admin(url) as admin, Producer(url) as producer:
        await admin.create_topic("Both", 2)
        await admin.create_topic("Few", 4, read_queues=2)
        await admin.create_topic("Left", 1)
        await admin.create_group("gone")
        for _ in range(3):
            await producer.send(Message("Left", b"x"))
        async with PushConsumer(url, group="gone", subscriptions={"Left": "*"}) as consumer:
            async for _ in consumer:
                break  # the message is not acknowledged, and three wait
        await admin.reset_offset("gone", "Left", to="begin")
        async with member("*"), member("A"):
            await admin.update_broker_config("broker-a", {"brokerPermission": "4"})
            try:
                checks = await anyio.to_thread.run_sync(doctor, cluster, 1)
            finally:
                await admin.update_broker_config("broker-a", {"brokerPermission": "6"})
    assert "more write queues than read queues" in text_of(checks["topics"])
    assert "Few" in text_of(checks["topics"])
    assert "the group gone has no connected consumer, and 3 messages wait" in text_of(
        checks["consumers"]
    )
    assert "the group divided want different things of the topic Both" in text_of(
        checks["subscriptions"]
    )
    assert "refuses all sends (brokerPermission=4)" in text_of(checks["sends"])
