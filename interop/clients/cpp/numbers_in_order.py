"""Sends numbers in order, or takes them in order, as a user of the C++ client's wheel.

Run by an interpreter that has the wheel and nothing of ours. Arguments and lines are those of
interop/clients/java/src/Numbers.java.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer
from rocketmq.exceptions import RocketMQException

RETRY_S = 0.05
TIMEOUT_MS = 3000

_printing = threading.Lock()


def say(line: str) -> None:
    with _printing:
        print(line, flush=True)


def of_key(key: int, count: int, message: Any, argument: Any) -> int:
    return key % count


def send(words: list[str], is_over: threading.Event) -> None:
    namesrv, topic, pause_ms, firsts = words
    numbers = [int(first) for first in firsts.split(",")]
    producer = Producer("chaos-cpp", timeout=TIMEOUT_MS)
    producer.set_namesrv_addr(namesrv)
    producer.start()
    say("ready")
    wait_s = 0.0
    while not is_over.wait(wait_s):
        wait_s = int(pause_ms) / 1000
        for key, number in enumerate(numbers):
            message = Message(topic)
            message.set_body(f"{key}:{number}")
            try:
                # Without tries of the library's: they would go to other queues.
                result = producer.send_orderly(
                    message, key, retry_times=0, queue_selector=partial(of_key, key)
                )
            except RocketMQException as error:
                say(f"failed {' '.join(str(error).split())}")
                wait_s = RETRY_S
                continue
            if result.status.name != "OK":
                say(f"failed {result.status.name}")
                wait_s = RETRY_S
                continue
            # The library does not say which queue it was.
            say(f"sent {key} {number} -1 {result.offset}")
            numbers[key] += 1


def take(words: list[str], is_over: threading.Event) -> None:
    namesrv, group, topics = words
    consumer = PushConsumer(group, orderly=True)
    consumer.set_namesrv_addr(namesrv)
    # Names that differ: otherwise two processes of a group would be one member of it.
    consumer.set_instance_name(f"{group}-{os.getpid()}")
    consumer.set_thread_count(1)

    def report(message: Any) -> None:
        place = f"{message.topic} {message.queue_id} {message.queue_offset}"
        say(f"took {place} {message.body.decode()}")

    for topic in topics.split(","):
        consumer.subscribe(topic, report)
    consumer.start()
    say("ready")
    is_over.wait()
    consumer.shutdown()


def main() -> None:
    is_over = threading.Event()

    def read() -> None:
        sys.stdin.buffer.readline()
        is_over.set()

    threading.Thread(target=read, daemon=True).start()
    (send if sys.argv[1] == "send" else take)(sys.argv[2:], is_over)
    say("done")
    # The library's threads do not end by themselves.
    os._exit(0)


if __name__ == "__main__":
    main()
