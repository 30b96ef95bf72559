"""Frames of transactions: half messages, and the commit of each when it is answered.

As the official client does, the end is sent oneway, right after the answer to the half message.
Built from the description of the protocol and not with trocket's codec, as `frames.py`.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

from trocket.bench.frames import (
    COMMIT,
    END_TRANSACTION,
    ONEWAY,
    ROCKETMQ_TYPE,
    SendTemplate,
    Taken,
    build_frame,
    take_answers,
)

GROUP = "benchmark_transaction_producer"

_HEADER_AT = 8
_BINARY_FIELDS_AT = _HEADER_AT + 13
"""Where the remark's size begins in a frame with a binary header."""
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")


def answer_fields(frame: bytes) -> dict[str, str]:
    """The fields of an answer's header, which has no remark if it is binary."""
    mark = _INT.unpack_from(frame, 4)[0]
    if mark >> 24 != ROCKETMQ_TYPE:
        fields: dict[str, str] = json.loads(frame[_HEADER_AT : _HEADER_AT + mark])["extFields"]
        return fields
    remark_size, fields_size = struct.unpack_from(">ii", frame, _BINARY_FIELDS_AT)
    assert remark_size == 0
    at = _BINARY_FIELDS_AT + 8
    end = at + fields_size
    texts = {}
    while at < end:
        (size,) = _SHORT.unpack_from(frame, at)
        name_end = at + 2 + size
        (value_size,) = _INT.unpack_from(frame, name_end)
        at, value_at = name_end + 4 + value_size, name_end + 4
        texts[frame[name_end - size : name_end].decode()] = frame[value_at:at].decode()
    return texts


@dataclass(slots=True)
class TransactionTemplate:
    """Half messages as `SendTemplate` makes them, and a commit for each one that is answered.

    Args:
      halves: made with `in_transaction` and the group GROUP.
      topic, broker: as of the halves.
    """

    halves: SendTemplate
    topic: str
    broker: str

    @property
    def opaque_next(self) -> int:
        """The opaque of the next half message."""
        return self.halves.opaque_next

    def next_frames(self, count: int) -> bytearray:
        """`count` half messages; see `SendTemplate.next_frames`."""
        return self.halves.next_frames(count)

    def take(self, incoming: bytearray) -> Taken:
        """Remove the complete answers from the start of `incoming`. Raises: BadAnswerError."""
        ends: list[bytes] = []
        opaques, refused = take_answers(incoming, lambda frame: ends.append(self.end(frame)))
        return Taken(opaques, refused, b"".join(ends))

    def end(self, answer: bytes) -> bytes:
        """The commit of the half message that an answer is about."""
        fields = answer_fields(answer)
        key = fields["transactionId"]
        return build_frame(
            END_TRANSACTION,
            {
                "producerGroup": GROUP,
                "bname": self.broker,
                "commitLogOffset": str(int(fields["msgId"][-16:], 16)),
                "topic": self.topic,
                "msgId": key,
                "tranStateTableOffset": fields["queueOffset"],
                "commitOrRollback": str(COMMIT),
                "transactionId": key,
                "fromTransactionCheck": "false",
            },
            b"",
            opaque=int(key[-8:], 16) & 0x7FFFFFFF,
            serialize_type=self.halves.serialize_type,
            flag=ONEWAY,
        )
