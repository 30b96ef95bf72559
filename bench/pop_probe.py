"""A client whose pop waits while it sends: the times until its messages are acknowledged.

    python -m trocket.bench.pop_probe 127.0.0.1:10911 --seconds 10

It prints the seconds of each part of its cycles as JSON. It is a separate process, because
`pop_crowd.py` measures it beside thousands of other pops, which would delay it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Annotated

import trio
import typer

from trocket.bench.crowd import PROPERTIES, QUEUES, Peer
from trocket.bench.frames import send_fields
from trocket.client.errors import ClientError
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.receipt import (
    POP_COUNT_MAX,
    Receipt,
    decode_offsets,
    decode_start_offsets,
)
from trocket.remoting.request_codes import RequestCode as Code

TOPIC, GROUP = "Probe", "probe"
POLL_MS = 15_000
"""As Java's push consumers ask."""
BODY = bytes(128)
RATE_PER_S = 50.0
"""Cycles: three requests each, and enough for a p99 over some seconds."""
WARM_UP_S = 1.0
DEADLINE_S = 60.0
BROKER_NAME = "broker-a"


@dataclass
class Times:
    """The seconds of each part of the probe's cycles."""

    cycles: list[float] = field(default_factory=list)
    sends: list[float] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    acks: list[float] = field(default_factory=list)


def pop_fields(
    group: str, topic: str, *, poll_ms: int, invisible_ms: int = 60_000, queue_id: int = -1
) -> dict[str, str]:
    """The fields of a POP_MESSAGE of 32 messages at most, without a filter."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": str(queue_id),
        "maxMsgNums": str(POP_COUNT_MAX), "invisibleTime": str(invisible_ms),
        "pollTime": str(poll_ms), "bornTime": str(time.time_ns() // 1_000_000),
        "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip


def ack_fields(group: str, topic: str, answer: RemotingCommand) -> list[dict[str, str]]:
    """The fields of the ACK_MESSAGEs for the messages of a pop's answer."""
    fields = answer.ext_fields
    starts = decode_start_offsets(fields["startOffsetInfo"])
    found = []
    for key, offsets in decode_offsets(fields["msgOffsetInfo"]).items():
        for offset in offsets:
            receipt = Receipt(
                starts[key], int(fields["popTime"]), int(fields["invisibleTime"]),
                int(fields["reviveQid"]), key.form, BROKER_NAME, key.queue_id, offset,
            )  # fmt: skip
            found.append(
                {
                    "consumerGroup": group,
                    "topic": key.form.real_topic(topic, group),
                    "queueId": str(key.queue_id),
                    "extraInfo": receipt.to_text(),
                    "offset": str(offset),
                }
            )
    return found


class Probe:
    """One client whose pop waits while it sends: a cycle is send, pop, acknowledgement."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._number = 0

    async def run(self, seconds: float) -> Times:
        """Run cycles at RATE_PER_S. Raises: RuntimeError: the broker refused something."""
        times = Times()
        begin_s = time.perf_counter()
        count = 0
        while (now_s := time.perf_counter()) < begin_s + seconds:
            due_s = begin_s + count / RATE_PER_S
            if due_s > now_s:
                await trio.sleep(due_s - now_s)
            count += 1
            await self._cycle(times)
        return times

    async def _cycle(self, times: Times) -> None:
        group, topic = GROUP, TOPIC
        self._number += 1
        popped: list[RemotingCommand | ClientError] = []
        came = trio.Event()
        came_s = 0.0

        def take(answer: RemotingCommand | ClientError) -> None:
            nonlocal came_s
            popped.append(answer)
            came_s = time.perf_counter()
            came.set()

        pop = RemotingCommand(Code.POP_MESSAGE, pop_fields(group, topic, poll_ms=POLL_MS), b"")
        self._peer.submit(pop, take)
        fields = send_fields(group, topic, self._number % QUEUES, PROPERTIES.format(self._number))
        start_s = time.perf_counter()
        answer = await self._peer.ask(Code.SEND_MESSAGE_V2, fields, BODY)
        sent_s = time.perf_counter()
        if answer.code:
            raise RuntimeError(f"the probe's send was refused: {answer.remark}")
        with trio.fail_after(DEADLINE_S):
            await came.wait()
        answer = answer_of(popped[0])
        if answer.code:
            raise RuntimeError(f"the probe's pop was answered {answer.code}: {answer.remark}")
        ack_s = time.perf_counter()
        for ack in ack_fields(group, topic, answer):
            acked = await self._peer.ask(Code.ACK_MESSAGE, ack)
            if acked.code:
                raise RuntimeError(f"the probe's ack was refused: {acked.remark}")
        end_s = time.perf_counter()
        times.cycles.append(end_s - start_s)
        times.sends.append(sent_s - start_s)
        times.arrivals.append(max(came_s - sent_s, 0.0))
        times.acks.append(end_s - ack_s)


def answer_of(answer: RemotingCommand | ClientError) -> RemotingCommand:
    """An answer. Raises: ClientError: there is none."""
    if isinstance(answer, ClientError):
        raise answer
    return answer


async def probe(address: str, seconds: float) -> Times:
    """Warm up, and measure."""
    async with trio.open_nursery() as nursery:
        one = Probe(await Peer.connect(address, nursery))
        await one.run(WARM_UP_S)
        times = await one.run(seconds)
        nursery.cancel_scope.cancel()
    return times


def main(
    address: Annotated[str, typer.Argument(help="HOST:PORT of the broker.")],
    seconds: Annotated[float, typer.Option(min=1, help="Measure for this time.")] = 10.0,
) -> None:
    """Measure the cycles of one client that pops."""
    print(json.dumps(asdict(trio.run(probe, address, seconds))))


if __name__ == "__main__":
    typer.run(main)
