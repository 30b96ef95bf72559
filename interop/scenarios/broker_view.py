"""What a broker says of a topic and its group, asked over the wire."""

from __future__ import annotations

from collections.abc import Mapping

from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import decode_record
from ..process import PeerError
from ..wire import WireClient

READER = "scenarios_reader"


def left_behind(wire: WireClient, group: str, topics: Mapping[str, int]) -> list[str]:
    """Where a group is not at a queue's end, as `faults.Kept` has it.

    Args:
      topics: all topics of the group, with how many queues each has.
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
    """The bodies of all that a topic has.

    Raises: PeerError: the broker does not answer, or what it stores is no record.
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
        raise PeerError(f"a stored record cannot be read: {error}") from error
