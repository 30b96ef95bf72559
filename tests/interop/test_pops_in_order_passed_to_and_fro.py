"""Messages popped in order stay with their consumer when the store passes to the other broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from trocket.common.clock import SystemClock
from trocket.interop.apache import ApacheCluster
from trocket.interop.maven import fetch_jars
from trocket.interop.store_round_trip import KEEP_ALL, apache_on_store
from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.wire import Answer, Outgoing, WireClient
from trocket.remoting.receipt import ORDER_REVIVE_QUEUE

pytestmark = [pytest.mark.interop, pytest.mark.slow]

POP, ACK, CHANGE = 200050, 200051, 200053
SUCCESS, MESSAGE_ILLEGAL, POLLING_TIMEOUT = 0, 13, 210

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 400}
INVISIBLE_MS: Final = 600_000
DEADLINE_S: Final = 60.0
FILE: Final = "config/consumerOrderInfo.json"


class Popped(NamedTuple):
    """The answer to a pop in order of T/0.

    Attributes:
      counts: orderCountInfo.
      receipt: of each message, but for its offset.
    """

    code: int
    offsets: list[int]
    counts: str
    receipt: str


class Consumer:
    """Pops T/0 in order for the group G by hand."""

    def __init__(self, address: str) -> None:
        self.client = WireClient(address)

    def pop(
        self, attempt: str, *, count: int = 2, invisible_ms: int = INVISIBLE_MS, poll_ms: int = 0
    ) -> Popped:
        fields: dict[str, object] = {
            "consumerGroup": "G", "topic": "T", "queueId": 0, "maxMsgNums": count,
            "invisibleTime": invisible_ms, "pollTime": poll_ms, "bornTime": SystemClock().wall_ms(),
            "initMode": 0, "order": True, "attemptId": attempt,
        }  # fmt: skip
        answer = self.client.call(POP, fields)
        found = answer.fields
        if answer.code != SUCCESS:
            return Popped(answer.code, [], "", "")
        assert found["reviveQid"] == str(ORDER_REVIVE_QUEUE)
        form, queue, start = found["startOffsetInfo"].split(" ")
        assert (form, queue) == ("0", "0")
        offsets = [int(each) for each in found["msgOffsetInfo"].split(" ")[2].split(",")]
        receipt = f"{start} {found['popTime']} {found['invisibleTime']} {ORDER_REVIVE_QUEUE} 0 b 0"
        return Popped(answer.code, offsets, found["orderCountInfo"], receipt)

    def ack(self, receipt: str, offset: int) -> int:
        return self._of_message(ACK, receipt, offset).code

    def change(self, receipt: str, offset: int, invisible_ms: int) -> Answer:
        return self._of_message(CHANGE, receipt, offset, invisibleTime=invisible_ms)

    def _of_message(self, code: int, receipt: str, offset: int, **more: object) -> Answer:
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": 0, "offset": offset,
            "extraInfo": f"{receipt} {offset}",
        }  # fmt: skip
        return self.client.call(code, fields | more)


def blocked(consumer: Consumer, attempt: str) -> bool:
    return consumer.pop(attempt).code == POLLING_TIMEOUT


def until_popped(consumer: Consumer, attempt: str) -> Popped:
    """The first pop that finds something: Apache's broker indexes what is stored a moment later."""
    deadline_s = time.monotonic() + DEADLINE_S
    pause = threading.Event()
    while True:
        popped = consumer.pop(attempt)
        if popped.code == SUCCESS or time.monotonic() > deadline_s:
            return popped
        pause.wait(0.05)


def first_broker(address: str) -> Popped:
    """Pop two messages of six, acknowledge one; return the pop."""
    consumer = Consumer(address)
    with consumer.client as client:
        client.create_topic("T", queue_count=1)
        client.send_all([Outgoing("T", 0, b"%d" % number) for number in range(6)], together=6)
        popped = until_popped(consumer, "a")
        assert (popped.offsets, popped.counts) == ([0, 1], "0 0 0")
        assert blocked(consumer, "b")
        assert consumer.ack(popped.receipt, 0) == SUCCESS
        assert blocked(consumer, "b")
    return popped


def other_broker(address: str, popped: Popped) -> Popped:
    """Go on where the other broker stopped; leave a changed message behind."""
    consumer = Consumer(address)
    with consumer.client:
        assert blocked(consumer, "b")
        assert consumer.ack(popped.receipt, 5) == MESSAGE_ILLEGAL
        again = consumer.pop("a")  # as if the answer had been lost
        assert (again.offsets, again.counts) == ([1, 2], "0 0 0")
        assert consumer.ack(popped.receipt, 1) == SUCCESS  # of the earlier pop: ignored
        assert blocked(consumer, "b")
        assert consumer.ack(again.receipt, 1) == SUCCESS
        changed = consumer.change(again.receipt, 2, 1_000)
        assert changed.code == SUCCESS
        third = until_popped(consumer, "c")
        assert (third.offsets, third.counts) == ([2, 3], "0 qo0%2 1;0 0 0")
        changed = consumer.change(third.receipt, 3, 2 * INVISIBLE_MS)
        assert changed.fields["popTime"] == third.receipt.split(" ")[1]
        assert int(changed.fields["invisibleTime"]) >= 2 * INVISIBLE_MS
        assert consumer.ack(third.receipt, 2) == SUCCESS
    return third


def last_broker(address: str, popped: Popped) -> None:
    """Go on again, to the end of the queue."""
    consumer = Consumer(address)
    with consumer.client:
        assert blocked(consumer, "d")
        assert consumer.change(popped.receipt, 3, 500).code == SUCCESS
        again = until_popped(consumer, "d")
        assert (again.offsets, again.counts) == ([3, 4], "0 qo0%3 1;0 0 0")
        for offset in again.offsets:
            assert consumer.ack(again.receipt, offset) == SUCCESS
        end = until_popped(consumer, "e")
        assert end.offsets == [5]
        assert consumer.ack(end.receipt, 5) == SUCCESS
        assert blocked(consumer, "f")


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    "order", ["ours first", pytest.param("apache first", marks=pytest.mark.matrix)]
)
def test_a_block_its_attempt_and_its_counts_pass_to_the_other_broker(
    tmp_path: Path, order: str
) -> None:
    fetch_jars("5.5.0", "server")
    store = tmp_path / "store"
    ours = TrocketBroker(tmp_path / "ours", store=store, broker_keys={**SIZES, **KEEP_ALL})
    apaches = apache_on_store("5.5.0", tmp_path / "apaches", store, SIZES)
    brokers: Sequence[TrocketBroker | ApacheCluster] = (ours, apaches)
    first, second = brokers if order == "ours first" else reversed(brokers)
    try:
        first.start_broker()
        popped = first_broker(first.broker_address)
        first.stop_broker()
        assert '"T@G"' in (store / FILE).read_text()
        second.start_broker()
        popped = other_broker(second.broker_address, popped)
        second.stop_broker()
        first.start_broker()
        last_broker(first.broker_address, popped)
        first.stop_broker()
    finally:
        ours.close()
        apaches.close()
