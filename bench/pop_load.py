"""The load of `bench/pop.py`: connections that pop and acknowledge in closed loops.

As `frames.py`, it is built from the description of the protocol, without trocket's codec. Headers
are in JSON: the codes of pop consumption do not fit into a binary header.

Source: RocketMQ 5.5.0 PopMessageRequestHeader, AckMessageRequestHeader, BatchAck,
ExtraInfoUtil.
"""

from __future__ import annotations

import base64
import json
import struct
import time
from dataclasses import dataclass
from typing import Final

from trocket.bench.frames import (
    CLIENT_VERSION,
    OPAQUE_FIRST,
    POP_MESSAGE,
    SYSTEM_BUSY,
    BadAnswerError,
    pop_fields,
)
from trocket.bench.load import Load, Tally

ACK_MESSAGE: Final = 200051
BATCH_ACK_MESSAGE: Final = 200151

TOPIC: Final = "PopBench"
QUEUE_COUNT: Final = 8
BROKER: Final = "broker-a"
POP_COUNT: Final = 32
POLL_MS: Final = 100
"""A pop that finds no message, because others have just taken them, is asked again after this."""

ACK_OPAQUE_FIRST: Final = 2_000_000_000

_HEAD = struct.Struct(">ii")
_SUCCESS = b'"code":0,'
_BUSY = b'"code":2,'
"""The flow control of Apache's broker refuses requests that waited too long."""
_OPAQUE = b'"opaque":'
_NO_MESSAGE_CODES: Final = frozenset({209, 210})


@dataclass(frozen=True)
class Case:
    """A number of connections, and how they acknowledge.

    Attributes:
      in_batch: 32 messages in one request (200151); otherwise 32 requests (200051), pipelined.
    """

    name: str
    connections: int
    in_batch: bool


CASES: Final = (
    Case("1 connection", 1, False),
    Case("8 connections", 8, False),
    Case("8 connections, batch acks", 8, True),
)


def _frame(header: bytes, body: bytes = b"") -> bytes:
    return _HEAD.pack(4 + len(header) + len(body), len(header)) + header + body


def _tail(opaque: int) -> bytes:
    """The end of a header, from the fields on."""
    return (
        b'},"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
        % (opaque, CLIENT_VERSION)
    )


def pop_frame(group: str, *, opaque: int, invisible_ms: int) -> bytes:
    """A pop of all queues."""
    fields = pop_fields(group, TOPIC, poll_ms=POLL_MS, invisible_ms=invisible_ms, count=POP_COUNT)
    text = json.dumps(fields | {"bname": BROKER}, separators=(",", ":")).encode()[:-1]
    return _frame(b'{"code":%d,"extFields":%b%b' % (POP_MESSAGE, text, _tail(opaque)))


def ack_frames(group: str, fields: dict[str, str], first_opaque: int) -> list[bytes]:
    """An acknowledgement for each message of a pop's answer.

    Args:
      first_opaque: of the first; the others follow.
    """
    starts = _by_queue(fields["startOffsetInfo"])
    frames: list[bytes] = []
    receipt = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
    for key, offsets in _by_queue(fields["msgOffsetInfo"]).items():
        form, queue_id = key
        text = (
            f'{{"code":{ACK_MESSAGE},"extFields":{{"consumerGroup":"{group}","topic":"{TOPIC}",'
            f'"queueId":"{queue_id}","bname":"{BROKER}",'
            f'"extraInfo":"{starts[key]} {receipt} {form} {BROKER} {queue_id} '
        ).encode()
        for offset in offsets.encode().split(b","):
            opaque = first_opaque + len(frames)
            frames.append(_frame(b'%b%b","offset":"%b"%b' % (text, offset, offset, _tail(opaque))))
    return frames


def batch_ack_frame(group: str, fields: dict[str, str], opaque: int) -> bytes:
    """One acknowledgement for all messages of a pop's answer; see `ack_frames`."""
    starts = _by_queue(fields["startOffsetInfo"])
    acks = []
    for key, offsets in _by_queue(fields["msgOffsetInfo"]).items():
        form, queue_id = key
        start = int(starts[key])
        bits = 0
        for offset in offsets.split(","):
            bits |= 1 << (int(offset) - start)
        bit_set = bits.to_bytes(-(-bits.bit_length() // 8), "little")
        acks.append({
            "c": group, "t": TOPIC, "r": form, "so": start, "q": int(queue_id),
            "rq": int(fields["reviveQid"]), "pt": int(fields["popTime"]),
            "it": int(fields["invisibleTime"]), "b": base64.b64encode(bit_set).decode(),
        })  # fmt: skip
    body = json.dumps({"brokerName": BROKER, "acks": acks}, separators=(",", ":")).encode()
    header = b'{"code":%d,"extFields":{"bname":"%b"%b' % (
        BATCH_ACK_MESSAGE, BROKER.encode(), _tail(opaque)
    )  # fmt: skip
    return _frame(header, body)


def _by_queue(text: str) -> dict[tuple[str, str], str]:
    """The values of startOffsetInfo or msgOffsetInfo by form and queue."""
    entries = (entry.split(" ") for entry in text.split(";"))
    return {(form, queue_id): value for form, queue_id, value in entries}


class Groups:
    """Consumer groups one after the other, each of which pops all messages.

    Args:
      messages: in the topic.
      name: of the groups; a number follows.
    """

    def __init__(self, messages: int, name: str) -> None:
        self._messages = messages
        self._name = name
        self._number = 0
        self._popped = 0

    @property
    def current(self) -> str:
        """The group that has not popped all messages yet."""
        return f"{self._name}-{self._number}"

    def popped(self, group: str, count: int) -> None:
        """A group popped some messages."""
        if group != self.current:
            return
        self._popped += count
        if self._popped >= self._messages:
            self._number += 1
            self._popped = 0


class Pops:
    """A connection's driver: a pop, its acknowledgements, and the next pop when all are answered.

    Args:
      tally: counts the messages whose acknowledgements were answered.
    """

    def __init__(self, in_batch: bool, groups: Groups, tally: Tally, *, invisible_ms: int) -> None:
        self._in_batch = in_batch
        self._groups = groups
        self._tally = tally
        self._invisible_ms = invisible_ms
        self._group = ""
        self._asked_s = 0.0
        self._pops = 0
        self._unanswered = 0
        self._acking = 0

    def begin(self) -> bytes:
        """The next pop."""
        self._group = self._groups.current
        opaque = OPAQUE_FIRST + self._pops
        self._pops += 1
        self._asked_s = time.perf_counter()
        return pop_frame(self._group, opaque=opaque, invisible_ms=self._invisible_ms)

    def take(self, incoming: bytearray, now_s: float) -> bytes:
        """See `Driver`."""
        following = b""
        at = 0
        while len(incoming) - at >= _HEAD.size:
            length, mark = _HEAD.unpack_from(incoming, at)
            if at + 4 + length > len(incoming):
                break
            header = bytes(incoming[at + 8 : at + 8 + (mark & 0xFFFFFF)])
            at += 4 + length
            number = header[header.index(_OPAQUE) + len(_OPAQUE)]
            if number == 0x32:  # "2": an acknowledgement's
                self._acknowledged(header)
            else:
                following += self._popped(json.loads(header), now_s)
            if not self._unanswered:  # nothing was popped, or the last acknowledgement is through
                self._tally.answered += self._acking
                self._acking = 0
                following += self.begin()
        del incoming[:at]
        return following

    def _acknowledged(self, header: bytes) -> None:
        if _BUSY in header:
            refused = self._acking if self._in_batch else 1
            self._acking -= refused
            self._tally.refused += refused
        elif _SUCCESS not in header:
            raise BadAnswerError(f"an acknowledgement got {header[:300]!r}")
        self._unanswered -= 1

    def _popped(self, header: dict[str, object], now_s: float) -> bytes:
        """The acknowledgements of a pop's answer."""
        if header["code"] in _NO_MESSAGE_CODES:
            self._tally.empty += 1
            return b""
        if header["code"] == SYSTEM_BUSY:
            self._tally.refused += 1
            return b""
        fields = header["extFields"]
        if header["code"] != 0 or not isinstance(fields, dict):
            raise BadAnswerError(f"a pop got {header}")
        self._tally.latencies_s.append(now_s - self._asked_s)
        count = sum(1 + one.count(",") for one in _by_queue(fields["msgOffsetInfo"]).values())
        self._groups.popped(self._group, count)
        self._acking = count
        if self._in_batch:
            frames = [batch_ack_frame(self._group, fields, ACK_OPAQUE_FIRST)]
        else:
            frames = ack_frames(self._group, fields, ACK_OPAQUE_FIRST)
        self._unanswered = len(frames)
        return b"".join(frames)


def load_of(address: tuple[str, int], case: Case, groups: Groups, *, invisible_ms: int) -> Load:
    """The load of a case on a broker."""
    tally = Tally()
    drivers = [
        Pops(case.in_batch, groups, tally, invisible_ms=invisible_ms)
        for _ in range(case.connections)
    ]
    return Load(case.name, [address], drivers, tally)
