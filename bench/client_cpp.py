"""One workload of bench/client.py with the C++ client's wheel, in an interpreter that has it.

Arguments: the name server's HOST:PORT, a topic, the workload. Lines of standard input and results
are those of `client_peer.py`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer

BODY = "x" * 128


def print_rates(count: int, start_s: float, cpu_s: float) -> None:
    elapsed_s = time.perf_counter() - start_s
    cpu_us = (time.process_time() - cpu_s) / count * 1e6
    print(json.dumps({"per_s": count / elapsed_s, "cpu_us": cpu_us}), flush=True)


def produce(namesrv: str, topic: str) -> None:
    producer = Producer("bench")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    for line in sys.stdin:
        seconds = float(line.split()[0])
        start_s, cpu_s = time.perf_counter(), time.process_time()
        count = 0
        while time.perf_counter() - start_s < seconds:
            message = Message(topic)
            message.set_body(BODY)
            producer.send_sync(message)
            count += 1
        print_rates(count, start_s, cpu_s)


def consume(namesrv: str, topic: str) -> None:
    for line in sys.stdin:
        consume_once(namesrv, topic, int(line.split()[1]))


def consume_once(namesrv: str, topic: str, total: int) -> None:
    done = threading.Event()
    began: list[float] = []
    seen = [0]

    def take(_message: object) -> None:
        if not began:
            began.extend((time.perf_counter(), time.process_time()))
        seen[0] += 1
        if seen[0] >= total:
            done.set()

    consumer = PushConsumer(f"bench_{time.time_ns()}")
    consumer.set_namesrv_addr(namesrv)
    consumer.subscribe(topic, take)
    consumer.start()
    done.wait()
    print_rates(seen[0], *began)
    consumer.shutdown()


def main() -> None:
    namesrv, topic, workload = sys.argv[1:]
    if workload == "consume":
        consume(namesrv, topic)
    else:
        produce(namesrv, topic)
    # The client's threads would keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    main()
