"""Memory taken by strangers' frames stayed with the process after they were gone: 215 MB of 35.

Once a block of 16 MiB was freed glibc takes the later ones out of its heap, and what is free in the
heap's middle is not given back.
"""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from trocket.common.allocator import TRIM_INTERVAL_S, Trimmer
from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.usage import anonymous_bytes
from trocket.remoting.codec import RemotingCommand, encode

from ..kit.waiting import wait_until

MIB = 1 << 20
LARGE, SMALL = 15 * MIB, 200_000
STRANGERS, SLOW_PEERS = 8, 3
GET_BROKER_RUNTIME_INFO = 28
DEADLINE_S = 3 * TRIM_INTERVAL_S


def half_frame(address: str, size: int) -> socket.socket:
    """A connection that was served once, and has sent a part of a frame of 16 MiB."""
    host, _, port = address.rpartition(":")
    connected = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
    connected.sendall(encode(RemotingCommand(GET_BROKER_RUNTIME_INFO)))
    connected.sendall(struct.pack(">ii", 16 * MIB - 1, 20) + bytes(size))
    return connected


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and glibc")
def test_the_memory_of_half_frames_goes_with_their_connections(tmp_path: Path) -> None:
    broker = TrocketBroker(
        tmp_path / "broker",
        store=tmp_path / "store",
        broker_keys={"mappedFileSizeCommitLog": 4 * MIB, "remotingBytesMax": 512 * MIB},
    )
    try:
        broker.start_broker()
        before = anonymous_bytes(broker.pids[0])
        address, (pid,) = broker.broker_address, broker.pids

        def grown() -> int:
            return anonymous_bytes(pid) - before

        with ExitStack() as slow:
            with half_frame(address, LARGE), half_frame(address, LARGE):
                wait_until(lambda: grown() > 28 * MIB, timeout_s=DEADLINE_S)
            wait_until(lambda: grown() < LARGE, timeout_s=DEADLINE_S)
            with ExitStack() as strangers:
                for number in range(1, STRANGERS + 1):
                    strangers.enter_context(half_frame(address, LARGE))
                    wait_until(
                        lambda least=number * 14 * MIB: grown() > least, timeout_s=DEADLINE_S
                    )
                    for _ in range(SLOW_PEERS):  # what lives longer lies behind what is freed
                        slow.enter_context(half_frame(address, SMALL))
            wait_until(lambda: grown() < 2 * LARGE, timeout_s=DEADLINE_S)
    finally:
        broker.close()


def test_the_heap_is_trimmed_when_much_was_given_back_and_not_too_often() -> None:
    trims: list[float] = []
    now_s = 0.0
    trimmer = Trimmer(lambda: trims.append(now_s))
    steps = [  # at, held, and the most since the last call
        (0, 0, 0), (1, 0, 90 * MIB), (2, 90 * MIB, 90 * MIB), (12, 75 * MIB, 90 * MIB),
        (13, 74 * MIB, 90 * MIB), (14, 0, 74 * MIB), (22, 0, 0), (24, 0, 0), (25, 0, 0),
        (40, 0, 15 * MIB),
    ]  # fmt: skip
    for now_s, held, held_max in steps:
        trimmer.note(held, held_max, now_s)
    assert trims == [1, 13, 24]
