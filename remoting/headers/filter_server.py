"""Headers of class filters: from filter server to broker, and from consumer to filter server.

Source: RocketMQ 4.2.0 common/protocol/header/filtersrv; recorded from 4.2.0.
"""

from __future__ import annotations

import msgspec

from .base import Header, Int64
from .fields import Crc32


class RegisterFilterServerRequestHeader(Header, frozen=True, kw_only=True):
    """Request of REGISTER_FILTER_SERVER (301), every 10 s.

    Attributes:
      filter_server_addr: "host:port" that consumers connect to.
    """

    filter_server_addr: str


class RegisterFilterServerResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 301: the broker's identity.

    Attributes:
      broker_name: name that a master shares with its slaves.
      broker_id: 0 is the master, 1 and above are slaves.
    """

    broker_name: str
    broker_id: Int64


class RemoveMessageFilterClassRequestHeader(Header, frozen=True, kw_only=True):
    """Request of REMOVE_MESSAGE_FILTER_CLASS (30303), which RocketMQ does not have.

    Attributes:
      consumer_group: the group of the filter.
      topic: the topic that it filters.
    """

    consumer_group: str
    topic: str


class RegisterMessageFilterClassRequestHeader(
    RemoveMessageFilterClassRequestHeader, frozen=True, kw_only=True
):
    """Request of REGISTER_MESSAGE_FILTER_CLASS (302); the body is the class's source, UTF-8.

    Attributes:
      class_name: full name of the class, such as `org.example.KeepFifth`.
      class_crc: CRC32 of the body, without the sign bit; wire `classCRC`.
      source_language: "java" (also when None) or "python"; not in RocketMQ.
    """

    class_name: str
    class_crc: Crc32 = msgspec.field(name="classCRC")
    source_language: str | None = None
