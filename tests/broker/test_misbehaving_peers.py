"""The matrix of peers that misbehave: in each cell, what a broker promises, in virtual time.

A cell is a peer, what it does, and what the broker is doing meanwhile; `PROMISES` says what holds
in each. Besides, no service that needs no peer waits: sends, pulls, deliveries, and the saving of
offsets go on, and new topics and groups wait for nothing but the only name server.
"""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from trocket.remoting.message_codec import decode_messages
from trocket.store.config import BrokerRole

from .embedded import pull_fields, send_fields
from .faulty_group import Behaviour, FaultyGroup, Peer
from .group import Node, group

SEND, PULL, HEART_BEAT, COMMIT = 310, 11, 34, 15
OFFSETS = "/store/config/consumerOffset.json"

NAME_WAIT_S = 2.5
"""How long a new topic waits for the only name server, because no client could find it."""
NO_WAIT_S = 0.1
STOP_S = 3.1
"""The time for goodbyes, to all peers together."""

START, SERVE, STOP, ROLE = "start", "serve", "stop", "role change"

PROMISES: dict[tuple[Peer, str], str] = {
    (Peer.NAME_SERVER, START): "serves at once; a new topic or group waits 2.5 s at most",
    (Peer.NAME_SERVER, SERVE): "serves on; a new topic or group waits 2.5 s at most",
    (Peer.NAME_SERVER, ROLE): "a slave that starts as a master serves as at any start",
    (Peer.NAME_SERVER, STOP): "ends within the time for goodbyes, with everything saved",
    (Peer.MASTER, START): "a slave serves what it has",
    (Peer.MASTER, SERVE): "a slave serves what it has, and keeps its topics and groups",
    (Peer.MASTER, ROLE): "a slave becomes a master although the old one hangs",
    (Peer.MASTER, STOP): "a slave ends at once, with everything saved",
    (Peer.HA_LINK, START): "a slave serves what it has, and copies no tables",
    (Peer.HA_LINK, SERVE): "a slave serves what it has, and keeps its topics and groups",
    (Peer.HA_LINK, ROLE): "a slave becomes a master although the old one hangs",
    (Peer.HA_LINK, STOP): "a slave ends at once, with everything saved",
    (Peer.SLAVE, START): "an asynchronous master serves at once",
    (Peer.SLAVE, SERVE): "an asynchronous master serves on, without it",
    (Peer.SLAVE, ROLE): "a master that starts as a slave of nothing serves what it has",
    (Peer.SLAVE, STOP): "a master ends at once, with everything saved",
}

CELLS = [
    pytest.param(peer, phase, behaviour, id=f"{peer.value}, {phase}, {behaviour.name.lower()}")
    for peer, phase in PROMISES
    for behaviour in Behaviour
]


def heartbeat(group_name: str) -> bytes:
    consumer = {
        "groupName": group_name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [],
    }  # fmt: skip
    return json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()


async def master_serves(node: Node, mark: str, new_wait_s: float = NO_WAIT_S) -> None:
    """Sends, new topics and groups, pulls, deliveries and offsets of a master go on.

    Args:
      mark: part of the names that are new.
      new_wait_s: the limit of a request with a new name.
    """
    client = await node.connect()
    for number in range(2):
        topic = f"{mark}{number}"
        late = send_fields(topic, i="DELAY\x011\x02UNIQ_KEY\x01A\x02")
        for limit_s in (new_wait_s, NO_WAIT_S):
            with trio.fail_after(limit_s + 0.1):
                assert (await client.ask(SEND, send_fields(topic), b"now")).code == 0
            with trio.fail_after(limit_s + 0.1):
                assert (await client.ask(HEART_BEAT, {}, heartbeat(f"g{topic}"))).code == 0
        with trio.fail_after(NO_WAIT_S):
            assert (await client.ask(SEND, late, b"late")).code == 0
        with trio.fail_after(1.5):
            pulled = await client.ask(PULL, pull_fields(topic, queueOffset=2))
        assert [each.body for each in decode_messages(pulled.body)] == [b"late"]
    await offsets_are_saved(node, f"{mark}0")


async def slave_serves(node: Node, topic: str) -> None:
    """Pulls and offsets of a slave go on, with the messages that it has."""
    client = await node.connect()
    with trio.fail_after(0.1):
        pulled = await client.ask(PULL, pull_fields(topic, sysFlag=4))
    assert decode_messages(pulled.body)
    await offsets_are_saved(node, topic)


async def offsets_are_saved(node: Node, topic: str) -> None:
    client = await node.connect()
    fields = {"consumerGroup": "CG", "topic": topic, "queueId": 0, "commitOffset": 1}
    with trio.fail_after(0.1):
        assert (await client.ask(COMMIT, fields)).code == 0
    await trio.sleep(1.5)
    assert f"{topic}@CG".encode() in bytes(node.disk.contents[OFFSETS])


async def settled(made: FaultyGroup, master: Node, slave: Node) -> None:
    await made.has_log(slave, master)
    await trio.testing.wait_all_tasks_blocked()


async def ends(node: Node, limit_s: float) -> None:
    began_s = trio.current_time()
    await node.stop()
    assert trio.current_time() - began_s <= limit_s
    assert "/store/abort" not in node.disk.contents


QUICK = {"flush_consumer_offset_interval": 1000, "slave_read_enable": True}


async def of_a_master(peer: Peer, phase: str, behaviour: Behaviour) -> None:
    """The cells in which the broker under test is a master."""
    async with group(FaultyGroup) as made:
        assert isinstance(made, FaultyGroup)
        new_wait_s = NAME_WAIT_S if peer is Peer.NAME_SERVER else NO_WAIT_S
        master = made.node(**QUICK)
        if phase == START:
            await made.misbehave(peer, behaviour)
            began_s = trio.current_time()
            await master.begin()
            assert trio.current_time() == began_s
            if peer is Peer.SLAVE:
                made.nursery.start_soon(made.slave)
        else:
            await master.start()
            slave = await made.slave() if peer is Peer.SLAVE else None
            await master_serves(master, "Before")
            if slave is not None:
                await settled(made, master, slave)
            await made.misbehave(peer, behaviour)
        if phase == ROLE:
            await ends(master, STOP_S)
            await master.begin(broker_id=1, broker_role=BrokerRole.SLAVE)
            await slave_serves(master, "Before0")
        elif phase == STOP:
            await ends(master, STOP_S)
        else:
            await master_serves(master, "Meanwhile", new_wait_s)
            await trio.sleep(300)
            await master_serves(master, "Later", new_wait_s)


async def of_a_slave(peer: Peer, phase: str, behaviour: Behaviour) -> None:
    """The cells in which the broker under test is a slave."""
    async with group(FaultyGroup) as made:
        assert isinstance(made, FaultyGroup)
        master = await made.master(**QUICK)
        await master_serves(master, "Before")
        made.master_port = master.port
        slave = await made.slave(**QUICK)
        await settled(made, master, slave)
        await trio.sleep(60)
        if phase == START:
            await slave.stop()
            await made.misbehave(peer, behaviour)
            began_s = trio.current_time()
            await slave.begin()
            assert trio.current_time() == began_s
        else:
            await made.misbehave(peer, behaviour)
        if phase == STOP:
            await ends(slave, STOP_S)
        elif phase == ROLE:
            await ends(slave, STOP_S)
            await slave.begin(broker_id=0, broker_role=BrokerRole.ASYNC_MASTER)
            new_wait_s = NAME_WAIT_S if peer is Peer.NAME_SERVER else NO_WAIT_S
            await master_serves(slave, "Promoted", new_wait_s)
        else:
            for pause_s in (0, 300):
                await trio.sleep(pause_s)
                await slave_serves(slave, "Before0")
                assert "Before0" in slave.running.topics.topic_config_table
                assert "gBefore0" in slave.running.groups.subscription_group_table


@pytest.mark.parametrize(("peer", "phase", "behaviour"), CELLS)
async def test_a_broker_keeps_its_promise(autojump_clock, peer, phase, behaviour):
    is_of_slave = peer in (Peer.MASTER, Peer.HA_LINK) or (
        peer is Peer.NAME_SERVER and phase == ROLE
    )
    await (of_a_slave if is_of_slave else of_a_master)(peer, phase, behaviour)
