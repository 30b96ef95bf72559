"""Orderly members join and leave as processes: no message is handled by two of them at once."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trocket import Message
from trocket.blocking import Producer
from trocket.interop.process import LineProcess
from trocket.testing import Broker

PROGRAM = Path(__file__).with_name("orderly_member.py")
KINDS = ("async", "cancelled", "closed", "thread", "blocking")
QUEUES = 6
JOINS = 20
MEMBERS_MAX = 3
STAY_S = 1.0
"""How long a member handles messages before the next one joins."""
START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 15.0
CATCH_UP_S = 30.0
SEND_S = 0.1


@contextmanager
def sending(broker: Broker, topic: str) -> Iterator[list[str]]:
    """Send all the time during a `with` block; yields what is confirmed."""
    is_over = threading.Event()
    confirmed: list[str] = []

    def send() -> None:
        with Producer(broker.url) as producer:
            while not is_over.wait(SEND_S):
                body = str(len(confirmed))
                producer.send(Message(topic, body))
                confirmed.append(body)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield confirmed
    finally:
        is_over.set()
        sender.join()


def overlaps(lines: list[str]) -> list[str]:
    """The handlers that began while another one had a message of the same queue."""
    running: dict[str, dict[str, str]] = defaultdict(dict)
    found = []
    for line in sorted(lines, key=lambda each: int(each.split()[1])):
        word, at_ns, queue, offset, pid = line.split()
        if word == "end":
            del running[queue][f"{pid} {offset}"]
            continue
        others = [each for each in running[queue] if not each.startswith(f"{pid} ")]
        found += [
            f"at {at_ns}: {pid} has {offset} of queue {queue} beside {other}" for other in others
        ]
        running[queue][f"{pid} {offset}"] = at_ns
    return found


def test_overlaps_are_seen() -> None:
    assert overlaps(["begin 1 0 5 a", "end 3 0 5 a", "begin 4 0 5 b", "end 5 0 5 b"]) == []
    assert len(overlaps(["begin 1 0 5 a", "end 3 0 5 a", "begin 2 0 5 b", "end 5 0 5 b"])) == 1


@pytest.mark.matrix
@pytest.mark.slow
def test_members_that_join_and_leave_share_no_message_at_once(
    broker: Broker, group: str, tmp_path: Path
) -> None:
    seed = random.randrange(10_000)
    print(f"seed {seed}")
    chosen = random.Random(seed)
    topic = f"T_{group}"
    broker.create_topic(topic, queues=QUEUES)
    log = tmp_path / "log"
    members: list[LineProcess] = []
    ended = 0
    try:
        with sending(broker, topic) as confirmed:
            for number in range(JOINS):
                command = [sys.executable, str(PROGRAM), chosen.choice(KINDS)]
                members.append(
                    LineProcess(
                        [*command, broker.url, topic, group, str(log)],
                        folder=tmp_path,
                        name=f"member-{number}",
                    )
                )
                members[-1].wait_line(lambda line: line == "ready", timeout_s=START_TIMEOUT_S)
                threading.Event().wait(STAY_S)
                while len(members) > chosen.randint(1, MEMBERS_MAX):
                    leaving = members.pop(chosen.randrange(len(members)))
                    assert leaving.stop(timeout_s=END_TIMEOUT_S) == 0, leaving.tail()
                    ended += 1
        end_s = time.monotonic() + CATCH_UP_S
        while broker.lag(group, topic) and time.monotonic() < end_s:
            threading.Event().wait(0.1)
        for leaving in members:
            assert leaving.stop(timeout_s=END_TIMEOUT_S) == 0, leaving.tail()
    finally:
        for member in members:
            member.kill()
    lines = log.read_text().splitlines()
    assert overlaps(lines) == []
    handled = {(queue, offset) for _, _, queue, offset, _ in map(str.split, lines)}
    assert len(handled) >= len(confirmed) > 100
    assert ended >= JOINS - MEMBERS_MAX
