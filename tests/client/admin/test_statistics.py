"""Statistics, progress and upkeep: what brokers count, and how far groups are."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from trocket.client import (
    Admin,
    BrokerStats,
    ConfigurationError,
    ConsumeFromWhere,
    Message,
    MessageQueue,
    NotFoundError,
    Producer,
    PullConsumer,
    PushConsumer,
    RouteNotFoundError,
    ServerError,
)
from trocket.client.admin.broker_stats import Rates, read_broker_stats
from trocket.testing import Broker

from .conftest import Do, is_there, run, send, until

QUEUE = MessageQueue("T", "broker-a", 0)


async def consumed(admin: Admin, group: str, offset: int, topic: str = "T") -> None:
    """Let a group have consumed the first messages of a queue."""
    async with PullConsumer(admin.client, group=group) as consumer:
        await consumer.commit({MessageQueue(topic, "broker-a", 0): offset})


# Brokers


def test_a_broker_tells_how_it_runs(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        before = await admin.broker_stats("broker-a")
        await send(admin, "T", "a", "b", "c")
        stats = await admin.broker_stats("broker-a")
        assert (stats.broker_name, stats.broker_id) == ("broker-a", 0)
        assert before.put_total is not None
        assert stats.put_total == before.put_total + 3
        assert stats.commit_log_end is not None
        assert before.commit_log_end is not None
        assert stats.commit_log_end > before.commit_log_end
        assert stats.version.startswith("V5_")
        assert stats.is_active is True
        assert isinstance(stats.put, Rates)
        assert 0 <= (stats.commit_log_disk_ratio or 0) <= 1
        assert stats.texts["brokerVersionDesc"] == stats.version
        (same,) = await admin.all_broker_stats()
        assert same.address == stats.address
        by_address = await admin.broker_stats(stats.address)
        assert (by_address.broker_name, by_address.broker_id) == (stats.address, -1)
        for name in ("nosuch", ""):
            with pytest.raises(NotFoundError, match="there are: broker-a"):
                await admin.broker_stats(name)
        with pytest.raises(ConfigurationError, match="there are: DefaultCluster"):
            await admin.all_broker_stats("nosuch")

    do(verb)


def test_texts_of_other_versions_are_read_as_far_as_they_go() -> None:
    def read(**texts: str) -> BrokerStats:
        return read_broker_stats(texts, broker_name="b", broker_id=0, address="b:1")

    old = read(
        brokerVersion="405", getTransferedTps="1.5 2.5 3", putTps="0.0", bootTimestamp=" 17 ",
        msgPutTotalTodayMorning="10", msgPutTotalTodayNow="14", putMessageTimesTotal="x",
        earliestMessageTimeStamp="-1", commitLogDiskRatio="0.25",
    )  # fmt: skip
    assert old.version.startswith("V4_9")
    assert old.got == Rates(1.5, 2.5, 3.0)
    assert old.put == Rates(0.0, 0.0, 0.0)
    assert (old.boot_ms, old.put_today, old.put_yesterday) == (17, 4, None)
    assert (old.put_total, old.earliest_ms, old.is_active) == (None, None, None)
    two_disks = {"commitLogDiskRatio_/a": "0.1", "commitLogDiskRatio_/b": "0.7"}
    assert read(**two_disks).commit_log_disk_ratio == 0.7
    bad = read(putTps="1 x", putLatency99="NaN", consumeQueueDiskRatio="-1", brokerActive="yes")
    assert (bad.put, bad.put_99_ms, bad.consume_queue_disk_ratio, bad.is_active) == (None,) * 4
    assert read().version == ""


# Topics


def test_a_topic_has_its_queues_and_its_traffic(do: Do, broker: Broker) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 2)
        async with Producer(admin.client) as producer:
            for body in ("a", "bb", "ccc"):
                await producer.send(Message("T", body), queue=QUEUE)
        async with PushConsumer(
            admin.client,
            group="g",
            subscriptions={"T": "*"},
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            for _ in range(3):
                (await consumer.receive()).ack()
            assert await admin.topic_groups("T") == ["g"]
            subscription = await admin.subscription("g", "T")
            assert subscription is not None
            assert subscription.expression == "*"
        stats = await admin.topic_stats("T")
        assert [(q.begin, q.end) for q in stats.queues] == [(0, 3), (0, 0)]
        assert stats.queues[0].last_store_ms is not None
        assert stats.queues[1].last_store_ms is None
        assert list(stats.groups) == ["g"]
        assert await admin.topic_offsets("broker-a", "T") == list(stats.queues)
        assert await admin.subscription("g", "T") is None
        units = await admin.queue_units("T", "broker-a", 0, count=2)
        assert [unit.queue_offset for unit in units] == [0, 1]
        assert units[1].physical_offset >= units[0].physical_offset + units[0].size
        assert [u.queue_offset for u in await admin.queue_units("T", "broker-a", 0, 2)] == [2]
        assert await admin.queue_units("T", "broker-a", 0, 99) == []
        with pytest.raises(ServerError, match="1@T is not exist"):
            await admin.queue_units("T", "broker-a", 1)
        with pytest.raises(RouteNotFoundError):
            await admin.topic_stats("NoSuch")
        with pytest.raises(RouteNotFoundError):
            await admin.topic_groups("NoSuch")
        with pytest.raises(ServerError):
            await admin.topic_offsets("broker-a", "NoSuch")
        with pytest.raises(ConfigurationError, match="not negative"):
            await admin.queue_units("T", "broker-a", -1)

    do(verb)


@pytest.mark.slow
def test_units_begin_where_the_queue_begins() -> None:
    with Broker(config={"mappedFileSizeCommitLog": 4096}) as broker:

        async def verb(admin: Admin) -> None:
            await admin.create_topic("T", 1)
            await send(admin, "T", *["x" * 3000] * 4)
            broker.advance(hours=100)
            await admin.delete_expired_commit_log()

            async def cut() -> int:
                return (await admin.offsets("T"))[0].begin

            begin = await until(cut)
            units = await admin.queue_units("T", "broker-a", 0)
            assert [unit.queue_offset for unit in units] == list(range(begin, 4))

        run(broker, "trio", verb)


def test_counters_are_asked_for_by_name_and_key(do_once: Do, broker: Broker) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await send(admin, "T", "a", "b")
        broker.advance(minutes=2)

        async def counted() -> object:
            return await admin.counter("broker-a", "TOPIC_PUT_NUMS", "T")

        assert await until(counted)
        assert await admin.counter("broker-a", "TOPIC_PUT_NUMS", "NoSuch") is None
        assert await admin.counter("broker-a", "NO_SUCH_COUNTER", "T") is None

    do_once(verb)


# Groups


def test_progress_has_the_lag_in_messages_and_in_seconds(do: Do, broker: Broker) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await admin.create_group("g")
        await send(admin, "T", "a")
        broker.advance(minutes=1)
        await send(admin, "T", "b", "c")
        await consumed(admin, "g", 1)
        late = await admin.progress("g")
        (queue,) = late.queues
        assert (queue.topic, queue.committed, queue.end, queue.lag) == ("T", 1, 3, 2)
        assert late.lag == 2
        assert (late.clients, late.dead_letters, late.retries) == ((), 0, 0)
        spans = await admin.consume_spans("g", "T")
        (span,) = spans
        assert span.first_ms is not None
        assert span.last_ms is not None
        assert span.last_ms - span.first_ms >= 60_000
        assert span.consumed_ms == span.first_ms
        assert span.delay_s is not None
        assert queue.delay_s is not None
        assert span.delay_s >= queue.delay_s >= 0
        assert queue.delay_s < 60  # the next message counts, not the last consumed one
        await consumed(admin, "g", 0)
        delay_s = (await admin.progress("g", "T")).delay_s
        assert delay_s is not None
        assert 60 <= delay_s < 120
        await consumed(admin, "g", 3)
        done = await admin.progress("g")
        assert (done.lag, done.delay_s) == (0, 0.0)
        with pytest.raises(NotFoundError, match="nosuch"):
            await admin.progress("nosuch")
        with pytest.raises(RouteNotFoundError):
            await admin.progress("g", "NoSuch")

    do(verb)


def test_progress_counts_messages_that_wait_for_another_try(do_once: Do, broker: Broker) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await send(admin, "T", "a")
        async with PushConsumer(
            admin.client,
            group="g",
            subscriptions={"T": "*"},
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer:
            await (await consumer.receive()).retry(3)
        # As with mqadmin, a topic counts once the group has an offset in it.
        await consumed(admin, "g", 0, "%RETRY%g")
        assert (await admin.progress("g")).retries == 0
        broker.advance(minutes=1)

        async def is_due() -> bool:
            return (await admin.progress("g")).retries == 1

        await until(is_due)
        (found,) = [each for each in await admin.all_progress() if each.group == "g"]
        assert (found.retries, found.lag) == (1, 1)

    do_once(verb)


def test_progress_tells_who_has_a_queue(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        async with PushConsumer(admin.client, group="g", subscriptions={"T": "*"}) as consumer:
            await until(lambda: is_there(consumer))

            async def owned() -> bool:
                found = await admin.progress("g", "T", with_owners=True)
                assert found.silent_clients == ()
                assert [client.client_id for client in found.clients] == [admin.client.client_id]
                assert (found.consume_type, found.message_model) == (
                    "CONSUME_PASSIVELY",
                    "CLUSTERING",
                )
                return [queue.client_id for queue in found.queues] == [admin.client.client_id]

            await until(owned)

    do(verb)


def test_all_groups_are_asked_for_at_once(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await send(admin, "T", "a", "b")
        for group, offset in (("g1", 1), ("g2", 2)):
            await admin.create_group(group)
            await consumed(admin, group, offset)
        found = {each.group: each for each in await admin.all_progress(is_all=True)}
        assert "TOOLS_CONSUMER" not in {each.group for each in await admin.all_progress()}
        assert {name: found[name].lag for name in ("g1", "g2")} == {"g1": 1, "g2": 0}
        assert (found["g1"].delay_s, found["g2"].delay_s) == (None, 0.0)
        on_broker = await admin.broker_consume_stats("broker-a")
        assert {each.group: each.lag for each in on_broker.groups} == {
            name: each.lag for name, each in found.items()
        }
        assert on_broker.lag == 1
        assert {
            e.lag for e in (await admin.broker_consume_stats("broker-a", is_order=True)).groups
        } <= {0}
        assert await admin.group_topics("g1") == ["T"]
        assert await admin.group_topics("nosuch") == []

    do(verb)


def test_the_groups_of_a_message_are_told_by_their_offsets(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        sent = (await send(admin, "T", "a", "b", tags="A"))[1]
        for group, offset in (("ahead", 2), ("behind", 1), ("filtering", 2)):
            await admin.create_group(group)
            await consumed(admin, group, offset)
        options = {"subscriptions": {"T": "B || C"}}
        async with PushConsumer(admin.client, group="filtering", **options) as consumer:
            await until(lambda: is_there(consumer))
            message = await admin.message(sent.offset_message_id)

            async def states() -> dict[str, str] | None:
                tracks = await admin.message_track(message)
                found = {each.group: each.state for each in tracks}
                return found if found["filtering"] == "CONSUMED_BUT_FILTERED" else None

            assert await until(states) == {
                "ahead": "CONSUMED_OR_FILTERED",
                "behind": "NOT_ONLINE",
                "filtering": "CONSUMED_BUT_FILTERED",
            }

    do(verb)


@pytest.mark.slow
def test_an_offset_that_passed_is_no_delivery_when_members_want_different_tags(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        sent = (await send(admin, "T", "a", tags="A"))[0]
        await admin.create_group("split")
        await consumed(admin, "split", 1)
        message = await admin.message(sent.offset_message_id)

        url = f"rocketmq://{';'.join(admin.client.url.name_servers)}"

        async def states_with(*wanted: str) -> str:
            async with AsyncExitStack() as stack:
                for tags in wanted:
                    member = PushConsumer(url, group="split", subscriptions={"T": tags})
                    await stack.enter_async_context(member)

                async def track() -> str | None:
                    if len((await admin.clients("split")).clients) < len(wanted):
                        return None
                    return (await admin.message_track(message))[0].state

                return await until(track)

        assert await states_with("A || B", "*") == "CONSUMED_OR_FILTERED"
        assert await states_with("B", "C") == "CONSUMED_BUT_FILTERED"
        assert await states_with("A", "B") == "UNKNOWN"
        assert await states_with("B", "A") == "UNKNOWN"

    do(verb)


def test_offsets_are_copied_to_a_group_that_is_at_rest(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        await send(admin, "T", "a", "b", "c")
        await admin.create_group("from")
        await admin.create_group("to")
        await consumed(admin, "from", 2)
        (planned,) = await admin.clone_offsets("from", "to", "T", dry_run=True)
        assert (planned.before, planned.after) == (None, 2)
        queue = MessageQueue("T", "broker-a", 0)
        assert await admin.committed_offset("to", queue) is None
        assert await admin.committed_offset("from", queue) == 2
        await admin.clone_offsets("from", "to", "T")
        assert (await admin.lag("to", "T")).queues[0].committed == 2
        await consumed(admin, "from", 3)
        await admin.clone_offsets_on_brokers("from", "to", "T")
        assert (await admin.lag("to", "T")).queues[0].committed == 3
        assert await admin.correction_offsets("to", "T") == {"broker-a": {0: 3}}
        with pytest.raises(ConfigurationError, match="another group"):
            await admin.clone_offsets("to", "to", "T")
        with pytest.raises(NotFoundError, match="nosuch"):
            await admin.clone_offsets("nosuch", "to", "T")
        async with PushConsumer(admin.client, group="to", subscriptions={"T": "*"}) as consumer:
            await until(lambda: is_there(consumer))
            for clone in (admin.clone_offsets, admin.clone_offsets_on_brokers):
                with pytest.raises(ConfigurationError, match="stop them first"):
                    await clone("from", "to", "T")

    do(verb)


# Clients


def test_all_producers_are_listed(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        async with Producer(admin.client, group="makers") as producer:
            await producer.send(Message("T", "a"))

            async def listed() -> list[object]:
                return [each for each in await admin.all_producers() if each.group == "makers"]

            (found,) = await until(listed)
            assert (found.client_id, found.broker_name) == (admin.client.client_id, "broker-a")
            assert found.last_heartbeat_ms > 0
            by_name = await admin.all_producers("broker-a")
            assert found.client_id in {each.client_id for each in by_name}
            assert await admin.all_producers(cluster="DefaultCluster") != []
            with pytest.raises(ConfigurationError, match="not both"):
                await admin.all_producers("broker-a", cluster="DefaultCluster")

    do(verb)


# Upkeep


def test_brokers_clean_when_they_are_told_to(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        for clean in (
            admin.clean_expired_consume_queues,
            admin.clean_unused_topics,
            admin.delete_expired_commit_log,
        ):
            assert await clean() == ["broker-a"]
            assert await clean("broker-a") == ["broker-a"]
            assert await clean(cluster="DefaultCluster") == ["broker-a"]
            with pytest.raises(NotFoundError):
                await clean("nosuch")

    do(verb)


def test_write_permissions_are_wiped_and_added(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        (count,) = (await admin.wipe_write_perm("broker-a")).values()
        assert count > 0
        route = await admin.client.route("T", is_fresh=True)
        assert [data.perm for data in route.queue_datas] == [4]
        assert list((await admin.add_write_perm("broker-a")).values()) == [count]
        with pytest.raises(NotFoundError, match="there are: broker-a"):
            await admin.wipe_write_perm("nosuch")

    do(verb)


def test_a_topics_permission_changes_alone(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 3, attributes={"message.type": "FIFO"}, order=True)
        assert await admin.update_topic_perm("T", 4) == ["broker-a"]
        (on,) = (await admin.topic("T")).brokers
        assert (on.perm_text, on.write_queues, on.order) == ("R", 3, True)
        assert on.attributes == {"message.type": "FIFO"}
        assert await admin.update_topic_perm("T", 6, broker="broker-a") == ["broker-a"]
        with pytest.raises(ConfigurationError, match=r"4 \(read\)"):
            await admin.update_topic_perm("T", 0)
        with pytest.raises(ConfigurationError, match="on: broker-a"):
            await admin.update_topic_perm("T", 6, broker="nosuch")
        with pytest.raises(RouteNotFoundError):
            await admin.update_topic_perm("NoSuch", 6)

    do(verb)


def test_name_servers_keep_values(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        assert await admin.kv_configs("app") == {}
        assert await admin.kv_config("app", "k") is None
        await admin.put_kv_config("app", "k", "v")
        assert await admin.kv_configs("app") == {"k": "v"}
        await admin.delete_kv_config("app", "k")
        assert await admin.kv_config("app", "k") is None
        with pytest.raises(ConfigurationError, match="namespace of a value is empty"):
            await admin.put_kv_config("", "k", "v")
        assert await admin.order_conf("T") is None
        await admin.put_order_conf("T", {"broker-a": 4, "broker-b": 2})
        assert await admin.order_conf("T") == {"broker-a": 4, "broker-b": 2}
        assert (await admin.kv_configs("ORDER_TOPIC_CONFIG"))["T"] == "broker-a:4;broker-b:2"
        await admin.delete_order_conf("T")
        assert await admin.order_conf("T") is None
        for wrong in ({}, {"b:c": 1}, {"b": 0}):
            with pytest.raises(ConfigurationError):
                await admin.put_order_conf("T", wrong)

    do(verb)


def test_tables_of_a_broker(do_once: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 3)
        assert (await admin.broker_topics("broker-a"))["T"].write_queue_nums == 3
        await admin.create_group("new")
        groups = await admin.broker_groups("broker-a")
        assert {"new", "TOOLS_CONSUMER"} <= set(groups)
        assert groups == sorted(groups)
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(await admin.system_topics())
        status = await admin.ha_status("broker-a")
        assert (status.master, status.ha_connection_info) == (True, [])

    do_once(verb)
