"""Behaviour of all methods of Admin: namespaces, several brokers, unreachable name servers."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import anyio
import pytest

from trocket.client import (
    Admin,
    BrokersError,
    Client,
    ConfigurationError,
    ConnectError,
    MessageQueue,
    PullConsumer,
)
from trocket.remoting.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from trocket.remoting.headers import RegisterBrokerRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Do, send


def test_names_are_those_without_the_namespace(broker: Broker) -> None:
    async def main() -> None:
        async with Admin(f"{broker.url}?namespace=ns") as admin, Admin(broker.url) as plain:
            await admin.create_topic("T", 1)
            await admin.create_group("g")
            assert (await admin.topics(), await admin.groups()) == (["T"], ["g"])
            assert (await plain.topics(), await plain.groups()) == (["ns%T"], ["ns%g"])
            await plain.create_topic("U", 1)
            assert await admin.topics() == ["T"]
            (sent,) = await send(admin, "T", "a")
            assert (await admin.message(sent.offset_message_id)).topic == "T"
            assert (await admin.offsets("T"))[0].topic == "T"
            assert (await admin.topic("T")).name == "T"
            (done,) = await admin.reset_offset(
                "g", "T", offsets={MessageQueue("T", "broker-a", 0): 1}
            )
            assert (done.topic, done.after) == ("T", 1)
            assert (await admin.lag("g")).by_topic == {"T": 0}
            assert (await plain.lag("ns%g")).by_topic == {"ns%T": 0}
            await admin.delete_topic("T")
            assert await plain.topics() == ["U"]

    anyio.run(main, backend="trio")


async def register_dead_broker(client: Client, broker_id: int = 0) -> None:
    """A second broker of the cluster at the name server, which cannot be reached.

    It is forgotten when the client's connection to the name server ends.
    """
    header = RegisterBrokerRequestHeader(
        broker_name="broker-dead",
        broker_addr="127.0.0.1:1",
        cluster_name="DefaultCluster",
        broker_id=broker_id,
        ha_server_addr="127.0.0.1:2",
    )
    topics = {
        name: TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
        for name in ("T", "%DLQ%g", "broker-dead")
    }
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(topic_config_table=topics)).to_body()
    await client.request_name_server(RequestCode.REGISTER_BROKER, header, body)


@pytest.mark.slow
def test_an_unreachable_broker_is_named_and_the_answers_of_others_are_kept(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await send(admin, "T", "a")
        await admin.create_group("g")
        await register_dead_broker(admin.client)
        assert [b.name for b in (await admin.cluster()).brokers] == ["broker-a", "broker-dead"]

        async def failure(verb: Awaitable[object]) -> Any:
            with pytest.raises(
                BrokersError, match=r"1 of 2 brokers.*broker-dead: 127.0.0.1:1:"
            ) as e:
                await verb
            assert [each.broker_name for each in e.value.failures] == ["broker-dead"]
            assert isinstance(e.value.__cause__, ConnectError)
            return e.value.partial

        assert [q.end for q in await failure(admin.offsets("T"))] == [1]
        assert (await failure(admin.lag("g", "T"))).total == 1
        async with PullConsumer(admin.client, group="g") as consumer:
            await consumer.commit({MessageQueue("T", "broker-a", 0): 0})
        # The dead letters are on the broker that does not answer.
        assert (await failure(admin.progress("g"))).lag == 1
        assert [(p.group, p.lag) for p in await failure(admin.all_progress())] == [("g", 1)]
        assert [each.end for each in (await failure(admin.topic_stats("T"))).queues] == [1]
        assert await failure(admin.topic_groups("T")) == ["g"]
        assert await failure(admin.groups()) == ["g"]
        assert "broker-a" in (await failure(admin.group("g"))).settings
        on = {b.broker_name: b for b in (await failure(admin.topic("T"))).brokers}
        assert on["broker-a"].read_queues == on["broker-dead"].read_queues == 1
        assert (await failure(admin.clients("g"))).clients == ()
        assert await failure(admin.producers("p")) == ()
        assert [m.text for m in await failure(admin.messages_by_time("T", 0))] == ["a"]
        assert await failure(admin.create_topic("U", 1)) is None
        assert await admin.topics() == ["T", "U"]
        # A part of a reset would be worse than none.
        assert await failure(admin.reset_offset("g", "T", to="end")) == []
        async with Admin(admin.client) as other:
            assert other.client is admin.client

    do_once(verb)


def test_a_broker_without_a_master_is_not_left_out_in_silence(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        await register_dead_broker(admin.client, broker_id=1)
        for call in (admin.clean_expired_consume_queues, admin.all_producers):
            with pytest.raises(BrokersError, match=r"broker-dead: .*no master that is up") as error:
                await call()
            assert [each.broker_name for each in error.value.failures] == ["broker-dead"]
        assert await admin.clean_expired_consume_queues("broker-a") == ["broker-a"]

    do_once(verb)


def test_which_of_several_clusters_is_to_be_said(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        header = RegisterBrokerRequestHeader(
            broker_name="far",
            broker_addr="127.0.0.1:1",
            cluster_name="Other",
            broker_id=0,
            ha_server_addr="127.0.0.1:2",
        )
        await admin.client.request_name_server(
            RequestCode.REGISTER_BROKER, header, RegisterBrokerBody().to_body()
        )
        assert (await admin.cluster()).clusters == ("DefaultCluster", "Other")
        with pytest.raises(ConfigurationError, match="DefaultCluster, Other"):
            await admin.create_topic("T")
        await admin.create_topic("T", cluster="DefaultCluster")
        with pytest.raises(ConfigurationError, match="not in a cluster 'Other'"):
            await admin.delete_topic("T", cluster="Other")

    do_once(verb)


def test_a_name_server_that_still_knows_a_topic_is_named(broker: Broker) -> None:
    async def main() -> None:
        async with Admin(f"{broker.namesrv_address};127.0.0.1:1") as admin:
            await admin.create_topic("T", 1)
            with pytest.raises(
                BrokersError, match=r"name server 127\.0\.0\.1:1: 127\.0\.0\.1:1: cannot"
            ):
                await admin.delete_topic("T")
            assert await admin.topics() == []

    anyio.run(main, backend="trio")
