"""N7: look-ups by key, by id and by time agree with the queues."""

from __future__ import annotations

from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_messages

from ..broken import Broken
from .oracle import Oracle
from .peers import QUEUES, TOPIC, Observer

QUERY, SEARCH, VIEW = 12, 29, 33
SAMPLE = 4
"""Messages of a queue that are looked up, the newest of them."""


async def check_lookups(observer: Observer, oracle: Oracle, until_ms: int) -> None:
    """Look some messages up in each way. Raises: Broken.

    Args:
      until_ms: of later messages none is asked for: one that no client awaits, as a timer message
        whose send had no answer, may have come this very moment and has no entry by its key yet.
    """
    for queue_id in range(QUEUES):
        log = oracle.log[TOPIC, queue_id]
        old = [offset for offset, each in log.items() if each.store_timestamp_ms <= until_ms]
        for offset in sorted(old)[-SAMPLE:]:
            await _by_id(observer, log[offset])
            await _by_key(observer, log[offset])
            await _by_time(observer, log, log[offset])


async def _by_id(observer: Observer, message: MessageExt) -> None:
    answer = await observer.ask(VIEW, {"offset": message.physical_offset})
    if answer is None or answer.code != 0 or decode_messages(answer.body) != [message]:
        raise Broken("N7", f"{message.body!r} is not found by its id: {answer}")


async def _by_key(observer: Observer, message: MessageExt) -> None:
    fields = {
        "topic": TOPIC, "key": message.unique_key, "maxNum": 32, "beginTimestamp": 0,
        "endTimestamp": 1 << 60, "_UNIQUE_KEY_QUERY": "true",
    }  # fmt: skip
    answer = await observer.ask(QUERY, fields)
    if answer is None or answer.code != 0 or message not in decode_messages(answer.body):
        raise Broken("N7", f"{message.body!r} is not found by its key: {answer}")


async def _by_time(observer: Observer, log: dict[int, MessageExt], message: MessageExt) -> None:
    time_ms = message.store_timestamp_ms
    first = min(offset for offset, each in log.items() if each.store_timestamp_ms >= time_ms)
    fields = {"topic": TOPIC, "queueId": message.queue_id, "timestamp": time_ms}
    answer = await observer.ask(SEARCH, fields)
    if answer is None or answer.ext_fields.get("offset") != str(first):
        raise Broken("N7", f"{message.body!r} is not found by its time, at {first}: {answer}")
