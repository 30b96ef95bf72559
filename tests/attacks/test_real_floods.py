"""Floods by real sockets on a broker's process, with a well-behaved client beside them."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import pytest

from trocket.bench.floods import FLOODS
from trocket.interop.process import LineProcess
from trocket.interop.trocket_peer import TrocketPair
from trocket.interop.usage import anonymous_bytes

from .raw_client import RawClient

MIB = 1 << 20
TOPIC = "Honest"
SECONDS = 2.0
"""Of each flood."""
P99_MAX_S = 2.0
"""Of the honest client's sends: docs/security.md states 0.5 s on two cores with nothing else to do,
and tests run beside others."""
MEMORY_MAX = 300 * MIB
"""Of the broker: 64 MiB of remotingBytesMax, its own, and what the floods create."""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and 127.0.0.66")
def test_an_honest_client_is_served_during_all_floods_and_loses_nothing(tmp_path: Path) -> None:
    pair = TrocketPair(
        tmp_path / "pair",
        broker_keys={
            "mappedFileSizeCommitLog": 16 * MIB,
            "remotingBytesMax": 64 * MIB,
            "limitExemptAddresses": "127.0.0.1",
        },
    )
    times_s: list[float] = []
    bodies: list[bytes] = []
    memory, pace = 0, threading.Event()
    try:
        pair.start_namesrv()
        pair.start_broker()
        with RawClient(pair.broker_address) as client:
            assert client.send(TOPIC, 0, b"%016d" % 0)[0] == 0
            bodies.append(b"%016d" % 0)
            attacks = start_attacks(pair, tmp_path)
            while not (lines := finished(attacks)):
                body = b"%016d" % len(bodies)
                began_s = time.monotonic()
                code, _, _, remark = client.send(TOPIC, 0, body)
                times_s.append(time.monotonic() - began_s)
                assert code == 0, remark
                bodies.append(body)
                pace.wait(0.01)
                if len(bodies) % 100 == 0:
                    memory = max(memory, anonymous_bytes(pair.pids[0]))
            attacks.stop()
            rounds = json.loads(lines)
        pair.kill_broker()
        pair.start_broker()
        with RawClient(pair.broker_address) as client:
            found = client.pull_all(TOPIC, 0)[1]
        log = (tmp_path / "pair" / "broker.err").read_text()
    finally:
        pair.close()
    assert set(bodies) <= set(found.values())
    assert set(rounds) == {flood.name for flood in FLOODS}
    times_s.sort()
    assert times_s[int((len(times_s) - 1) * 0.99)] < P99_MAX_S
    assert memory < MEMORY_MAX
    assert "connectionsPerAddressMax" in log
    assert "autoCreateTopicsPerMinute" in log
    assert "autoCreateGroupsPerMinute" in log
    assert "Traceback" not in log


def start_attacks(pair: TrocketPair, folder: Path) -> LineProcess:
    """Start the floods, one after the other."""
    command = [
        sys.executable, "-m", "trocket.bench.attacks", "--broker", pair.broker_address,
        "--namesrv", pair.namesrv_address, "--ha", pair.broker_address, "--victim", TOPIC,
        "--queues", "1", "--seconds", str(SECONDS), "--in-turn",
    ]  # fmt: skip
    command += [text for flood in FLOODS for text in ("--only", flood.name)]
    return LineProcess(command, folder=folder, name="attacks")


def finished(attacks: LineProcess) -> str:
    """The last line of the attacks; "" while they run."""
    line = (attacks.folder / "attacks.out").read_text().rstrip("\n").rpartition("\n")[2]
    return line if line.startswith("{") and "begin_s" not in line and "end_s" not in line else ""
