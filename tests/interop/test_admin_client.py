"""Our `Admin` against Apache's brokers: they serve more than ours, and 4.9 differs from 5.5.

What is expected below was seen with 5.5.0 and 4.9.7.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest

from tests.client.admin.conftest import NO_SAMPLE, runtime_info, send, until
from trocket.client import (
    Admin,
    ConfigurationError,
    Message,
    MessageQueue,
    NotFoundError,
    Producer,
    PushConsumer,
    QueueReset,
    RouteNotFoundError,
    ServerError,
)
from trocket.interop.apache import ApacheCluster
from trocket.operations.sampling import Sampler

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DEADLINE_S = 60.0
T = TypeVar("T")
BROKER = "broker-a"


@pytest.fixture
def is_5(cluster: ApacheCluster) -> bool:
    return cluster.label.startswith("apache-5")


@pytest.fixture
def do(cluster: ApacheCluster) -> Callable[[Callable[[Admin], Awaitable[Any]]], Any]:
    def run(verb: Callable[[Admin], Awaitable[T]]) -> T:
        async def main() -> T:
            with anyio.fail_after(DEADLINE_S):
                async with Admin(cluster.namesrv_address) as admin:
                    return await verb(admin)

        return anyio.run(main, backend="trio")

    return run


Do = Callable[[Callable[[Admin], Awaitable[Any]]], Any]


def test_topics_and_groups(do: Do, is_5: bool) -> None:
    async def verb(admin: Admin) -> None:
        attributes = {"message.type": "FIFO"} if is_5 else {}
        await admin.create_topic("Made", 4, read_queues=6, attributes=attributes)
        listed = await admin.topics()
        assert "Made" in listed
        # The others are those of the tests before.
        assert [name for name in listed if name.isupper() or "_" in name] == []
        assert {"TBW102", BROKER} <= set(await admin.topics(is_all=True))
        (on,) = (await admin.topic("Made")).brokers
        assert (on.broker_name, on.cluster, on.perm_text) == (BROKER, "DefaultCluster", "RW")
        assert (on.read_queues, on.write_queues, on.attributes) == (6, 4, attributes)
        await admin.create_group("made", retry_max_times=3)
        assert "made" in await admin.groups()
        assert "TOOLS_CONSUMER" not in await admin.groups()
        assert "TOOLS_CONSUMER" in await admin.groups(is_all=True)
        assert (await admin.group("made")).settings[BROKER].retry_max_times == 3
        await admin.delete_group("made", with_topics=True)
        assert "made" not in await admin.groups()
        await admin.delete_topic("Made")
        assert "Made" not in await admin.topics()
        with pytest.raises(RouteNotFoundError):
            await admin.topic("Made")
        with pytest.raises(NotFoundError):
            await admin.group("made")

    do(verb)


def test_offsets_lag_and_resets_of_a_group_at_rest(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("Offsets", 2)
        await admin.create_group("resting")
        sent = await send(admin, "Offsets", *"abcdef")
        offsets = await until(lambda: all_there(admin, "Offsets", 6))
        assert [q.begin for q in offsets] == [0, 0]
        assert all(q.last_store_ms is not None for q in offsets)
        lag = await admin.lag("resting", "Offsets")
        assert lag.total == 6
        (first, second) = await admin.reset_offset("resting", "Offsets", to="end")
        assert [first.after, second.after] == [q.end for q in offsets]
        assert (await admin.lag("resting")).by_topic == {"Offsets": 0}
        await admin.reset_offset("resting", "Offsets", to="begin")
        assert (await admin.lag("resting")).total == 6
        one = await admin.message(sent[4].offset_message_id)
        later = await admin.reset_offset(
            "resting", "Offsets", timestamp_ms=one.store_timestamp_ms + 3_600_000
        )
        assert [each.after for each in later] == [q.end for q in offsets]
        queue = MessageQueue("Offsets", BROKER, offsets[0].queue_id)
        assert await admin.reset_offset("resting", "Offsets", offsets={queue: 1}) == [
            QueueReset("Offsets", BROKER, queue.queue_id, offsets[0].end, 1)
        ]
        assert (await admin.lag("resting")).total == offsets[0].end - 1

    do(verb)


async def all_there(admin: Admin, topic: str, count: int) -> Any:
    """The offsets once the broker's queues have all messages: a moment after the sends."""
    offsets = await admin.offsets(topic)
    return offsets if sum(queue.count for queue in offsets) == count else None


def test_messages_by_both_ids_by_key_and_by_time(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("Messages", 2)
        sent = await send(admin, "Messages", *"abc", keys=["k", "other"])
        await send(admin, "Messages", "d")

        async def with_key() -> list[str]:
            return [m.text for m in await admin.messages_by_key("Messages", "k")]

        async def all_indexed() -> bool:
            return len(await with_key()) == 3

        await until(all_indexed)
        for result, body in zip(sent, "abc", strict=True):
            for message in (
                await admin.message(result.offset_message_id),
                await admin.message(result.message_id, "Messages"),
                await admin.message(result.message_id),
            ):
                assert (message.text, message.queue) == (body, result.queue)
        await until(lambda: all_there(admin, "Messages", 4))
        found = await admin.messages_by_time("Messages", 0)
        assert [m.text for m in found] == ["a", "b", "c", "d"]
        at_ms = found[1].store_timestamp_ms
        span = await admin.messages_by_time("Messages", at_ms, at_ms)
        assert "b" in {m.text for m in span}
        assert {m.store_timestamp_ms for m in span} == {at_ms}
        known = sent[0].offset_message_id
        no_message = known[:-1] + ("1" if known[-1] != "1" else "2")
        with pytest.raises(NotFoundError):
            await admin.message(no_message)
        with pytest.raises(NotFoundError):
            await admin.message("nonsense", "Messages")

    do(verb)


def test_clients_that_are_connected(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("Clients", 1)
        assert (await admin.clients("members")).clients == ()
        assert await admin.producers("makers") == ()
        async with (
            Producer(admin.client, group="makers") as producer,
            PushConsumer(
                admin.client, group="members", subscriptions={"Clients": "A || B"}
            ) as consumer,
        ):
            sent = await producer.send(Message("Clients", "directly"))
            message = await admin.message(sent.offset_message_id)

            async def is_a_maker() -> Any:
                return await admin.producers("makers", "Clients")

            (maker,) = await until(is_a_maker)
            assert maker.client_id == admin.client.client_id

            async def is_a_member() -> Any:
                found = await admin.clients("members")
                return found if found.clients and consumer.queues else None

            found = await until(is_a_member)
            (client,) = found.clients
            assert (client.language, client.brokers) == ("PYTHON", (BROKER,))
            assert {s.topic: s.expression for s in found.subscriptions} == {
                "Clients": "A || B",
                "%RETRY%members": "*",
            }
            info = await admin.running_info("members", client.client_id)
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert {"%RETRY%members", "Clients"} == {s.topic for s in info.subscriptions}
            assert set((await admin.lag("members")).by_topic) >= {"Clients"}
            handled = []
            async with anyio.create_task_group() as group:
                group.start_soon(consumer.run, lambda message: handled.append(message.text))
                consumed = await admin.consume_directly("members", client.client_id, message)
                assert (consumed.result, handled) == ("CR_SUCCESS", ["directly"])
                group.cancel_scope.cancel()

    do(verb)


def test_consumers_that_run_are_reset(do: Do, is_5: bool) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("Online", 1)
        await send(admin, "Online", *"abc")
        await until(lambda: all_there(admin, "Online", 3))
        await admin.create_group("online")
        await admin.reset_offset("online", "Online", to="end")
        queue = MessageQueue("Online", BROKER, 0)
        async with PushConsumer(
            admin.client, group="online", subscriptions={"Online": "*"}
        ) as consumer:

            async def is_there() -> bool:
                return queue in consumer.queues and bool((await admin.clients("online")).clients)

            await until(is_there)
            (done,) = await admin.reset_offset("online", "Online", to="begin")
            assert (done.before, done.after) == (3, 0)
            # 5.x changes the offset itself, and tells with the next pull; 4.x has the client do it.
            await send(admin, "Online", "d")
            for body in "abcd":
                message = await consumer.receive()
                assert message.text == body
                message.ack()
            if is_5:
                (done,) = await admin.reset_offset("online", "Online", offsets={queue: 2})
                assert done.after == 2
                await send(admin, "Online", "e")
                for body in "cde":
                    message = await consumer.receive()
                    assert message.text == body
                    message.ack()
            else:
                with pytest.raises(ConfigurationError, match="stop them first"):
                    await admin.reset_offset("online", "Online", offsets={queue: 2})

    do(verb)


def test_a_reset_that_no_consumer_has_seen_yet_can_be_changed_again(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("Twice", 1)
        await send(admin, "Twice", *"abc")
        await until(lambda: all_there(admin, "Twice", 3))
        await admin.create_group("twice")
        await admin.reset_offset("twice", "Twice", to="end")
        for offset in (1, 2, 0):
            queue = MessageQueue("Twice", BROKER, 0)
            await admin.reset_offset("twice", "Twice", offsets={queue: offset})
            assert (await admin.lag("twice", "Twice")).queues[0].committed == offset

    do(verb)


def test_the_cluster_its_state_and_its_settings(do: Do, cluster: ApacheCluster) -> None:
    async def verb(admin: Admin) -> None:
        view = await admin.cluster()
        assert view.clusters == ("DefaultCluster",)
        assert view.brokers[0].addresses == {0: cluster.broker_address}
        info = await runtime_info(admin, BROKER)
        assert int(info["bootTimestamp"]) > 0
        assert info["brokerVersionDesc"].startswith("V")
        config = await admin.broker_config(BROKER)
        assert (config["brokerName"], config["brokerIP1"]) == (BROKER, "127.0.0.1")
        changed = {"sendThreadPoolQueueCapacity": "4321", "messageDelayLevel": "1s 2s = 3s\\ é"}
        await admin.update_broker_config(cluster.broker_address, changed)
        config = await admin.broker_config(cluster.broker_address)
        assert {key: config[key] for key in changed} == changed

    do(verb)


# Statistics, progress, upkeep


def test_statistics_of_the_broker_and_of_a_topic(do: Do, cluster: ApacheCluster) -> None:
    async def verb(admin: Admin) -> None:
        async def sampled() -> Any:
            try:
                stats = await admin.broker_stats(BROKER)
            except ServerError as error:
                if NO_SAMPLE not in str(error):
                    raise
                return None
            return stats if stats.put is not None else None

        stats = await until(sampled)
        assert (stats.broker_id, stats.address) == (0, cluster.broker_address)
        assert stats.version == f"V{cluster.label.removeprefix('apache-').replace('.', '_')}"
        assert stats.boot_ms > 0
        for name in ("got", "get_found", "get_missed"):
            assert getattr(stats, name).last_600_s >= 0
        assert 0 <= stats.commit_log_disk_ratio <= 1
        assert 0 <= stats.consume_queue_disk_ratio <= 1
        assert stats.commit_log_end >= (stats.commit_log_begin or 0) >= 0
        assert (stats.send_queue_size, stats.put_today is None) == (0, False)
        assert (await admin.all_broker_stats())[0].version == stats.version
        await admin.create_topic("Statistics", 1)
        await admin.create_group("counting")
        await send(admin, "Statistics", *"abc")
        await until(lambda: all_there(admin, "Statistics", 3))
        await admin.reset_offset("counting", "Statistics", to="begin")
        topic = await admin.topic_stats("Statistics")
        assert [(q.begin, q.end) for q in topic.queues] == [(0, 3)]
        assert topic.queues[0].last_store_ms is not None
        assert topic.groups == {"counting": None}
        assert await admin.topic_groups("Statistics") == ["counting"]
        assert topic.put_count is not None
        assert await admin.counter(BROKER, "TOPIC_PUT_NUMS", "NoSuch") is None
        units = await admin.queue_units("Statistics", BROKER, 0, count=2)
        assert [unit.queue_offset for unit in units] == [0, 1]
        assert units[0].size > 0
        assert (await admin.broker_topics(BROKER))["Statistics"].write_queue_nums == 1
        assert "TBW102" in await admin.system_topics()

    do(verb)


def test_the_progress_of_groups(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("Progress", 1)
        await admin.create_group("behind")
        await admin.create_group("copy")
        sent = await send(admin, "Progress", *"abcd")
        await until(lambda: all_there(admin, "Progress", 4))
        queue = MessageQueue("Progress", BROKER, 0)
        await admin.reset_offset("behind", "Progress", offsets={queue: 1})
        progress = await admin.progress("behind")
        (found,) = [each for each in progress.queues if each.topic == "Progress"]
        assert (found.committed, found.end, found.lag) == (1, 4, 3)
        first = await admin.message(sent[0].offset_message_id)
        assert found.last_consumed_ms == first.store_timestamp_ms
        assert found.delay_s is not None
        assert 0 <= found.delay_s < DEADLINE_S
        (span,) = await admin.consume_spans("behind", "Progress")
        assert (span.first_ms, span.consumed_ms) == (first.store_timestamp_ms,) * 2
        assert span.delay_s is not None
        groups = {each.group: each for each in await admin.all_progress()}
        assert (groups["behind"].lag, groups["behind"].dead_letters) == (3, 0)
        on_broker = await admin.broker_consume_stats(BROKER)
        assert {each.group: each.lag for each in on_broker.groups}["behind"] == 3
        assert "Progress" in await admin.group_topics("behind")
        (copied,) = await admin.clone_offsets("behind", "copy", "Progress")
        assert copied.after == 1
        assert (await admin.lag("copy", "Progress")).total == 3
        await admin.reset_offset("behind", "Progress", offsets={queue: 2})
        await admin.clone_offsets_on_brokers("behind", "copy", "Progress")
        assert (await admin.lag("copy", "Progress")).total == 2
        assert await admin.correction_offsets("copy", "Progress") == {BROKER: {0: 2}}
        async with PushConsumer(
            admin.client, group="copy", subscriptions={"Progress": "*"}
        ) as consumer:

            async def owned() -> Any:
                found = await admin.progress("copy", "Progress", with_owners=True)
                owners = {each.client_id for each in found.queues}
                return found if owners == {admin.client.client_id} else None

            found_owner = await until(owned)
            assert consumer.queues
            assert found_owner.message_model == "CLUSTERING"
            subscription = await admin.subscription("copy", "Progress")
            assert subscription is not None
            assert subscription.expression == "*"

    do(verb)


def test_upkeep(do: Do, is_5: bool) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("Upkeep", 2, order=True)
        async with Producer(admin.client, group="listed") as producer:
            await producer.send(Message("Upkeep", "x"))

            async def listed() -> Any:
                return [p for p in await admin.all_producers() if p.group == "listed"]

            (found,) = await until(listed)
            assert (found.client_id, found.language) == (admin.client.client_id, "PYTHON")
        for clean in (
            admin.clean_expired_consume_queues,
            admin.clean_unused_topics,
            admin.delete_expired_commit_log,
        ):
            assert await clean() == [BROKER]
        assert await admin.update_topic_perm("Upkeep", 4) == [BROKER]
        (on,) = (await admin.topic("Upkeep")).brokers
        assert (on.perm_text, on.write_queues, on.order) == ("R", 2, is_5)
        await admin.update_topic_perm("Upkeep", 6)
        (wiped,) = (await admin.wipe_write_perm(BROKER)).values()
        (added,) = (await admin.add_write_perm(BROKER)).values()
        assert wiped > 0
        assert added >= wiped
        await admin.put_order_conf("Upkeep", {BROKER: 2})
        assert await admin.order_conf("Upkeep") == {BROKER: 2}
        await admin.delete_order_conf("Upkeep")
        assert await admin.order_conf("Upkeep") is None
        if is_5:
            assert (await admin.ha_status(BROKER)).master
        else:
            with pytest.raises(ServerError, match="REQUEST_CODE_NOT_SUPPORTED"):
                await admin.ha_status(BROKER)

    do(verb)


def test_samples_of_the_live_table(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("Sampled", 1)
        await admin.create_topic("Lone", 1)
        await admin.create_group("sampled")
        await send(admin, "Sampled", "a")
        await send(admin, "Lone", "a")
        await until(lambda: all_there(admin, "Sampled", 1))
        await admin.reset_offset("sampled", "Sampled", to="begin")
        sampler = Sampler(admin)
        await sampler.sample()
        await send(admin, "Sampled", "b", "c")
        await send(admin, "Lone", "b")
        await until(lambda: all_there(admin, "Sampled", 3))
        await until(lambda: all_there(admin, "Lone", 2))
        sample = await sampler.sample()
        topics = {row.topic: row for row in sample.topics}
        assert (topics["Sampled"].lag, topics["Lone"].groups) == (3, 0)
        for name in ("Sampled", "Lone"):
            rate = topics[name].in_rate
            assert rate is not None
            assert rate > 0
        (group,) = [row for row in sample.groups if row.group == "sampled"]
        assert (group.lag, group.topics) == (3, ("Sampled",))
        assert group.delay_s is not None
        assert BROKER not in topics

    do(verb)
