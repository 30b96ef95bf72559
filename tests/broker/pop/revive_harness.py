"""Check points and acks in a whole broker, and the messages that it revives."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import trio

from trocket.broker.pop.check_point import CheckPoint, CheckPointKey
from trocket.broker.pop.records import Ack
from trocket.remoting.message import MessageExt

from ...kit import START_MS, Broker, put_record
from .consumer import stored_in

RETRY = "%RETRY%G_T"
REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"


def create(broker: Broker, topic: str = "T", group: str = "G") -> None:
    """Create a topic and a group, as an administrator."""
    controller = broker.controller
    controller.groups.find(group)
    controller.topics.create_topic_in_send_message(topic, "TBW102", "here", 4, 0)


def put(broker: Broker, count: int = 3, topic: str = "T", queue_id: int = 0) -> list[int]:
    """Store messages `0`, `1`, ...; return their offsets."""
    return [
        put_record(broker, topic, f"UNIQ_KEY\1{number}\2", b"%d" % number, queue_id=queue_id)
        for number in range(count)
    ]


def point(
    broker: Broker, offsets: Collection[int], invisible_ms: int = 10_000, **more: object
) -> CheckPoint:
    """A check point of messages that are popped now."""
    start = min(offsets)
    fields: dict[str, Any] = {
        "topic": "T", "group": "G", "queue_id": 0, "start_offset": start,
        "pop_time": START_MS + int(trio.current_time() * 1000), "invisible_time": invisible_ms,
        "broker_name": "b", "diffs": tuple(offset - start for offset in sorted(offsets)),
    } | more  # fmt: skip
    return CheckPoint(**fields)


def store_point(broker: Broker, check_point: CheckPoint, queue_id: int = 0) -> None:
    """Store the record of a check point."""
    store = broker.controller.store
    store.begin_burst()
    assert broker.controller.parts.pop.services.puts.put_check_point(check_point, queue_id) is None
    store.on_visible(store.commit())


def store_ack(
    broker: Broker, check_point: CheckPoint, offsets: Collection[int], queue_id: int = 0
) -> None:
    """Store the record of acks."""
    store = broker.controller.store
    store.begin_burst()
    key = CheckPointKey(*check_point.key)
    ack = Ack(key, tuple(offsets))
    puts = broker.controller.parts.pop.services.puts
    assert puts.put_ack(ack, check_point.revive_time, queue_id) is None
    store.on_visible(store.commit())


def revived(broker: Broker, topic: str = RETRY, queue_id: int = 0) -> list[MessageExt]:
    """The messages of a retry topic."""
    return stored_in(broker, topic, queue_id)


def bodies(broker: Broker, topic: str = RETRY) -> list[bytes]:
    """The bodies of a retry topic's messages."""
    return [message.body for message in revived(broker, topic)]


def committed(broker: Broker, queue_id: int = 0) -> int:
    """The recorded progress of a revive queue; -1: none."""
    offsets = broker.controller.offsets
    return offsets.query_offset(REVIVE_GROUP, REVIVE_TOPIC, queue_id)
