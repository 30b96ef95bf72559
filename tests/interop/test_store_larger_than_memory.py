"""Our broker with an address space smaller than its store takes it all in and serves it all.

The limit is `ulimit -v`: maps count in it, so a broker that maps whole stores comes to its end.
Needs no Java.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.wire import Outgoing, WireClient
from trocket.remoting.message_codec import decode_record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS and /proc"),
]

MIB = 1 << 20
ADDRESS_SPACE_BYTES = 448 * MIB
BODY_BYTES = 256 * 1024
COUNT = 680 * MIB // BODY_BYTES
QUEUE_COUNT = 4
TOPIC = "Large"
KEYS = {
    "mappedFileSizeCommitLog": 32 * MIB,  # several maps fit: slices in flight hold some
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 10_000,
    "fileReservedTime": 1_000_000,
}
LIMITED = """
import os, resource, sys
size = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (size, size))
os.environ["MALLOC_ARENA_MAX"] = "1"  # else glibc takes 64 MiB of it for each thread
os.execv(sys.executable, [sys.executable, "-m", "trocket.cli.main", *sys.argv[2:]])
"""
COMMAND = (sys.executable, "-c", LIMITED, str(ADDRESS_SPACE_BYTES))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TrocketBroker]:
    """A stopped broker with little memory and much disk."""
    broker = TrocketBroker(
        tmp_path / "broker", store=tmp_path / "store", broker_keys=KEYS, command=COMMAND
    )
    yield broker
    broker.close()


def body(number: int) -> bytes:
    return b"%08d" % number * (BODY_BYTES // 8)


def messages() -> Iterator[Outgoing]:
    for number in range(COUNT):
        properties = f"KEYS\x01k{number}\x02"
        yield Outgoing(TOPIC, number % QUEUE_COUNT, body(number), properties)


def memory(broker: TrocketBroker) -> dict[str, float]:
    """Of the process, in MiB: address space and resident memory at their highest, and its parts."""
    lines = Path(f"/proc/{broker.pids[0]}/status").read_text().splitlines()
    values = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    names = ("VmPeak", "VmHWM", "RssAnon", "RssFile")
    return {name: int(values[name].split()[0]) / 1024 for name in names}


def assert_all_is_served(broker: TrocketBroker) -> None:
    with WireClient(broker.broker_address) as client:
        for queue_id in range(QUEUE_COUNT):
            expected = range(queue_id, COUNT, QUEUE_COUNT)
            for number, record in zip(
                expected, client.pull_all("readers", TOPIC, queue_id), strict=True
            ):
                assert decode_record(record).body == body(number)


def test_a_store_larger_than_its_memory_is_written_and_served_and_opened_again(
    broker: TrocketBroker, tmp_path: Path
) -> None:
    broker.start_broker()
    with WireClient(broker.broker_address) as client:
        client.create_topic(TOPIC, queue_count=QUEUE_COUNT)
        client.send_all(messages(), together=16)
    print("written:", memory(broker))
    assert_all_is_served(broker)
    print("served:", memory(broker))
    broker.kill_broker()
    broker.start_broker()
    assert_all_is_served(broker)
    print("served after a kill:", memory(broker))
    assert memory(broker)["VmPeak"] <= ADDRESS_SPACE_BYTES / MIB
    stored = sum(path.stat().st_size for path in (tmp_path / "store" / "commitlog").iterdir())
    assert stored > 1.5 * ADDRESS_SPACE_BYTES
    broker.stop_broker()
