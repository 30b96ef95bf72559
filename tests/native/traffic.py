"""Traffic of many clients from a seed: turns of bytes, and what follows from the answers.

`usual` is what clients send all day, `unusual` what the protocol allows besides, `hostile` what it
does not. Each turn gives some connections some bytes; a frame may come in any number of turns, cut
at any byte.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from .frames import (
    JSON,
    ROCKETMQ,
    batch_entry,
    binary_fields,
    binary_header,
    frame,
    odd_json_frame,
    properties,
    whole,
)

SEND, PULL, QUERY_MESSAGE, MAX_OFFSET = 10, 11, 12, 30
SEND_BACK, END_TRANSACTION, UPDATE_TOPIC = 36, 37, 17
SEND_V2, SEND_BATCH = 310, 320

NOW_MS: Final = 1_700_000_000_000
TOPICS: Final = ("T", "Topic-of-a-longer-name_1", "NewTopic", "%RETRY%CG", "Aa", "BB")
ODD_TOPICS: Final = (
    "", "n" * 127, "n" * 128, "n" * 255, "a b", "Tö", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102", "%DLQ%CG", "%RETRY%missing", "%RETRY%", "r", "rmq_sys_x",
)  # fmt: skip
NUMBERS: Final = (
    "0", "1", "3", "7", "-1", "-0", "+1", "00", "01", "1023", "1024", "65535", "2147483647",
    "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808", "", " 1", "1 ",
    "1.0", "0x1", "٣", "null", "1e3", "1_0", "-", "99999999999999999999999",
)  # fmt: skip
TEXTS: Final = (
    "", "v", "value", "ключ", "\x00", "#", "\x01", "\x02", "a b  c", " ", "x" * 300, "é" * 40,
    "true", "false", "\ud800", "😀", "TAGS\x01v", "Aa", "BB", "\x7f", "~", "KEYS",
)  # fmt: skip
NAMES: Final = (
    "UNIQ_KEY", "KEYS", "TAGS", "WAIT", "DELAY", "TRAN_MSG", "PGROUP", "MSG_REGION", "TRACE_ON",
    "INNER_NUM", "INNER_BASE", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_DELAY_MS",
    "INNER_MULTI_DISPATCH", "__CRC32#", "REAL_TOPIC", "REAL_QID", "CLUSTER", "__SHARDINGKEY",
    "CHECK_IMMUNITY_TIME_IN_SECONDS", "name", "", "UNIQ_KE", "UNIQ_KEYS", "имя",
)  # fmt: skip
KINDS: Final = ("usual", "unusual", "hostile")

_MESSAGE_ID = re.compile(rb'msgId(?:....|":")([0-9A-F]{32})', re.DOTALL)
_QUEUE_OFFSET = re.compile(rb'queueOffset(?:....|":")(\d+)', re.DOTALL)


class Delivery(NamedTuple):
    """Bytes that arrive on one connection."""

    peer: int
    data: bytes


class Half(NamedTuple):
    """The place of a half message, and its unique key."""

    physical_offset: int
    queue_offset: int
    key: str


class Traffic:
    """Makes turn after turn.

    Args:
      seed: of everything.
      kind: of `KINDS`.
      peers: number of connections.
    """

    def __init__(self, seed: int, kind: str, peers: int) -> None:
        self._random = Random(f"{kind} {seed}")
        self._kind = kind
        self._unsent = [bytearray() for _ in range(peers)]
        self._opaque = self._random.choice((0, 2**31 - 100, -(2**31)))
        self._half_keys: dict[int, str] = {}
        self._halves: list[Half] = []
        self._is_cut = self._random.random() < 0.5
        self._serialize_type = self._random.choice((JSON, ROCKETMQ, ROCKETMQ))

    def turn(self) -> list[Delivery]:
        """What arrives now."""
        random = self._random
        deliveries: list[Delivery] = []
        for peer, unsent in enumerate(self._unsent):
            if random.random() < 0.3:
                continue
            if len(unsent) < 1 << 20:
                for _ in range(random.choice((0, 1, 1, 2, 5, 20))):
                    unsent += self.request()
            size = len(unsent)
            if self._is_cut and size and random.random() < 0.4:
                size = random.randint(1, random.choice((size, min(size, 40))))
            if size:
                deliveries.append(Delivery(peer, bytes(unsent[:size])))
                del unsent[:size]
        return deliveries

    def hears(self, peer: int, data: bytes) -> None:
        """Take the answers of a connection: they have the offsets of half messages."""
        position = 0
        while len(data) - position >= 8:
            (length,) = struct.unpack_from(">i", data, position)
            one = data[position : position + 4 + length]
            position += 4 + length
            key = self._half_keys.pop(_opaque_of(one), None)
            found, place = _MESSAGE_ID.search(one), _QUEUE_OFFSET.search(one)
            if key is not None and found is not None and place is not None:
                self._halves.append(Half(int(found[1][16:], 16), int(place[1]), key))

    def closed(self, peer: int) -> None:
        """The broker closed this connection: what it had not read is lost."""
        self._unsent[peer].clear()

    # ---- requests ------------------------------------------------------------------------

    def request(self) -> bytes:
        """One request of any kind, or what is left of it."""
        random = self._random
        usual = random.choices(
            (self._send, self._batch, self._pull, self._half, self._end, self._ask),
            (40, 8, 25, 8, 8, 4),
        )[0]
        made = usual()
        if self._kind == "hostile" and random.random() < 0.06:
            return self._damaged(made)
        return made

    def _frame(self, code: int, fields: dict[str, str], body: bytes = b"", flag: int = 0) -> bytes:
        self._opaque = -(2**31) if self._opaque == 2**31 - 1 else self._opaque + 1
        serialize_type, random = self._serialize_type, self._random
        if self._kind == "usual":
            return frame(code, fields, body, opaque=self._opaque, serialize_type=serialize_type)
        if random.random() < 0.1:
            serialize_type = random.choice((JSON, ROCKETMQ))
        if random.random() < 0.05:
            flag |= 2
        if random.random() < 0.02:
            flag |= random.choice((1, 4, -(2**31)))
        if random.random() < 0.1:
            names = list(fields)
            random.shuffle(names)
            fields = {name: fields[name] for name in names}
        if random.random() < 0.05:
            fields[random.choice(list(fields))] = self._text()
        if random.random() < 0.03:
            del fields[random.choice(list(fields))]
        if random.random() < 0.03:
            fields[random.choice(("extra", "x" * 40, "имя", ""))] = random.choice(TEXTS[:6])
        if serialize_type == JSON and random.random() < 0.4:
            return odd_json_frame(random, code, fields, body, opaque=self._opaque, flag=flag)
        return frame(
            code, fields, body, opaque=self._opaque, flag=flag, serialize_type=serialize_type,
            remark=b"a remark" if random.random() < 0.03 else b"",
            language=random.choice((0, 0, 3, 8, 255)), version=random.choice((513, 513, 0, 65535)),
        )  # fmt: skip

    def _topic(self) -> str:
        random = self._random
        if self._kind != "usual" and random.random() < 0.08:
            return random.choice(ODD_TOPICS)
        return random.choice(TOPICS[:2] if self._kind == "usual" else TOPICS)

    def _number(self, *usual: int) -> str:
        if self._kind != "usual" and self._random.random() < 0.04:
            return self._random.choice(NUMBERS)
        return str(self._random.choice(usual))

    def _text(self) -> str:
        return self._random.choice(TEXTS)

    def _body(self) -> bytes:
        random = self._random
        sizes = [0, 1, 10, 100, 100, 1024]
        if self._kind != "usual":
            sizes += [4096, 9000]
            if random.random() < 0.03:
                sizes = [40_000, 100_000]
        return random.randbytes(random.choice(sizes))

    def _key(self) -> str:
        return f"{self._random.getrandbits(128):032X}"

    def _properties(self, *more: tuple[str, str]) -> str:
        random = self._random
        pairs = [("UNIQ_KEY", self._key()), ("WAIT", "true"), *more]
        if random.random() < 0.3:
            pairs.append(("TAGS", random.choice(("TagA", "TagB", "Aa", "BB"))))
        if random.random() < 0.3:
            pairs.append(("KEYS", random.choice(("k", "k1 k2", "Order-1"))))
        if self._kind != "usual":
            count = random.choice((0, 0, 0, 1, 2, 5))
            pairs += [(random.choice(NAMES), self._text()) for _ in range(count)]
            if random.random() < 0.05:
                pairs.append((random.choice(NAMES), random.choice(NUMBERS)))
            if random.random() < 0.15:
                random.shuffle(pairs)
            if random.random() < 0.1:
                del pairs[0]
            if random.random() < 0.02:
                pairs.append(("long", "p" * random.choice((2_000, 32_000, 32_500, 32_767, 40_000))))
        raw = properties(*pairs, end=random.random() < 0.5)
        if self._kind != "usual" and random.random() < 0.03:
            raw = bytes(random.choices(raw + b"\0\1\2", k=len(raw)))
        return raw.decode("utf-8", "replace")

    def _send(self, *more: tuple[str, str]) -> bytes:
        random = self._random
        if not more and random.random() < 0.1:
            more = (("DELAY", self._number(1, 1, 2, 3)),)
        values = {
            "a": "PG", "b": self._topic(), "c": "TBW102", "d": self._number(4),
            "e": self._number(0, 1, 2, 3), "f": self._number(0), "g": str(NOW_MS),
            "h": self._number(0), "i": self._properties(*more), "j": self._number(0),
            "k": "false", "m": "false",
        }  # fmt: skip
        if self._kind != "usual" and random.random() < 0.1:
            values["f"] = str(random.choice((1, 2, 4, 8, 12, 16, 32, 48, 64, 256, 0x301, -1)))
        if self._kind != "usual" and random.random() < 0.05:
            values["g"] = random.choice((*NUMBERS, "170000000000٣", "1700000000000 "))
        code = SEND_V2
        if random.random() < 0.2:
            code = SEND
            words = dict(zip("abcdefghijkm", WORDS, strict=True))
            values = {words[letter]: value for letter, value in values.items()}
        return self._frame(code, values, self._body())

    def _batch(self) -> bytes:
        random = self._random
        count = random.choice((1, 2, 10, 10, 50))
        is_even, size = random.random() < 0.6, random.choice((0, 5, 100))
        tagged = random.random() < 0.3
        entries: list[bytes] = []
        for _ in range(count):
            pairs = [("UNIQ_KEY", self._key()), ("WAIT", "true")]
            if tagged:
                pairs.append(("TAGS", random.choice(("TagA", "TagB"))))
            body, flag, claimed = random.randbytes(size), 0, None
            if not is_even:
                body = self._body()[:2000]
                pairs = [pair for pair in pairs if random.random() < 0.9]
            raw = properties(*pairs, end=is_even or random.random() < 0.5)
            if self._kind != "usual" and random.random() < 0.02:
                raw, flag = self._properties().encode(), random.choice((1, -1, 2**31 - 1))
            if self._kind == "hostile" and random.random() < 0.01:
                claimed = random.choice((-1, -(2**31), 2**31 - 1, size + 1, size - 1, 1 << 20))
            entries.append(batch_entry(body, raw, flag, claimed=claimed))
        body = b"".join(entries)
        if self._kind == "hostile" and random.random() < 0.1:
            body = self._mutated(body)
        fields = {
            "a": "PG", "b": self._topic(), "c": "TBW102", "d": self._number(4),
            "e": self._number(0, 1, 2, 3), "f": self._number(0), "g": str(NOW_MS),
            "h": self._number(0), "i": random.choice(("", "", "p\x01v\x02", "p\x01v")),
            "j": self._number(0), "k": "false", "m": "true",
        }  # fmt: skip
        return self._frame(SEND_BATCH, fields, body)

    def _half(self) -> bytes:
        made = self._send(("TRAN_MSG", "true"), ("PGROUP", "PG"))
        key = re.search(rb"UNIQ_KEY(?:\x01|\\u0001)([0-9A-F]{32})", made)
        if key is not None:
            self._half_keys[self._opaque] = key[1].decode()
        return made

    def _end(self) -> bytes:
        if not self._halves:
            return self._half()
        random = self._random
        index = random.randrange(len(self._halves))
        half = self._halves[index] if random.random() < 0.1 else self._halves.pop(index)
        fields = {
            "topic": "T", "producerGroup": "PG",
            "tranStateTableOffset": self._number(half.queue_offset),
            "commitLogOffset": self._number(half.physical_offset),
            "msgId": half.key, "transactionId": half.key,
            "commitOrRollback": self._number(8, 8, 8, 12, 0), "fromTransactionCheck": "false",
        }  # fmt: skip
        return self._frame(END_TRANSACTION, fields, flag=random.choice((0, 2)))

    def _pull(self) -> bytes:
        random = self._random
        fields = {
            "consumerGroup": "CG", "topic": self._topic(), "queueId": self._number(0, 1, 2, 3),
            "queueOffset": self._number(0, 1, 5, 20, 100), "maxMsgNums": self._number(1, 32),
            "sysFlag": self._number(2 | 4, 4, 1 | 2 | 4), "commitOffset": self._number(0),
            "suspendTimeoutMillis": self._number(15_000, 1_000), "expressionType": "TAG",
            "subscription": random.choice(("*", "*", "TagA", "TagA || Aa")), "subVersion": "0",
        }  # fmt: skip
        return self._frame(PULL, fields)

    def _ask(self) -> bytes:
        queue = {"topic": self._topic(), "queueId": self._number(0, 1)}
        key = self._random.choice(("k", "k1", "Order-1", self._text()))
        many = {
            "topic": queue["topic"], "key": key,
            "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(NOW_MS * 2),
        }  # fmt: skip
        choices: tuple[Callable[[], bytes], ...] = (
            lambda: self._frame(MAX_OFFSET, queue),
            lambda: self._frame(QUERY_MESSAGE, many),
            lambda: self._frame(self._random.choice((34, 35, 999_999, -1, 65_535)), dict(queue)),
            lambda: self._send_back(),
        )
        return self._random.choice(choices)()

    def _send_back(self) -> bytes:
        offset = self._halves[0].physical_offset if self._halves else 0
        fields = {
            "offset": self._number(0, offset), "group": "CG", "delayLevel": self._number(0, 3),
            "originMsgId": "", "originTopic": "T", "unitMode": "false", "maxReconsumeTimes": "16",
        }  # fmt: skip
        return self._frame(SEND_BACK, fields)

    # ---- damage --------------------------------------------------------------------------

    def _mutated(self, data: bytes) -> bytes:
        random, made = self._random, bytearray(data)
        for _ in range(random.choice((1, 1, 2, 8))):
            at = random.randrange(len(made) + 1)
            match random.randrange(5):
                case 0 if at < len(made):
                    made[at] ^= 1 << random.randrange(8)
                case 1 if at < len(made):
                    made[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
                case 2:
                    del made[at : at + random.choice((1, 2, 4, 20))]
                case 3:
                    made[at:at] = random.randbytes(random.choice((1, 2, 4)))
                case _:
                    made[at : at + 4] = struct.pack(">i", random.choice(SIZES))
        return bytes(made)

    def _damaged(self, made: bytes) -> bytes:
        """A frame that is wrong inside, or no frame at all."""
        random = self._random
        match random.randrange(6):
            case 0:
                return self._mutated(made)
            case 1:  # within a frame whose length is right: the connection may go on
                (_, mark) = struct.unpack_from(">iI", made)
                rest = self._mutated(made[8:])
                size = min(mark & 0xFFFFFF, len(rest))
                return whole(rest[:size], rest[size:], mark >> 24)
            case 2:
                return self._odd_fields()
            case 3:
                return random.randbytes(random.choice((1, 8, 50)))
            case 4:
                return whole(random.randbytes(random.choice((0, 1, 20, 21, 22, 60))), b"body")
            case _:
                return made[: random.randrange(len(made))]

    def _odd_fields(self) -> bytes:
        """A binary header with names given twice, bytes that are no UTF-8, and the like."""
        random = self._random
        self._opaque = -(2**31) if self._opaque == 2**31 - 1 else self._opaque + 1
        pool = (b"a", b"b", b"e", b"i", b"", b"\xff", b"x" * 37, b"n" * 300, "é".encode())
        texts = (b"", b"T", b"0", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\x00", b"v" * 70)
        pairs = [
            (random.choice(pool), random.choice(texts))
            for _ in range(random.choice((1, 3, 12, 256, 257, 300)))
        ]
        block = binary_fields(pairs)
        if random.random() < 0.3:
            block = self._mutated(block)
        code = random.choice((SEND_V2, PULL, 0x8000))
        header = binary_header(code, block, self._opaque, remark=random.choice((b"", b"\xff")))
        return whole(header, b"x")


WORDS: Final = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "batch",
)  # fmt: skip
SIZES: Final = (0, 1, -1, 2**31 - 1, -(2**31), 20, 21, 22, 255, 256, 0x7FFF, 0x8000, 1 << 24)


def _opaque_of(answer: bytes) -> int:
    if answer[4] == JSON:
        found = re.search(rb'"opaque":(-?\d+)', answer)
        return int(found[1]) if found else 0
    opaque: int = struct.unpack_from(">i", answer, 13)[0]
    return opaque


def topic_frames() -> bytes:
    """Requests that make the first two topics."""
    return b"".join(
        frame(
            UPDATE_TOPIC,
            {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": "4",
                "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0", "order": "false",
            },
            opaque=number,
        )
        for number, topic in enumerate(TOPICS[:2])
    )  # fmt: skip
