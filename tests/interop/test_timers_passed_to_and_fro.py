"""Pending timer messages are delivered once by the broker with the store: ours, Apache's, ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from trocket.common.clock import SystemClock
from trocket.interop.maven import fetch_jars
from trocket.interop.store_round_trip import KEEP_ALL, apache_on_store
from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.wire import Outgoing, WireClient
from trocket.remoting.message_codec import decode_record

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SIZES = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 400}
DEADLINE_S = 90.0


def timer(name: str, delay_s: float) -> Outgoing:
    deliver_ms = SystemClock().wall_ms() + int(delay_s * 1000)
    properties = f"UNIQ_KEY\x01{name:0>32}\x02TIMER_DELIVER_MS\x01{deliver_ms}\x02"
    return Outgoing("T", 0, name.encode(), properties)


def wait_for(client: WireClient, names: Iterable[str]) -> list[str]:
    """All that is delivered, once these are."""
    deadline_s = time.monotonic() + DEADLINE_S
    pause = threading.Event()
    while True:
        found = [decode_record(record).body.decode() for record in client.pull_all("g", "T", 0)]
        if set(names) <= set(found) or time.monotonic() > deadline_s:
            return found
        pause.wait(0.2)


@pytest.mark.matrix
@pytest.mark.usefixtures("java")
def test_each_broker_delivers_what_the_other_left_waiting(tmp_path: Path) -> None:
    fetch_jars("5.5.0", "server")
    store = tmp_path / "store"
    ours = TrocketBroker(tmp_path / "ours", store=store, broker_keys={**SIZES, **KEEP_ALL})
    apaches = apache_on_store("5.5.0", tmp_path / "apaches", store, SIZES)
    try:
        ours.start_broker()
        with WireClient(ours.broker_address) as client:
            client.create_topic("T", queue_count=1)
            # The last one is due when Apache's broker starts; the one before, usually, after that.
            client.send_all([timer("a", 1), timer("c", 30), timer("b", 12)], together=1)
            assert wait_for(client, "a") == ["a"]
        ours.stop_broker()
        apaches.start_broker()
        with WireClient(apaches.broker_address) as client:
            client.send_all([timer("d", 32)], together=1)
            assert wait_for(client, "b")[:2] == ["a", "b"]
        apaches.stop_broker()
        ours.start_broker()
        with WireClient(ours.broker_address) as client:
            assert sorted(wait_for(client, "cd")) == ["a", "b", "c", "d"]
        ours.stop_broker()
    finally:
        ours.close()
        apaches.close()
