"""A client whose pop waits while it sends: the times until its messages are acknowledged.

    python -m trocket.bench.pop_probe 127.0.0.1:10911 --seconds 10

It prints the seconds of each part of its cycles as JSON. It is a separate process, because
`crowd.py` measures it beside thousands of other pops, which would delay it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Annotated, Final

import typer

from trocket.bench.frames import POP_MESSAGE, pop_fields
from trocket.interop.wire import Outgoing, WireClient
from trocket.remoting.receipt import Receipt, decode_offsets, decode_start_offsets

ACK_MESSAGE: Final = 200051
TOPIC, GROUP = "Probe", "probe"
QUEUES = 4
POLL_MS = 15_000
"""As Java's push consumers ask."""
BODY = bytes(128)
RATE_PER_S = 50.0
"""Cycles: three requests each, and enough for a p99 over some seconds."""
WARM_UP_S = 1.0
TIMEOUT_S = 60.0
BROKER_NAME = "broker-a"


@dataclass
class Times:
    """The seconds of each part of the probe's cycles."""

    cycles: list[float] = field(default_factory=list)
    sends: list[float] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    acks: list[float] = field(default_factory=list)


def ack_fields(fields: dict[str, str]) -> list[dict[str, object]]:
    """The fields of an ACK_MESSAGE for each message of a pop's answer with these fields."""
    starts = decode_start_offsets(fields["startOffsetInfo"])
    return [
        {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": key.queue_id,
            "extraInfo": Receipt(
                starts[key], int(fields["popTime"]), int(fields["invisibleTime"]),
                int(fields["reviveQid"]), key.form, BROKER_NAME, key.queue_id, offset,
            ).to_text(),
            "offset": offset,
        }
        for key, offsets in decode_offsets(fields["msgOffsetInfo"]).items()
        for offset in offsets
    ]  # fmt: skip


def cycle(wire: WireClient, number: int, times: Times) -> None:
    """Ask for a message, send one, and acknowledge it when it comes. Raises: PeerError."""
    popping = wire.send_request(POP_MESSAGE, pop_fields(GROUP, TOPIC, poll_ms=POLL_MS))
    start_s = time.perf_counter()
    wire.start_send(Outgoing(TOPIC, number % QUEUES, BODY, f"UNIQ_KEY\x01{number:032X}\x02"))
    came_s: dict[bool, float] = {}
    popped: dict[str, str] = {}
    for _ in range(2):
        opaque, answer = wire.receive()
        came_s[opaque == popping] = time.perf_counter()
        if opaque == popping:
            popped = answer.checked().fields
        else:
            answer.checked()
    ack_s = time.perf_counter()
    for fields in ack_fields(popped):
        wire.call(ACK_MESSAGE, fields).checked()
    end_s = time.perf_counter()
    times.cycles.append(end_s - start_s)
    times.sends.append(came_s[False] - start_s)
    times.arrivals.append(max(came_s[True] - came_s[False], 0.0))
    times.acks.append(end_s - ack_s)


def run(wire: WireClient, seconds: float) -> Times:
    """Cycles at RATE_PER_S. Raises: PeerError: the broker refused something."""
    times = Times()
    begin_s = time.perf_counter()
    number = 0
    while (now_s := time.perf_counter()) < begin_s + seconds:
        time.sleep(max(begin_s + number / RATE_PER_S - now_s, 0.0))
        number += 1
        cycle(wire, number, times)
    return times


def main(
    address: Annotated[str, typer.Argument(help="HOST:PORT of the broker.")],
    seconds: Annotated[float, typer.Option(min=1, help="Measure for this time.")] = 10.0,
) -> None:
    """Measure the cycles of one client that pops."""
    with WireClient(address, timeout_s=TIMEOUT_S) as wire:
        run(wire, WARM_UP_S)
        print(json.dumps(asdict(run(wire, seconds))))


if __name__ == "__main__":
    typer.run(main)
