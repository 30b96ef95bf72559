"""Operations on Apache's clusters: many groups, a stopped broker, settings beside defaults."""

from __future__ import annotations

import os
import signal
from functools import partial

import anyio
import pytest
import trio

from tests.client.admin.conftest import send, until
from trocket.client import Admin, PushConsumer
from trocket.client.admin.asking import ask_all
from trocket.interop.apache import QUICK_KEYS, ApacheCluster
from trocket.operations.doctor.collect import collect
from trocket.operations.doctor.facts import FEW
from trocket.operations.doctor.topic_checks import consumers, subscriptions
from trocket.operations.sampling import Sampler
from trocket.operations.settings import differences

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DEADLINE_S = 120.0
TIMEOUT_S = 2.0
PATIENCE_S = 30.0
RECOVERY_S = 10.0
GROUPS = 1000


async def test_members_that_disagree_are_found_among_a_thousand_groups(
    cluster: ApacheCluster,
) -> None:
    url = cluster.namesrv_address

    def member(selector: str) -> PushConsumer:
        return PushConsumer(url, group="zz-divided", subscriptions={"Both": selector})

    with anyio.fail_after(DEADLINE_S):
        # A thousand groups take a cold JVM on a busy machine more than a client's 3 s.
        async with Admin(url, timeout_s=PATIENCE_S) as admin:
            await admin.create_topic("Both", 1)
            names = [f"g{number:04}" for number in range(GROUPS)] + ["zz-divided", "zz-gone"]
            made = await ask_all({name: partial(admin.create_group, name) for name in names})
            assert made.errors == {}
            # Both members want the tag A: the owner of the queue passes over nothing, and the two
            # messages wait, as no member reads.
            await send(admin, "Both", "a", "b", tags="A")

            async def is_stored() -> bool:
                return sum(queue.end for queue in await admin.offsets("Both")) == 2

            await until(is_stored)
            for name in ("zz-divided", "zz-gone"):
                await admin.reset_offset(name, "Both", to="begin")
            async with member("*"), member("A"):
                facts = await collect(admin.client, limits=FEW)
    assert next(each.text for each in subscriptions(facts)).startswith(
        "members of the group zz-divided want different things of the topic Both"
    )
    assert "the group zz-gone has no connected consumer, and 2 messages wait (Both 2)" in [
        each.text for each in consumers(facts)
    ]
    users = [each for each in facts.groups if each.name in names]
    assert len(users) == len(names)
    assert sum(each.is_left_out for each in facts.groups) == len(facts.groups) - FEW.groups


async def test_a_stopped_broker_costs_one_time_limit_and_comes_back(
    cluster: ApacheCluster,
) -> None:
    broker = cluster.pids[0]
    with anyio.fail_after(DEADLINE_S):
        async with Admin(cluster.namesrv_address, timeout_s=TIMEOUT_S) as admin:
            sampler = Sampler(admin)

            async def error() -> str:
                (row,) = (await sampler.sample()).brokers
                return row.error

            async def is_back() -> bool:
                return not await error()

            await until(is_back)
            os.kill(broker, signal.SIGSTOP)
            try:
                begin_s = trio.current_time()
                assert "did not answer GET_BROKER_RUNTIME_INFO" in await error()
                assert trio.current_time() - begin_s < TIMEOUT_S + 1
                begin_s = trio.current_time()
                facts = await collect(admin.client)
                assert trio.current_time() - begin_s < TIMEOUT_S + 1
                assert "did not answer" in facts.brokers[0].error
            finally:
                os.kill(broker, signal.SIGCONT)
            with anyio.fail_after(RECOVERY_S):
                await until(is_back)
            assert (await collect(admin.client)).brokers[0].error == ""


async def test_settings_that_were_made_differ_from_the_defaults(cluster: ApacheCluster) -> None:
    made = {
        "haListenPort",
        "listenPort",
        "mappedFileSizeCommitLog",
        "storePathCommitLog",
        "waitTimeMillsInSendQueue",
        *QUICK_KEYS,
    }
    async with Admin(cluster.namesrv_address) as admin:
        found = {each.key: each for each in differences(await admin.broker_config("broker-a"))}
    assert found["waitTimeMillsInSendQueue"].value == "10000"
    assert found["waitTimeMillsInSendQueue"].default == "200"
    if cluster.label == "apache-5.5.0":
        known = {key for key, each in found.items() if each.is_known}
        # A broker computes the length itself, from the number of groups that it expects.
        assert known - {"bitMapLengthConsumeQueueExt"} == made
