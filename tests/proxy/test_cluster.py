"""A proxy before two masters: where calls go, and what happens when servers die or hang."""

from __future__ import annotations

from collections import Counter
from typing import Any

import trio
import trio.testing

from trocket.common.java_hash import java_hash_code
from trocket.grpc_protocol.enums import ClientType
from trocket.grpc_server.connection import GrpcConnection
from trocket.grpc_server.handle import Handle
from trocket.grpc_server.methods.sending import consistent_hash
from trocket.grpc_server.server import PREFIX

from ..grpc_protocol.client import headers_of
from ..grpc_server.caller import EVERYTHING, MESSAGES, endpoints, message, receive_fields
from ..grpc_server.wire import Wire, as_client, parsed, wired
from ..kit.clock import TrioClock
from .virtual import BROKERS, VirtualCluster, virtual_cluster

T = {"name": "T"}
G = {"name": "G"}
A, B = BROKERS


async def call(wire: Wire, name: str, *, within_s: float = 30.0, **fields: Any) -> list[Any]:
    """Call a method, and wait for the end of its answer."""
    answer = wire.begin(name, **fields)
    await wire.flush()
    await wire.wait_until(lambda: answer.has_ended, within_s)
    return parsed(name, answer)


async def send(wire: Wire, topic: str = "T", within_s: float = 30.0, **system: Any) -> Any:
    (answer,) = await call(
        wire, "SendMessage", within_s=within_s, messages=[message(topic, **system)]
    )
    return answer


def receive_of(broker: str, **fields: Any) -> dict[str, Any]:
    queue = {"topic": T, "id": -1, "broker": {"name": broker}}
    return receive_fields("T", "G", **{"message_queue": queue} | fields)


async def receive(wire: Wire, broker: str, **fields: Any) -> list[Any]:
    """The messages of a receive from one broker."""
    first, *parts, _ = await call(wire, "ReceiveMessage", **receive_of(broker, **fields))
    assert first.status.code in (20000, 40401), first
    return [each.message for each in parts]


async def telemetry(wire: Wire, **settings: Any) -> Any:
    """Open a stream with settings; its answer."""
    command = MESSAGES.TelemetryCommand(settings=MESSAGES.Settings(**settings))
    stream = wire.client.call(
        "/apache.rocketmq.v2.MessagingService/Telemetry", command.SerializeToString(), ends=False
    )
    await wire.flush()
    answer = wire.client.answers[stream]
    await wire.wait_until(lambda: bool(answer.body))
    return answer


def consumer(*topics: str) -> dict[str, Any]:
    entries = [{"topic": {"name": each}, "expression": EVERYTHING} for each in topics]
    return {
        "client_type": ClientType.SIMPLE_CONSUMER,
        "subscription": {"group": G, "subscriptions": entries},
    }


def producer(*topics: str) -> dict[str, Any]:
    return {
        "client_type": ClientType.PRODUCER,
        "publishing": {"topics": [{"name": each} for each in topics]},
    }


async def begun(wire: Wire) -> None:
    """Have the group begin at both brokers."""
    for broker in BROKERS:
        assert await receive(wire, broker) == []


async def with_topic(cluster: VirtualCluster, **settings: Any) -> None:
    settings = {"read_queue_nums": 4, "write_queue_nums": 4} | settings
    await cluster.create_topic("T", **settings)


async def test_a_route_has_the_queues_of_all_masters(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await with_topic(cluster)
        mapped = endpoints("proxy.example:18081")
        (answer,) = await call(wire, "QueryRoute", topic=T, endpoints=mapped)
        queues = answer.message_queues
        assert [(each.broker.name, each.id) for each in queues] == [
            (broker, queue_id) for broker in BROKERS for queue_id in range(4)
        ]
        assert all(each.broker.endpoints == mapped for each in queues)
        (answer,) = await call(wire, "QueryAssignment", topic=T, group=G, endpoints=mapped)
        found = [each.message_queue for each in answer.assignments]
        assert [(each.broker.name, each.id) for each in found] == [(A, -1), (B, -1)]


async def test_sends_go_round_and_those_of_a_message_group_to_its_queue(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await with_topic(cluster)
        for _ in range(16):
            assert (await send(wire)).status.code == 20000
        assert [cluster.stored(each, "T") for each in BROKERS] == [8, 8]
        await cluster.create_topic(
            "F", read_queue_nums=4, write_queue_nums=4, attributes={"+message.type": "FIFO"}
        )
        places: Counter[tuple[str, int]] = Counter()
        for number in range(20):
            index = consistent_hash(java_hash_code(f"g{number}"), 8)
            places[list(BROKERS)[index // 4], index % 4] += 1
            answer = await send(wire, "F", message_group=f"g{number}")
            assert answer.status.code == 20000
        for (broker, queue_id), count in places.items():
            store = cluster.brokers[broker].controller.store
            assert store.max_offset("F", queue_id) == count


async def test_messages_are_received_and_settled_at_their_brokers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await with_topic(cluster)
        await begun(wire)
        for number in range(16):
            await send(wire, message_id=f"{number:032X}")
        found = [each for broker in BROKERS for each in await receive(wire, broker)]
        handles = [each.system_properties.receipt_handle for each in found]
        names = Counter(Handle.from_text(each).receipt.broker_name for each in handles)
        assert names == {A: 8, B: 8}
        entries = [
            {"message_id": each.system_properties.message_id, "receipt_handle": handle}
            for each, handle in zip(found, handles, strict=True)
        ]
        (answer,) = await call(wire, "AckMessage", topic=T, group=G, entries=entries[1:])
        assert answer.status.code == 20000
        (answer,) = await call(
            wire, "ChangeInvisibleDuration", topic=T, group=G, **entries[0],
            invisible_duration={"seconds": 1},
        )  # fmt: skip
        assert answer.status.code == 20000
        (again,) = await receive(wire, A)
        assert again.system_properties.delivery_attempt == 2
        assert await receive(wire, B) == []


async def test_each_broker_knows_the_client_and_forgets_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster:
        async with wired(cluster.server) as wire:
            await with_topic(cluster)
            await telemetry(wire, **consumer("T"))
            (answer,) = await call(wire, "Heartbeat", group=G)
            assert answer.status.code == 20000
            await trio.sleep(1)
            assert [cluster.clients(each) for each in BROKERS] == [{"me@1"}] * 2
            # Again, after a connection was lost.
            cluster.net.die(BROKERS[A])
            await trio.sleep(1)
            assert cluster.clients(A) == set()
            server = cluster.brokers[A].controller.server
            assert server is not None
            cluster.net.servers[BROKERS[A]] = server
            await trio.sleep(1)
            await call(wire, "Heartbeat", group=G)
            await trio.sleep(1)
            assert cluster.clients(A) == {"me@1"}
            (answer,) = await call(wire, "NotifyClientTermination", group=G)
            assert answer.status.code == 20000
            await trio.sleep(1)
            assert [cluster.clients(each) for each in BROKERS] == [set()] * 2
        await trio.sleep(1)


async def test_transactions_are_ended_and_checked_at_their_brokers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await with_topic(cluster, attributes={"+message.type": "TRANSACTION"})
        stream = await telemetry(wire, **producer("T"))
        for number in range(16):
            answer = await send(wire, message_id=f"{number:032X}", message_type=4)
            (entry,) = answer.entries
            assert entry.transaction_id.endswith(A if number % 8 < 4 else B)
            if number % 2:
                (answer,) = await call(
                    wire, "EndTransaction", topic=T, message_id=entry.message_id,
                    transaction_id=entry.transaction_id, resolution=1,
                )  # fmt: skip
                assert answer.status.code == 20000
        assert [cluster.stored(each, "T") for each in BROKERS] == [4, 4]
        for _ in range(12):
            await trio.sleep(10)
            await call(wire, "Heartbeat", client_type=1)
        asked = [
            MESSAGES.TelemetryCommand.FromString(each).recover_orphaned_transaction_command
            for each in stream.messages[1:]
        ]
        names = Counter(each.transaction_id[-len(A) :] for each in asked)
        assert set(names) == {A, B}
        for each in asked:
            (answer,) = await call(
                wire, "EndTransaction", topic=T, transaction_id=each.transaction_id,
                message_id=each.message.system_properties.message_id, resolution=1, source=2,
            )  # fmt: skip
        assert [cluster.stored(each, "T") for each in BROKERS] == [8, 8]


async def test_sends_pass_by_a_broker_that_has_died(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await with_topic(cluster)
        await send(wire)
        cluster.net.die(BROKERS[A])
        for _ in range(16):
            assert (await send(wire, within_s=1)).status.code == 20000
        assert cluster.stored(B, "T") >= 16
        first, _ = await call(wire, "ReceiveMessage", within_s=3, **receive_of(A))
        assert first.status.code == 50001
        assert A in first.status.message


async def test_a_broker_that_hangs_keeps_others_from_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await with_topic(cluster)
        await telemetry(wire, **consumer("T"))
        for _ in range(8):
            await send(wire)
        cluster.net.hang(BROKERS[A])
        codes = Counter([(await send(wire, within_s=4)).status.code for _ in range(16)])
        assert codes[20000] >= 15  # one waits in vain, and then they pass it by
        (answer,) = await call(wire, "Heartbeat", group=G, within_s=1)
        assert answer.status.code == 20000
        first, _ = await call(wire, "ReceiveMessage", within_s=11, **receive_of(A))
        assert first.status.code in (50001, 50400)
        assert (await call(wire, "QueryRoute", topic=T, within_s=1))[0].status.code == 20000


async def test_a_client_without_patience_says_nothing_of_the_broker(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await cluster.create_topic("T", only=A, read_queue_nums=1, write_queue_nums=1)
        await send(wire)
        opened = cluster.net.opened[BROKERS[A]]
        cluster.net.hang(BROKERS[A])
        headers = headers_of(f"{PREFIX}SendMessage", ("grpc-timeout", "1m"))
        (answer,) = await call(wire, "SendMessage", headers=headers, messages=[message("T")])
        assert answer.status.code == 50400
        cluster.net.release(BROKERS[A])
        assert (await send(wire)).status.code == 20000
        assert cluster.net.opened[BROKERS[A]] == opened


async def test_a_name_server_that_hangs_is_not_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    refresh = {"topic_route_service_cache_refresh_seconds": 2}
    async with virtual_cluster(**refresh) as cluster, wired(cluster.server) as wire:
        await with_topic(cluster)
        await cluster.create_topic("U", read_queue_nums=1, write_queue_nums=1)
        cluster.net.hang(9876)
        assert (await send(wire, within_s=0.5)).status.code == 20000
        cluster.net.hang(9877)
        await trio.sleep(10)  # what is known is old, and counts; brokers wait for longer
        assert (await send(wire, within_s=0.5)).status.code == 20000
        (answer,) = await call(wire, "QueryRoute", topic={"name": "U"}, within_s=4)
        assert answer.status.code == 50001
        cluster.net.release(9876)
        cluster.net.release(9877)
        await trio.sleep(10)
        (answer,) = await call(wire, "QueryRoute", topic={"name": "U"}, within_s=4)
        assert answer.status.code == 20000


async def test_an_unknown_topic_is_found_soon_after_it_was_created(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        assert (await send(wire)).status.code == 40402
        await with_topic(cluster)
        assert (await send(wire)).status.code == 20000


async def test_what_a_cancelled_receive_gets_is_given_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await cluster.create_topic("T", only=A, read_queue_nums=1, write_queue_nums=1)
        assert await receive(wire, A) == []
        wire.begin("ReceiveMessage", **receive_of(A, long_polling_timeout={"seconds": 20}))
        await wire.flush()
        await trio.sleep(1)
        wire.client.connection.reset_stream(max(wire.client.answers), 8)
        await wire.flush()
        await send(wire)
        (found,) = await receive(wire, A)
        assert found.body == b"body"


async def test_what_comes_for_a_lost_connection_is_given_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await cluster.create_topic("T", only=A, read_queue_nums=1, write_queue_nums=1)
        await send(wire)
        connected = cluster.net.connected[BROKERS[A]]
        async with wired(cluster.server) as other:
            headers = as_client("ReceiveMessage", "other@1")
            fields = receive_of(A)
            assert await call(other, "ReceiveMessage", headers=headers, **fields)
            assert cluster.net.connected[BROKERS[A]] == connected + 1
            fields = receive_of(A, long_polling_timeout={"seconds": 20})
            other.begin("ReceiveMessage", headers=headers, **fields)
            await other.flush()
            await trio.sleep(1)
        await send(wire)
        (found,) = await receive(wire, A)
        assert found.body == b"body"
        await trio.sleep(5)
        assert cluster.net.connected[BROKERS[A]] == connected


async def test_links_are_limited_and_end_with_their_clients(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster(links_max=2) as cluster:
        await with_topic(cluster)
        async with wired(cluster.server) as wire:
            for _ in range(8):
                assert (await send(wire)).status.code == 20000
            headers = as_client("SendMessage", "second@1")
            (answer,) = await call(
                wire, "SendMessage", headers=headers, messages=[message("T")], within_s=4
            )
            assert answer.status.code == 50001
            assert "2 connections" in answer.status.message
        await trio.sleep(1)
        async with wired(cluster.server) as wire:
            assert (await send(wire)).status.code == 20000


async def test_names_of_brokers_that_are_not_there_leave_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with virtual_cluster() as cluster, wired(cluster.server) as wire:
        await with_topic(cluster)
        (connection,) = cluster.server.served
        assert isinstance(connection, GrpcConnection)
        now_ms = TrioClock().wall_ms()
        for number in range(50):
            handle = f"0 {now_ms} 60000 0 0 made-up-{number} 0 0 0"
            entry = {"message_id": "01", "receipt_handle": handle}
            (answer,) = await call(
                wire, "AckMessage", topic=T, group=G, entries=[entry], within_s=1
            )
            assert answer.status.code == 50001
            assert "do not know" in answer.entries[0].status.message
        (client,) = connection.clients.values()
        assert list(client.links.brokers) == []
        assert (await send(wire)).status.code == 20000
