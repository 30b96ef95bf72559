"""The oracle's jobs: each operation of ours against Apache's classes, on random values.

The same seed gives the same values. tests/interop/test_oracle.py runs the same checks on values of
Hypothesis.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..common.clock import SystemClock
from ..common.message_properties import IllegalPropertyError
from ..remoting.bodies import MessageQueue
from ..remoting.codec import NO_EXT_FIELDS, RemotingCommand, SerializeType
from ..remoting.errors import LocalProtocolError, RemoteProtocolError
from ..remoting.message import Message
from ..remoting.signature import Credentials
from . import oracle_checks as checks
from .jobs import Job, OnCell, failed
from .oracle import Oracle
from .process import PeerError
from .report.cells import Cell, Kind, Verdict
from .sql92_expressions import Expressions

SEED: Final = 20_250_101
CLIENT: Final = "oracle"

_TEXTS: Final = (
    "",
    "a",
    "TagA",
    "key 1",
    "é",
    "日本",
    "\U0001f600",
    "0",
    "a=b;c",
    "Aa",
    "BB",
    "\t",
)
_CHARACTERS: Final = 'abzAZ019 _-%./:,;"\\{}<>=é\xdf中文\U0001f600\U0001d7d9\uffee\u2028'
_NAMES: Final = ("TAGS", "KEYS", "UNIQ_KEY", "a", "B", "z9", "é", "DELAY")
_STRATEGIES: Final = (
    "AVG",
    "AVG_BY_CIRCLE",
    "CONSISTENT_HASH",
    "CONFIG",
    "MACHINE_ROOM",
    "MACHINE_ROOM_NEARBY-AVG",
    "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE",
    "MACHINE_ROOM_NEARBY-CONSISTENT_HASH",
)


class Values:
    """Random values for the checks, including the edges of ranges.

    Args:
      seed: the same one gives the same values.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._expressions = Expressions(seed)

    def text(self) -> str:
        """A string, with characters of one to four bytes, never 0x01 or 0x02."""
        if self._random.random() < 0.4:
            return self._random.choice(_TEXTS)
        return "".join(self._random.choices(_CHARACTERS, k=self._random.randint(0, 40)))

    def body(self) -> bytes:
        """Up to some hundred bytes."""
        return self._random.randbytes(self._random.choice((0, 1, 5, 64, 300)))

    def number(self, bits: int, *, signed: bool = True) -> int:
        """An integer, small, large, or at an edge."""
        low, high = (-(1 << (bits - 1)) if signed else 0), (1 << (bits - 1)) - 1
        kinds = (0, 1, high, low, self._random.randint(0, 1000), self._random.randint(low, high))
        return self._random.choice(kinds)

    def properties(self) -> dict[str, str]:
        """Up to five properties; no value is empty."""
        names = self._random.sample(_NAMES, self._random.randint(0, 5))
        return {name: self.text() or "x" for name in names}

    def host(self) -> tuple[str, int]:
        """An IPv4 or IPv6 address and a port."""
        if self._random.random() < 0.7:
            ip = ".".join(str(self._random.randint(0, 255)) for _ in range(4))
        else:
            ip = "2001:db8:" + ":".join(f"{self._random.getrandbits(16):x}" for _ in range(6))
        return ip, self._random.choice((0, 10911, 65535, self._random.randint(1, 65535)))

    def frame(self, serialize_type: int) -> RemotingCommand:
        """A request or an answer."""
        names = [name for name in (self._field_name() for _ in range(6)) if name]
        fields = {name: self.text() for name in names} or NO_EXT_FIELDS
        bits = 16 if serialize_type == SerializeType.ROCKETMQ else 32
        return RemotingCommand(
            self.number(bits),
            fields,
            self.body(),
            self._random.choice((None, self.text())),
            self.number(32),
            self._random.randint(0, 3),
            self._random.randint(0, 9),
            self.number(16),
            serialize_type,
        )

    def _field_name(self) -> str:
        """A string without characters of four bytes: Apache 5.5.0 cannot decode its own escapes."""
        return "".join(char for char in self.text() if ord(char) < 0x10000)

    def record(self) -> checks.Record:
        """A record that is not compressed."""
        return checks.Record(
            topic=self.text() or "T",
            queue_id=self.number(32),
            queue_offset=self.number(64),
            physical_offset=self.number(64, signed=False),
            body=self.body(),
            properties=self.properties(),
            born_timestamp_ms=self.number(64),
            born_host=self.host(),
            store_timestamp_ms=self.number(64),
            store_host=self.host(),
            flag=self.number(32),
            sys_flag=self._random.choice((0, 2, 4, 8, 12, 0x300)),
            reconsume_times=self.number(32),
            prepared_offset=self.number(64),
        )

    def batch(self) -> list[Message]:
        return [
            Message("T", self.body(), self.number(32), self.properties())
            for _ in range(self._random.randint(1, 8))
        ]

    def properties_text(self) -> str:
        """Encoded properties, malformed as a careless peer may write them."""
        parts = [self._random.choice((self.text(), "\x01", "\x02", "a\x01b\x02")) for _ in range(9)]
        return "".join(parts)

    def sql(self) -> tuple[str, dict[str, str]]:
        """An expression and a message's properties."""
        return self._expressions.expression(), self._expressions.properties()

    def bloom(self) -> tuple[int, int, str]:
        """Error rate, count, and a string."""
        count = self._random.choice((1, 8, 31, 32, 33, 1000))
        return self._random.randint(1, 99), count, f"{self.text()}#{self.text()}"

    def offset_id(self) -> tuple[str, int, int]:
        """A store host and a physical offset."""
        return *self.host(), self.number(64, signed=False)

    def unique_id(self) -> checks.UniqueIdSource:
        """The input of a unique id of now."""
        ip = self._random.choice((self._random.randbytes(4), b"\x20\x01" + bytes(13) + b"\x07"))
        now_ms = SystemClock().wall_ms()
        pid, loader_hash = self._random.getrandbits(16), self._random.getrandbits(32)
        return checks.UniqueIdSource(ip, pid, loader_hash, now_ms)

    def allocation(self) -> checks.AllocationCase:
        """Queues of one to five brokers, one to five members in up to three rooms."""
        pick = self._random
        rooms = [f"room{number}" for number in range(pick.randint(1, 3))]
        brokers = [f"{pick.choice(rooms)}@b{number}" for number in range(pick.randint(1, 4))]
        if pick.random() < 0.2:
            brokers.append(pick.choice(("b", "room0@", "@b", "room0@b@c")))
        queues = sorted(
            MessageQueue("T", broker, number)
            for broker in set(brokers)
            for number in range(pick.randint(0, 5))
        )
        client_ids = sorted(f"{pick.choice(rooms)}@{pick.randint(0, 9)}" for _ in range(5))
        client_ids = client_ids[: pick.randint(1, 5)]
        return checks.AllocationCase(
            pick.choice(_STRATEGIES),
            pick.choice((*client_ids, "room0@stranger")),
            tuple(queues),
            tuple(client_ids),
            frozenset(pick.sample(rooms, pick.randint(0, len(rooms)))),
            tuple(pick.sample(queues, min(2, len(queues)))),
            pick.choice((0, 1, 10)),
        )

    def signed(self) -> tuple[Credentials, dict[str, str], bytes]:
        """Credentials, and the fields and the body of a request."""
        token = self.text() or None
        credentials = Credentials(self.text() or "me", self.text() or "secret", token)
        fields = {name: self.text() for name in (self.text() for _ in range(6)) if name}
        return credentials, fields, self.body()


@dataclass(frozen=True)
class Operation:
    """An operation that both sides implement.

    Attributes:
      feature: of its cell.
      make: generates a value.
      check: compares both results for a value.
      count: how many values are checked.
    """

    feature: str
    make: Callable[[Values], Any]
    check: Callable[[Oracle, Any], str]
    count: int = 200


OPERATIONS: Final = (
    Operation("frames with a JSON header", lambda values: values.frame(0), checks.check_frame),
    Operation("frames with a binary header", lambda values: values.frame(1), checks.check_frame),
    Operation("records", Values.record, checks.check_record),
    Operation("batches", Values.batch, checks.check_batch),
    Operation("text of properties", Values.properties, checks.check_properties),
    Operation("properties in a text", Values.properties_text, checks.check_properties_text),
    Operation("SQL92 filters", Values.sql, checks.check_sql, 500),
    Operation("Bloom filters", Values.bloom, checks.check_bloom),
    Operation("hash codes", Values.text, checks.check_hash_codes, 500),
    Operation("offset message ids", Values.offset_id, checks.check_offset_id),
    Operation("unique message ids", Values.unique_id, checks.check_unique_id, 50),
    Operation("queue allocation", Values.allocation, checks.check_allocation, 600),
    Operation("ACL signatures", Values.signed, checks.check_signature),
)
"""All operations, in the order of the report."""


def jobs(versions: Sequence[str], *, seed: int = SEED) -> list[Job]:
    """One job for each version of Apache RocketMQ, with a cell for each operation.

    Args:
      versions: such as "5.5.0"; 4.9.7 and 5.5.0 are known to work.
      seed: of the values; the detail of a failure contains it.
    """
    return [_job(version, seed) for version in versions]


def _job(version: str, seed: int) -> Job:
    owed = tuple(
        Cell(Kind.ORACLE, each.feature, CLIENT, f"apache-{version}", Verdict.SKIPPED)
        for each in OPERATIONS
    )

    def play(wanted: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        by_feature = {each.feature: each for each in OPERATIONS}
        left = list(wanted)
        try:
            with Oracle(version, folder) as oracle:
                while left:
                    on_cell(_checked(left[0], by_feature[left[0].feature], oracle, seed))
                    del left[0]
        except PeerError as error:
            for cell in failed(left, str(error)):
                on_cell(cell)

    return Job(f"Apache's classes of {version}", owed, play)


def _checked(cell: Cell, operation: Operation, oracle: Oracle, seed: int) -> Cell:
    """The cell of an operation with its verdict; its detail is the first difference."""
    began_s = time.monotonic()
    values = Values(seed)
    verdict, detail = Verdict.PASSED, ""
    for number in range(operation.count):
        value = operation.make(values)
        try:
            found = operation.check(oracle, value)
        except (IllegalPropertyError, LocalProtocolError, RemoteProtocolError) as error:
            found = f"ours raised {error!r} for {value!r}"[: 2 * checks.SHOWN_CHARS_MAX]
        if found:
            verdict, detail = Verdict.FAILED, f"{found} (value {number + 1} of seed {seed})"
            break
    seconds = time.monotonic() - began_s
    return replace(cell, verdict=verdict, detail=detail, seconds=seconds)
