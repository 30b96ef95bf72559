"""The end of a run: all that is there, against all that was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_messages

from ...kit import topic_fields
from ..broken import Broken
from .clients import OK, Consumer
from .cluster_operator import LOOK_S, differs_from, has_all, read_log
from .oracle import QUEUES, TOPIC

if TYPE_CHECKING:
    from .cluster import Cluster
    from .machines import BrokerMachine

QUERY, CREATE_TOPIC, SEARCH, VIEW = 12, 17, 29, 33
LOOKUPS_S = 10.0
"""N7: look-ups find everything no later than this after a recovery."""

SYNCHRONIZED_S = 3.5
"""By then a slave has its master's offsets again (slaveSyncInterval)."""

FOLLOWED_S = 12.0
"""By then a slave follows again whose connection was half open, or whose disk was full: it notices
within 5 s (haHousekeepingInterval, cleanResourceInterval), and connects anew 5 s later."""

LATE_S = 40.0
"""After a clock was set right, delayed messages come no later than this."""

REGISTERED_WITHIN_S = 25.0
"""By then a broker has registered again: its period is 10 s, and one attempt may fail."""

SAMPLE = 2
"""Messages of a queue that are looked up in each way."""


async def verify(cluster: Cluster) -> None:
    """All of it. Raises: Broken."""
    healed_s = trio.current_time()
    await trio.sleep(SYNCHRONIZED_S)
    for peer in (*cluster.producers, *cluster.consumers):
        for channel in list(peer.client._channels.values()):
            channel.close("it may be half open")
    master = cluster.master
    await make_topic_again(cluster)
    await wait_for_delayed(cluster)
    if await wait_for_slaves(cluster):
        healed_s = trio.current_time()
    queues = cluster.queues_of(master.store)
    cluster.note(f"the queues end at {[len(messages) for messages in queues]}")
    cluster.oracle.hold(queues)
    cluster.oracle.hold_delayed(queues)
    for slave in cluster.slaves:
        check_slave(cluster, slave, queues)
    await check_group(cluster, queues)
    for machine in [master, *cluster.slaves]:
        for queue_id, messages in enumerate(cluster.queues_of(machine.store)):
            while True:
                problem = await check_lookups(cluster, machine, queue_id, messages)
                if not problem:
                    break
                if trio.current_time() > healed_s + LOOKUPS_S:
                    raise Broken("N7", problem)
                await trio.sleep(1)
    await check_takes_messages(cluster)


async def make_topic_again(cluster: Cluster) -> None:
    """What ha.md says of a topic that a send has made in a master's last moment: its messages are
    on the new master, which may not know it, and are read when it is made again."""
    master = cluster.master
    is_unknown = TOPIC not in master.controller.topics.topic_config_table
    if master is cluster.brokers[0] or not is_unknown or not any(cluster.queues_of(master.store)):
        return
    fields = topic_fields(TOPIC, QUEUES)
    await cluster.consumers[0].ask(master.address, CREATE_TOPIC, fields)
    cluster.note(f"{TOPIC} is made again at {master.name}")


async def wait_for_delayed(cluster: Cluster) -> None:
    """Wait for what is due. Where a clock was an hour behind, the broker looks at it again after a
    hundredth of that (due_task.py)."""
    with trio.move_on_after(LATE_S):
        while True:
            if not cluster.oracle.is_waiting(cluster.queues_of(cluster.master.store)):
                break
            await trio.sleep(1)


async def wait_for_slaves(cluster: Cluster) -> bool:
    """Wait for slaves that had not noticed yet that their connection is broken, or that their disk
    has room again; returns whether there were any."""
    start_s = trio.current_time()
    with trio.move_on_after(FOLLOWED_S):
        while True:
            if all(has_all(cluster, slave) for slave in cluster.slaves):
                break
            await trio.sleep(LOOK_S)
    return trio.current_time() > start_s


def check_slave(cluster: Cluster, slave: BrokerMachine, queues: list[list[MessageExt]]) -> None:
    """Its log is the master's, byte for byte, and so are its queues."""
    master = cluster.master
    start = max(slave.store.min_physical_offset, master.store.min_physical_offset)
    end = master.store.max_physical_offset
    parts = differs_from(slave, master, start, end)
    if parts is not None or slave.store.max_physical_offset != end:
        raise Broken(
            "HA", f"{slave.name}'s log is not the master's from {parts} on, {start} to {end}: "
            f"{read_log(slave, start, end)[-20:]!r}",
        )  # fmt: skip
    for queue_id, ours in enumerate(cluster.queues_of(slave.store)):
        low = master.store.min_offset(TOPIC, queue_id)  # a slave has a separate retention
        if [each for each in ours if each.queue_offset >= low] != queues[queue_id]:
            raise Broken("HA", f"{slave.name}'s queue {queue_id} is not the master's")


async def check_group(cluster: Cluster, queues: list[list[MessageExt]]) -> None:
    """N6: the group's offsets are true, and it gets all the rest."""
    consumer = cluster.consumers[0]
    for machine in [cluster.master, *cluster.slaves]:
        for queue_id, messages in enumerate(queues):
            committed = await consumer.committed(machine.address, queue_id)
            if committed is None:
                raise Broken("N6", f"{machine.name} does not say where the group is")
            cluster.oracle.hold_group(queue_id, messages, committed)
    for queue_id, messages in enumerate(queues):
        if not messages:
            continue  # the topic may not exist yet
        await drain(consumer, cluster.master.address, queue_id)
        end = messages[-1].queue_offset + 1
        # A message without an answer, such as a delayed one, may still come.
        newest = cluster.master.store.max_offset(TOPIC, queue_id)
        if not end <= consumer.next[queue_id] <= newest:
            raise Broken("N6", f"the group gets to {consumer.next[queue_id]}, {end} is the end")
        cluster.oracle.hold_group(queue_id, messages, end)


async def drain(consumer: Consumer, address: str, queue_id: int) -> None:
    """Consume all there is."""
    consumer.next.pop(queue_id, None)
    last = -1
    while consumer.next.get(queue_id) != last:
        last = consumer.next.get(queue_id, -1)
        if not await consumer.consume(address, queue_id, hold_ms=0):
            raise Broken("N6", f"queue {queue_id} cannot be pulled from {last} on")


async def check_lookups(
    cluster: Cluster, machine: BrokerMachine, queue_id: int, messages: list[MessageExt]
) -> str:
    """What is not found by key, by id or by time; "": all is. N7."""
    for message in messages[-SAMPLE:]:
        number = message.properties["KEYS"]
        who = f"{message.body[:8]!r} at {machine.name}"
        found = await look_up(
            cluster, machine, QUERY, topic=TOPIC, key=number, maxNum=32, beginTimestamp=0,
            endTimestamp=1 << 60,
        )  # fmt: skip
        same = [each for each in messages if each.body == message.body]
        if sorted(found, key=lambda each: each.queue_offset) != same:
            return f"{who} is not found by its key: {found}"
        if await look_up(cluster, machine, VIEW, offset=message.physical_offset) != [message]:
            return f"{who} is not found by its id"
    if messages:
        message = messages[len(messages) // 2]
        time_ms = message.store_timestamp_ms
        first = min(each.queue_offset for each in messages if each.store_timestamp_ms >= time_ms)
        fields = {"topic": TOPIC, "queueId": queue_id, "timestamp": time_ms}
        answer = await cluster.consumers[0].ask(machine.address, SEARCH, fields)
        if answer is None or answer.ext_fields.get("offset") != str(first):
            return f"{time_ms} of queue {queue_id} is not {first} at {machine.name}"
    return ""


async def look_up(
    cluster: Cluster, machine: BrokerMachine, code: int, **fields: object
) -> list[MessageExt]:
    """What a broker answers."""
    answer = await cluster.consumers[0].ask(machine.address, code, fields)
    if answer is None or answer.code != OK:
        return []
    return decode_messages(answer.body)


async def check_takes_messages(cluster: Cluster) -> None:
    """The cluster works again, and SEND_OK is within reach."""
    producer = cluster.producers[0]
    producer.forget()
    before = cluster.answers[OK]
    address = await producer.find()
    # A name server that heard late of a closed connection has just forgotten the master.
    with trio.move_on_after(REGISTERED_WITHIN_S):
        while address != cluster.master.address:
            await trio.sleep(LOOK_S)
            producer.forget()
            address = await producer.find()
    if address != cluster.master.address:
        raise Broken("HA", f"the route leads to {address}, not to {cluster.master.address}")
    for queue_id in range(QUEUES):
        await producer._send(address, producer._new(0, queue_id))
    if cluster.answers[OK] != before + QUEUES:
        raise Broken("HA", f"the cluster does not answer success: {cluster.answers}")
