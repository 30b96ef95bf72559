"""How late a message returns whose acknowledgement was lost; for `bench/pop.py`.

Messages are sent a quarter of a second apart, so that they become due at any moment of the broker's
rounds. A consumer pops them in a long poll and does not acknowledge; it notes for each how long
after its invisible time it comes again.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

from trocket.bench.frames import POP_MESSAGE, pop_fields
from trocket.interop.wire import Outgoing, WireClient, split_records
from trocket.remoting.message_codec import decode_record

INVISIBLE_MS: Final = 5_000
POLL_MS: Final = 5_000
SEND_INTERVAL_S: Final = 0.25
GIVE_UP_S: Final = 60.0
"""After the last send."""


def measure_delays(address: str, *, group: str, messages: int) -> list[float]:
    """Delays in seconds after the invisible times, in ascending order.

    Args:
      address: HOST:PORT of the broker.
      group: without earlier runs; so is the topic of its name.

    Raises: TimeoutError: a message did not return in a minute. PeerError, OSError.
    """
    with (
        WireClient(address) as producer,
        WireClient(address) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        producer.create_topic(group, queue_count=4)
        popping = pool.submit(_pop_until_all_returned, consumer, group, messages)
        for number in range(messages):
            wait([popping], SEND_INTERVAL_S)
            producer.send_all([Outgoing(group, number % 4, b"%d" % number)])
        return sorted(popping.result())


def _pop_until_all_returned(consumer: WireClient, group: str, messages: int) -> list[float]:
    """The delays of all messages, none of which is acknowledged."""
    due_ms: dict[bytes, int] = {}
    delays_s: list[float] = []
    end_s = time.monotonic() + messages * SEND_INTERVAL_S + GIVE_UP_S
    while len(delays_s) < messages:
        fields = pop_fields(group, group, poll_ms=POLL_MS, invisible_ms=INVISIBLE_MS)
        answer = consumer.call(POP_MESSAGE, fields)
        now_ms = time.time_ns() / 1e6
        for record in split_records(answer.body):
            message = decode_record(record)
            if message.reconsume_times == 0:
                due_ms[message.body] = int(answer.fields["popTime"]) + INVISIBLE_MS
            elif message.reconsume_times == 1 and message.body in due_ms:
                delays_s.append((now_ms - due_ms.pop(message.body)) / 1000)
        if time.monotonic() > end_s:
            raise TimeoutError(f"{len(delays_s)} of {messages} messages returned in a minute")
    return delays_s
