"""The tables that a slave copies from its master, and when."""

from __future__ import annotations

import json
import logging
import re

import pytest
import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages

from ...kit import Client, pull_fields, send_fields, topic_fields
from ...store.support import put
from ..group import Group, Node, group

SEND, PULL, CREATE_TOPIC, DELETE_TOPIC, UPDATE_GROUP = 310, 11, 17, 215, 200
QUERY_OFFSET, UPDATE_OFFSET, ALL_TOPICS = 14, 15, 21
SET_MODE, ALL_MODES = 401, 402
PORT, VIP_PORT = 10911, 10909
ROUND_S = 10


def offset_fields(topic: str = "T", group_name: str = "CG", **more: object) -> dict[str, object]:
    return {"consumerGroup": group_name, "topic": topic, "queueId": 0, **more}


async def commit(client: Client, offset: int) -> None:
    """What a consumer does who has consumed so much; its first pull makes its group."""
    await client.ask(PULL, pull_fields(sysFlag=4))
    assert (await client.ask(UPDATE_OFFSET, offset_fields(commitOffset=offset))).code == 0


async def pair(made: Group, **options: object) -> tuple[Node, Node]:
    master = await made.master(**options)
    slave = await made.slave(**options)
    return master, slave


async def settled(made: Group, master: Node, slave: Node) -> None:
    """Until the slave has the log and what goes with it."""
    await made.has_log(slave, master)
    await trio.testing.wait_all_tasks_blocked()


async def test_topics_groups_and_offsets_are_copied_at_once_and_saved(autojump_clock):
    async with group() as made:
        master = await made.master()
        client = await master.connect()
        assert (await client.ask(CREATE_TOPIC, topic_fields("T", 5))).code == 0
        body = json.dumps({"groupName": "CG", "retryMaxTimes": 7}).encode()
        assert (await client.ask(UPDATE_GROUP, {}, body)).code == 0
        for _ in range(3):
            await client.ask(SEND, send_fields(), b"x")
        await client.ask(UPDATE_OFFSET, offset_fields(commitOffset=2))
        start_s = trio.current_time()
        slave = await made.slave()
        await settled(made, master, slave)
        assert trio.current_time() - start_s < 1
        here = slave.running
        assert here.topics.topic_config_table["T"].write_queue_nums == 5
        assert here.topics.data_version == master.running.topics.data_version
        assert here.groups.subscription_group_table["CG"].retry_max_times == 7
        assert here.offsets.query_offset("CG", "T", 0) == 2
        assert VIP_PORT in made.asked  # where Apache's slaves ask for topics
        await trio.sleep(6)
        saved = {path.rpartition("/")[2]: bytes(text) for path, text in slave.disk.contents.items()}
        assert b'"T"' in saved["topics.json"]
        assert b'"CG"' in saved["subscriptionGroup.json"]
        assert re.search(rb'"T@CG":\{\s*0:2\s*\}', saved["consumerOffset.json"])


async def test_what_changes_is_copied_within_ten_seconds(autojump_clock):
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        await client.ask(CREATE_TOPIC, topic_fields("GONE"))
        await trio.sleep(ROUND_S + 0.1)
        assert "GONE" in slave.running.topics.topic_config_table
        await client.ask(DELETE_TOPIC, {"topic": "GONE"})
        await client.ask(CREATE_TOPIC, topic_fields("NEW"))
        assert "NEW" not in slave.running.topics.topic_config_table
        await trio.sleep(ROUND_S + 0.1)
        table = slave.running.topics.topic_config_table
        assert ("NEW" in table, "GONE" in table) == (True, False)


async def test_modes_of_message_requests_are_copied_and_not_set_on_a_slave(autojump_clock):
    async with group() as made:
        master = await made.master()
        client = await master.connect()
        await client.ask(CREATE_TOPIC, topic_fields("T"))
        await client.ask(UPDATE_GROUP, {}, b'{"groupName":"G"}')
        mode = {"topic": "T", "consumerGroup": "G", "mode": "POP", "popShareQueueNum": 3}
        body = json.dumps(mode).encode()
        assert (await client.ask(SET_MODE, {}, body)).code == 0
        slave = await made.slave()
        await settled(made, master, slave)
        reader = await slave.connect()
        copied = json.loads((await reader.ask(ALL_MODES, {})).body)
        assert copied == {"messageRequestModeMap": {"T": {"G": mode}}}
        assert (
            b'"popShareQueueNum":3' in slave.disk.contents["/store/config/messageRequestMode.json"]
        )
        assert (await reader.ask(SET_MODE, {}, body)).code == 1
        await client.ask(DELETE_TOPIC, {"topic": "T"})
        await trio.sleep(ROUND_S + 0.1)
        copied = json.loads((await reader.ask(ALL_MODES, {})).body)
        assert copied == {"messageRequestModeMap": {}}


async def test_a_topic_that_comes_with_the_log_is_asked_for_at_once(autojump_clock):
    async with group() as made:
        master = await made.master()
        slave = await made.slave(slave_read_enable=True)
        await trio.sleep(1)
        client = await master.connect()
        start_s = trio.current_time()
        await client.ask(SEND, send_fields("MADE_BY_A_SEND"), b"x")
        await settled(made, master, slave)
        reader = await slave.connect()
        answer = await reader.ask(PULL, pull_fields("MADE_BY_A_SEND", sysFlag=4))
        (message,) = decode_messages(answer.body)
        assert (message.body, trio.current_time() - start_s < 1) == (b"x", True)


async def test_a_topic_that_the_master_does_not_know_is_asked_for_once(autojump_clock):
    """Such as one that was deleted, whose messages still come."""
    async with group() as made:
        master, slave = await pair(made)
        await trio.sleep(1)
        rounds = []
        assert master.running.server is not None
        processors = master.running.server.processors
        serve = processors[ALL_TOPICS]
        processors[ALL_TOPICS] = lambda *request: rounds.append(1) or serve(*request)
        store = master.running.store
        for number in range(5):
            put(store, b"%d" % number, topic="DELETED")
            store.commit()
            await settled(made, master, slave)
            await trio.sleep(0.1)
        assert len(rounds) == 1
        await trio.sleep(ROUND_S)
        assert len(rounds) == 2


async def test_many_topics_come_in_pages(autojump_clock, monkeypatch):
    monkeypatch.setattr("trocket.broker.replication.master_api.PAGE_SIZE", 4)
    async with group() as made:
        master = await made.master()
        client = await master.connect()
        for number in range(9):
            await client.ask(CREATE_TOPIC, topic_fields(f"T{number}"))
            body = json.dumps({"groupName": f"G{number}"}).encode()
            await client.ask(UPDATE_GROUP, {}, body)
        slave = await made.slave()
        await settled(made, master, slave)
        here, there = slave.running, master.running
        assert here.topics.topic_config_table == there.topics.topic_config_table
        assert here.groups.subscription_group_table == there.groups.subscription_group_table


async def test_without_a_vip_port_the_master_is_asked_on_the_other(autojump_clock):
    async with group() as made:
        master = made.node()
        master.vip_refused = True
        await master.start()
        client = await master.connect()
        await client.ask(CREATE_TOPIC, topic_fields("T"))
        slave = await made.slave()
        await settled(made, master, slave)
        assert "T" in slave.running.topics.topic_config_table


async def test_offsets_count_only_when_the_log_has_come_as_far(autojump_clock):
    """Else what was delivered and is not here would be taken for delivered by the next master."""
    async with group() as made:
        made.ha_refused = True
        master = await made.master()
        client = await master.connect()
        await client.ask(SEND, send_fields(i="UNIQ_KEY\1A\2DELAY\x011\2"), b"1 s")
        await trio.sleep(3)
        await commit(client, 1)
        assert master.running.parts.tables.delay_offsets.offset_table == {1: 1}
        slave = await made.slave()
        await trio.sleep(3 * ROUND_S)
        here = slave.running
        assert here.offsets.query_offset("CG", "T", 0) == -1
        assert here.parts.tables.delay_offsets.offset_table == {}
        made.ha_refused = False
        await settled(made, master, slave)
        assert here.parts.tables.delay_offsets.offset_table == {1: 1}
        assert here.offsets.query_offset("CG", "T", 0) == 1


async def test_offsets_of_a_master_that_has_another_log_do_not_count(autojump_clock):
    """They lie behind other messages: the group would pass over what it has never got here."""
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        for body in (b"a", b"b"):
            await client.ask(SEND, send_fields(), body)
        await made.has_log(slave, master)
        await master.kill()
        master.disk = MemoryDisk()
        await master.start()
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"of another log")
        await commit(client, 1)
        await trio.sleep(3 * ROUND_S)
        assert not slave.running.replication.has_master
        assert master.running.offsets.query_offset("CG", "T", 0) == 1
        assert slave.running.offsets.query_offset("CG", "T", 0) == -1


@pytest.mark.slow
async def test_a_master_that_lost_its_disk_takes_no_topics_and_groups_from_its_slave(
    autojump_clock,
):
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        assert (await client.ask(SEND, send_fields(), b"a")).code == 0
        assert (await client.ask(CREATE_TOPIC, topic_fields("Kept"))).code == 0
        assert (await client.ask(UPDATE_GROUP, {}, b'{"groupName":"KG"}')).code == 0
        mode = b'{"topic":"T","consumerGroup":"KG","mode":"POP","popShareQueueNum":0}'
        assert (await client.ask(SET_MODE, {}, mode)).code == 0
        await settled(made, master, slave)
        await trio.sleep(ROUND_S)
        await master.kill()
        master.disk = MemoryDisk()
        await master.start()
        await trio.sleep(3 * ROUND_S)
        here = slave.running
        assert not here.replication.has_master
        assert {"T", "Kept"} <= here.topics.topic_config_table.keys()
        assert "KG" in here.groups.subscription_group_table
        client = await slave.connect()
        assert b"KG" in (await client.ask(ALL_MODES, {})).body
        assert not {"T", "Kept"} & set(here.store.deleted_topics.names)


@pytest.mark.slow
async def test_what_clients_commit_at_the_slave_outlasts_the_masters_older_table(autojump_clock):
    async with group() as made:
        master, slave = await pair(made, slave_read_enable=True)
        client = await master.connect()
        for _ in range(10):
            await client.ask(SEND, send_fields(), b"x")
        await commit(client, 3)
        await trio.sleep(2 * ROUND_S)
        assert slave.running.offsets.query_offset("CG", "T", 0) == 3
        await master.kill()
        reader = await slave.connect()
        await commit(reader, 8)
        await master.start()
        await trio.sleep(60)
        assert master.running.offsets.query_offset("CG", "T", 0) == 3
        assert slave.running.offsets.query_offset("CG", "T", 0) == 8
        client = await master.connect()
        await commit(client, 10)
        await trio.sleep(2 * ROUND_S)
        assert slave.running.offsets.query_offset("CG", "T", 0) == 10


@pytest.mark.slow
async def test_a_master_that_refuses_is_logged_once_and_asked_again(autojump_clock, caplog):
    async with group() as made:
        master = await made.master()
        processors = master.running.server.processors
        serve = processors.pop(43)
        slave = await made.slave()
        with caplog.at_level(logging.WARNING):
            await trio.sleep(5 * ROUND_S)
        logged = [each for each in caplog.records if "offsets could not be copied" in each.message]
        assert len(logged) == 1
        assert "GET_ALL_CONSUMER_OFFSET" in logged[0].message
        processors[43] = serve
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"x")
        await commit(client, 1)
        await trio.sleep(2 * ROUND_S)
        assert slave.running.offsets.query_offset("CG", "T", 0) == 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b", "x" * 300])
async def test_a_topic_that_would_become_a_wrong_path_is_left_out(name, autojump_clock, caplog):
    """S4: names that come from the master are checked as those from the wire."""
    async with group() as made:
        master = await made.master()
        client = await master.connect()
        await client.ask(CREATE_TOPIC, topic_fields("GOOD"))
        table = master.running.topics.topic_config_table
        table[name] = table["GOOD"]
        slave = await made.slave()
        await settled(made, master, slave)
        here = slave.running.topics.topic_config_table
        assert ("GOOD" in here, name in here) == (True, False)
        assert any("is not loaded" in each.message for each in caplog.records)
