"""Two stores with the same load, one of our broker and one of Apache's, compared file by file.

Messages are sent one after another, so both logs have the same order. The log files are small: a
difference of one byte, in a record or at a file's end, shifts all records behind it.

Ignored is what must differ: the fields `NOT_COMPARED` of each record, which are its store time, its
store host and the client's port, and the delivery time of delayed messages.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType

from ..common.message_properties import (
    PROPERTY_CLUSTER,
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_TRANSACTION_ID,
)
from ..common.topic_names import SCHEDULE_TOPIC
from ..remoting.message import MessageExt
from .apache import ApacheCluster, version_numbers
from .log_on_disk import Unit, read_messages, read_queues
from .store_round_trip import (
    BATCH_ENTRY,
    KEEP_ALL,
    SIZES,
    TOPICS,
    Load,
    apache_on_store,
)
from .trocket_peer import TrocketBroker
from .wire import Outgoing, WireClient

LOAD_COUNT = 400
NOT_COMPARED = ("born_host", "store_timestamp_ms", "store_host")
"""Fields of a record that always differ."""
COMPARED = (
    "topic",
    "queue_id",
    "queue_offset",
    "body",
    "flag",
    "sys_flag",
    "born_timestamp_ms",
    "reconsume_times",
    "prepared_transaction_offset",
    "magic",
    "body_crc",
)
"""Fields that must be equal; for the others see `compare_records`."""
BROKERS_OWN = (
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_CLUSTER,
    PROPERTY_TRANSACTION_ID,
)
"""Properties that brokers add; which ones depends on the version, so a separate check compares
them."""
BATCH_QUIRK = "docs/quirks.md: messages of a batch have region, trace switch and cluster"
DELAY_LEVEL_2_H = 18
PREPARED = 0x4
"""Bit of a message's sysFlag: the first half of a transaction."""
PAIR_KEYS = {"transactionTimeOut": 1 << 40}
"""In ms. Apache's 5.5.0 checks half messages when it stops and stores those older than this again,
and the born time of these messages is long ago."""


class StorePair:
    """The two stores, filled and read by `run`.

    Args:
      version: of Apache's broker.
      folder: for both; `run` removes the stores.
    """

    def __init__(self, version: str, folder: Path) -> None:
        self._version = version
        self._stores = {"ours": folder / "ours-store", "apaches": folder / "apaches-store"}
        keys: dict[str, object] = {**SIZES["small files"], **PAIR_KEYS}
        self._ours = TrocketBroker(
            folder / "ours", store=self._stores["ours"], broker_keys={**keys, **KEEP_ALL}
        )
        self._apaches = apache_on_store(version, folder / "apaches", self._stores["apaches"], keys)
        self.logs: dict[str, list[MessageExt]] = {}
        self.queues: dict[str, dict[tuple[str, int], list[Unit]]] = {}

    def run(self) -> StorePair:
        """Fill, stop and read both, and return itself. Raises: whatever failed."""
        peers: dict[str, TrocketBroker | ApacheCluster] = {
            "ours": self._ours,
            "apaches": self._apaches,
        }
        for name, peer in peers.items():
            try:
                peer.start_broker()
                with WireClient(peer.broker_address) as client:
                    for topic, count in TOPICS.items():
                        client.create_topic(topic, queue_count=count)
                    client.send_all(self._load(), together=1)
                peer.stop_broker()
                self.logs[name] = read_messages(self._stores[name])
                self.queues[name] = read_queues(self._stores[name])
            finally:
                peer.close()
                shutil.rmtree(self._stores[name], ignore_errors=True)
        return self

    def _load(self) -> Iterator[Outgoing]:
        """The load of a round trip, batches last, and messages that brokers store changed."""
        messages = list(Load("twins").messages(LOAD_COUNT))
        yield from (message for message in messages if not message.batch)
        # With unique keys: 5.x and ours generate missing ones from address, process and time.
        yield Outgoing(
            "MadeBySending", 0, b"creates its topic", "UNIQ_KEY\x01made\x02TAGS\x01a\x02"
        )
        delayed = f"UNIQ_KEY\x01late\x02DELAY\x01{DELAY_LEVEL_2_H}\x02KEYS\x01late\x02TAGS\x01a\x02"
        yield Outgoing("Orders", 2, b"in two hours", delayed)
        # 4.2.0 stores a half message in its own topic, without a unit in the queue.
        if version_numbers(self._version) >= (4, 3):
            half = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01half\x02"
            yield Outgoing("Orders", 3, b"half a transaction", half, sys_flag=PREPARED)
        yield Outgoing("Orders", 0, b"the last of these", "UNIQ_KEY\x01last\x02")
        yield from (message for message in messages if message.batch)


@dataclass(frozen=True)
class Difference:
    """A difference between the stores; `quirk`: its row of docs/quirks.md, or ""."""

    text: str
    quirk: str = ""


def compare_records(pair: StorePair) -> Iterator[Difference]:
    """Compare the records in log order.

    Properties are compared without those that brokers add, and without their order: 5.x and 4.x
    write a hash map. A record's size is therefore compared without properties, and its physical
    offset only while all records before it had the same size.
    """
    ours, apaches = pair.logs["ours"], pair.logs["apaches"]
    if len(ours) <= LOAD_COUNT:
        yield Difference(f"there are only {len(ours)} records")
    same_places = True
    for number, (a, b) in enumerate(zip_longest(ours, apaches)):
        if a is None or b is None:
            yield Difference(f"record {number}: ours {_name(a)}, apache's {_name(b)}")
            continue
        pairs: list[tuple[str, object, object]] = []
        pairs += [(name, getattr(a, name), getattr(b, name)) for name in COMPARED]
        pairs.append(("properties", _sent_properties(a), _sent_properties(b)))
        pairs.append(("size without properties", _other_size(a), _other_size(b)))
        if same_places:
            pairs.append(("physical_offset", a.physical_offset, b.physical_offset))
        same_places = same_places and a.store_size == b.store_size
        for name, x, y in pairs:
            if x != y:
                yield Difference(f"record {number} {_name(a)}, {name}: ours {x!r}, apache's {y!r}")


def compare_brokers_own(pair: StorePair) -> Iterator[Difference]:
    """Compare the properties that brokers add, record by record."""
    for a, b in zip(pair.logs["ours"], pair.logs["apaches"], strict=False):
        ours, apaches = _brokers_own(a), _brokers_own(b)
        if ours != apaches:
            quirk = BATCH_QUIRK if a.body.startswith(BATCH_ENTRY) else ""
            yield Difference(f"{_name(a)}: ours {ours}, apache's {apaches}", quirk)


def compare_queues(pair: StorePair) -> Iterator[Difference]:
    """Compare the units of each queue: the record that a unit points to, and its tags code."""
    units = {whose: _units(pair.logs[whose], queues) for whose, queues in pair.queues.items()}
    ours, apaches = units["ours"], units["apaches"]
    if len(ours) < sum(TOPICS.values()):
        yield Difference(f"there are only {len(ours)} queues")
    for queue in sorted(ours.keys() | apaches.keys()):
        pairs = zip_longest(ours.get(queue, []), apaches.get(queue, []))
        for number, (a, b) in enumerate(pairs):
            if a != b:
                yield Difference(f"{queue} unit {number}: ours {a}, apache's {b}")


COMPARISONS: Mapping[str, Callable[[StorePair], Iterator[Difference]]] = MappingProxyType(
    {
        "every record is the same": compare_records,
        "brokers add the same properties": compare_brokers_own,
        "every queue is the same": compare_queues,
    }
)
"""By their names in cells."""


def _sent_properties(message: MessageExt) -> dict[str, str]:
    return {name: v for name, v in message.properties.items() if name not in BROKERS_OWN}


def _other_size(message: MessageExt) -> int:
    return message.store_size - len(message.properties_bytes)


def _brokers_own(message: MessageExt) -> dict[str, str]:
    return {name: v for name, v in message.properties.items() if name in BROKERS_OWN}


def _units(
    log: list[MessageExt], queues: dict[tuple[str, int], list[Unit]]
) -> dict[tuple[str, int], list[tuple[object, ...]]]:
    """Each unit as its record's number in the log, whether the sizes agree, and the tags code."""
    numbers = {message.physical_offset: number for number, message in enumerate(log)}
    found: dict[tuple[str, int], list[tuple[object, ...]]] = {}
    for queue, units in queues.items():
        found[queue] = []
        for unit in units:
            number = numbers.get(unit.physical_offset)
            has_size = number is not None and log[number].store_size == unit.size
            code = None if queue[0] == SCHEDULE_TOPIC else unit.tags_code
            found[queue].append((number, has_size, code))
    return found


def _name(message: MessageExt | None) -> str:
    if message is None:
        return "none"
    return f"{message.topic}/{message.queue_id}/{message.queue_offset}"
