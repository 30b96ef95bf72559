"""Queries for a broker's state of a topic and its group, over the wire."""

from __future__ import annotations

from collections.abc import Mapping

from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import decode_record
from ..process import PeerError
from ..wire import WireClient

READER = "scenarios_reader"


def left_behind(wire: WireClient, group: str, topics: Mapping[str, int]) -> list[str]:
    """The queues in which a group lags, as in `faults.BrokerState`.

    Args:
      topics: the queue count of each topic of the group.
    Raises: PeerError: the broker does not answer.
    """
    behind = []
    for topic, queue_count in topics.items():
        for queue_id in range(queue_count):
            end = wire.max_offset(topic, queue_id)
            offset = wire.consumer_offset(group, topic, queue_id) or 0
            if offset != end:
                behind.append(f"{topic}/{queue_id}: {offset} of {end}")
    return behind


def stored_bodies(wire: WireClient, topic: str, queue_count: int) -> list[str]:
    """The bodies of all messages of a topic.

    Raises: PeerError: the broker does not answer, or a stored record is malformed.
    """
    return [
        _body(record)
        for queue_id in range(queue_count)
        for record in wire.pull_all(READER, topic, queue_id)
    ]


def _body(record: bytes) -> str:
    try:
        return decode_record(record).body.decode()
    except (RemoteProtocolError, UnicodeDecodeError) as error:
        raise PeerError(f"a stored record cannot be decoded: {error}") from error
