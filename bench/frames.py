"""Frames of sends, prepared once and patched per message, and of transactions' ends.

Built from the description of the protocol and not with trocket's codec: the load generator must
share neither the broker's bugs nor its speed.

Source: frames recorded from the 5.5.0 client; RocketMQ 5.3.3 RocketMQSerializable.java.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

SEND_MESSAGE_V2 = 310
POP_MESSAGE = 200050
END_TRANSACTION = 37
JAVA = 0
ONEWAY = 2
PREPARED = 4
"""A send's sysFlag that makes its message a half message."""
COMMIT = 8
"""commitOrRollback of an end."""
SUSPEND = 0x2
SUBSCRIPTION = 0x4
"""Bits of a pull's sysFlag. Source: common/sysflag/PullSysFlag.java."""
CLIENT_VERSION = 513
JSON_TYPE = 0
ROCKETMQ_TYPE = 1
OPAQUE_FIRST = 1_000_000_000
"""Every opaque has ten digits, so that one JSON header can be patched in place."""

OPAQUE_LAST = 2_147_483_647
UNIQUE_MARK = "7F0000010BE10000" + "0" * 16
"""A unique key of a client at 127.0.0.1; its last 8 hex digits are patched with the opaque."""

BODY: Final = bytes(48 + number % 10 for number in range(128))
"""Digits, as long as the official benchmark's bodies by default."""

NO_MORE: Final[Mapping[str, str]] = MappingProxyType({})

_LENGTHS = struct.Struct(">ii")
_BINARY_HEAD = struct.Struct(">hBhiii")  # code, language, version, opaque, flag, remark length
_INT = struct.Struct(">i")
_BINARY_OPAQUE_POSITION = 8 + 5
_JSON_OPAQUE = b'"opaque":'
_JSON_CODE = b'"code":'


def build_frame(
    code: int,
    ext_fields: dict[str, str],
    body: bytes,
    *,
    opaque: int,
    serialize_type: int,
    flag: int = 0,
) -> bytes:
    """One whole request frame as the Java client of 5.5.0 writes it, members in the order given.

    Args:
      serialize_type: 0 JSON, 1 ROCKETMQ.
      flag: ONEWAY, or 0.
    """
    if serialize_type == ROCKETMQ_TYPE:
        fields = b"".join(
            struct.pack(">h", len(key)) + key.encode() + _INT.pack(len(raw)) + raw
            for key, raw in ((key, value.encode()) for key, value in ext_fields.items())
        )
        header = _BINARY_HEAD.pack(code, JAVA, CLIENT_VERSION, opaque, flag, 0)
        header += _INT.pack(len(fields)) + fields
    else:
        members = {
            "code": code,
            "extFields": ext_fields,
            "flag": flag,
            "language": "JAVA",
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": CLIENT_VERSION,
        }
        header = json.dumps(members, separators=(",", ":")).encode()
    return _LENGTHS.pack(4 + len(header) + len(body), serialize_type << 24 | len(header)) + (
        header + body
    )


def send_fields(
    group: str,
    topic: str,
    queue_id: int,
    properties: str = "",
    *,
    born_timestamp_ms: int | None = None,
    queue_count: str = "4",
) -> dict[str, str]:
    """The fields of a send, SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE.

    Args:
      born_timestamp_ms: None: now.
      queue_count: of a topic that the send creates.
    """
    if born_timestamp_ms is None:
        born_timestamp_ms = time.time_ns() // 1_000_000
    return {
        "a": group, "b": topic, "c": "TBW102", "d": queue_count, "e": str(queue_id), "f": "0",
        "g": str(born_timestamp_ms), "h": "0", "i": properties, "j": "0", "k": "false",
        "m": "false",
    }  # fmt: skip


def pull_fields(
    group: str,
    topic: str,
    queue_id: int,
    queue_offset: int,
    *,
    count: int = 32,
    wait_s: float = 0.0,
    subscription: str = "*",
) -> dict[str, str]:
    """The fields of a PULL_MESSAGE with its subscription, to tags.

    Args:
      wait_s: time of the long poll; 0: none.
    """
    sys_flag = SUBSCRIPTION | SUSPEND if wait_s else SUBSCRIPTION
    return {
        "consumerGroup": group, "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(queue_offset), "maxMsgNums": str(count), "sysFlag": str(sys_flag),
        "commitOffset": "0", "suspendTimeoutMillis": str(int(wait_s * 1000)),
        "subscription": subscription, "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


def pop_fields(
    group: str, topic: str, *, poll_ms: int, invisible_ms: int = 60_000, count: int = 32
) -> dict[str, str]:
    """The fields of a POP_MESSAGE of all queues, without a filter.

    Args:
      poll_ms: time of the long poll; 0: none.
      count: of messages at most.
    """
    return {
        "consumerGroup": group, "topic": topic, "queueId": "-1", "maxMsgNums": str(count),
        "invisibleTime": str(invisible_ms), "pollTime": str(poll_ms),
        "bornTime": str(time.time_ns() // 1_000_000), "initMode": "0", "expType": "TAG",
        "exp": "*", "order": "false",
    }  # fmt: skip


class Taken(NamedTuple):
    """The answers in received bytes.

    Attributes:
      opaques: of the successful ones.
      refused: of those with SYSTEM_BUSY.
      frames: requests that follow the answers, to be sent next.
    """

    opaques: list[int]
    refused: list[int]
    frames: bytes


@dataclass(slots=True)
class SendTemplate:
    """One frame per queue; `next_frames` patches the opaque and the unique key of each copy.

    Not thread-safe. `opaque_next` counts up from OPAQUE_FIRST and is also the number in the
    message's unique key.
    """

    frames: list[bytes]
    serialize_type: int
    opaque_next: int = OPAQUE_FIRST

    @classmethod
    def for_topic(
        cls,
        topic: str,
        *,
        queue_count: int = 4,
        body: bytes = BODY,
        born_timestamp_ms: int | None = None,
        broker: str = "broker-a",
        serialize_type: int = ROCKETMQ_TYPE,
        group: str = "benchmark_producer",
        in_transaction: bool = False,
        more: Mapping[str, str] = NO_MORE,
    ) -> SendTemplate:
        """Templates for queues 0 to queue_count - 1 (at most 10) of a topic.

        A send as the official benchmark makes it: no keys, no tags.

        Args:
          born_timestamp_ms: None: now.
          in_transaction: the messages are half messages.
          more: further fields.
        """
        properties = f"UNIQ_KEY\x01{UNIQUE_MARK}\x02WAIT\x01true\x02"
        sys_flag = 0
        if in_transaction:
            properties += f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02"
            sys_flag = PREPARED
        assert 1 <= queue_count <= 10, "queue ids of one digit keep all frames the same size"
        frames = [
            build_frame(
                SEND_MESSAGE_V2,
                send_fields(
                    group,
                    topic,
                    queue,
                    properties,
                    born_timestamp_ms=born_timestamp_ms,
                )
                | {"f": str(sys_flag), "n": broker, **more},
                body,
                opaque=OPAQUE_FIRST,
                serialize_type=serialize_type,
            )
            for queue in range(queue_count)
        ]
        assert len({len(frame) for frame in frames}) == 1
        return cls(frames, serialize_type)

    def next_frames(self, count: int) -> bytearray:
        """`count` frames in one buffer, with consecutive opaques and unique keys."""
        frames = self.frames
        queues = len(frames)
        size = len(frames[0])
        first = self.opaque_next
        assert first + count <= OPAQUE_LAST
        block = b"".join(frames)
        start = first % queues
        buffer = bytearray(block * ((count + start) // queues + 1))
        del buffer[: start * size]
        del buffer[count * size :]
        unique = frames[0].index(UNIQUE_MARK.encode()) + len(UNIQUE_MARK) - 8
        if self.serialize_type == ROCKETMQ_TYPE:
            pack_opaque = _INT.pack_into
            at = _BINARY_OPAQUE_POSITION
            for opaque in range(first, first + count):
                pack_opaque(buffer, at, opaque)
                unique_at = at - _BINARY_OPAQUE_POSITION + unique
                buffer[unique_at : unique_at + 8] = b"%08X" % opaque
                at += size
        else:
            opaque_position = frames[0].index(_JSON_OPAQUE) + len(_JSON_OPAQUE)
            at = 0
            for opaque in range(first, first + count):
                buffer[at + opaque_position : at + opaque_position + 10] = b"%d" % opaque
                buffer[at + unique : at + unique + 8] = b"%08X" % opaque
                at += size
        self.opaque_next = first + count
        return buffer

    def take(self, incoming: bytearray) -> Taken:
        """Remove the complete answers from the start of `incoming`. Raises: BadAnswerError."""
        return Taken(*take_answers(incoming), b"")


SYSTEM_BUSY = 2
"""The code with which Apache's flow control refuses requests that waited over 200 ms."""


class BadAnswerError(Exception):
    """The broker answered a send with something other than success or SYSTEM_BUSY."""


_ANSWER_HEAD = struct.Struct(">iihBhi")  # length, mark, code, language, version, opaque


def take_answers(
    buffer: bytearray, on_success: Callable[[bytes], None] | None = None
) -> tuple[list[int], list[int]]:
    """Remove the complete answers from the start of `buffer`.

    Args:
      on_success: called with each whole frame whose code is 0.

    Returns: the opaques of answers with code 0, and of those with SYSTEM_BUSY.
    Raises: BadAnswerError: an answer has another code.
    """
    opaques = []
    refused = []
    at = 0
    end = len(buffer)
    unpack = _ANSWER_HEAD.unpack_from
    while end - at >= _ANSWER_HEAD.size:
        length, mark, code, _, _, opaque = unpack(buffer, at)
        if at + 4 + length > end:
            break
        if mark >> 24 != ROCKETMQ_TYPE:
            code, opaque = _json_answer(buffer, at)
        if code == 0:
            opaques.append(opaque)
            if on_success is not None:
                on_success(bytes(buffer[at : at + 4 + length]))
        elif code == SYSTEM_BUSY:
            refused.append(opaque)
        else:
            text = bytes(buffer[at : at + 4 + length])
            raise BadAnswerError(f"answer with code {code}: {text[:300]!r}")
        at += 4 + length
    del buffer[:at]
    return opaques, refused


def _json_answer(buffer: bytearray, at: int) -> tuple[int, int]:
    """Code and opaque of a JSON header, found by text search, which suffices for send answers."""
    code_at = buffer.index(_JSON_CODE, at) + len(_JSON_CODE)
    code_end = min(buffer.index(b",", code_at), buffer.index(b"}", code_at))
    opaque_at = buffer.index(_JSON_OPAQUE, at) + len(_JSON_OPAQUE)
    return int(buffer[code_at:code_end]), int(buffer[opaque_at : opaque_at + 10])
