"""Material of the tests: numbered messages, and filter classes that use the number."""

from __future__ import annotations

from collections.abc import Iterable

from trocket.interop.wire import Outgoing, WireClient, wait_for_route

TOPIC = "Numbers"
QUEUE_COUNT = 4
STEP = 5
"""The classes keep every fifth number."""
COUNT = 10_000
ROUTE_TIMEOUT_S = 60.0

KEEP_FIFTH = "trocket.check.KeepFifth"
KEEP_NONE = "trocket.check.KeepNone"
FIFTHS_BY_EXPRESSION = "trocket.check.FifthsByExpression"


def java_class(name: str, condition: str) -> str:
    """A filter class in Java.

    Args:
      name: its full name.
      condition: Java, of the int `number`.
    """
    package, _, simple = name.rpartition(".")
    return f"""package {package};

import org.apache.rocketmq.common.filter.FilterContext;
import org.apache.rocketmq.common.filter.MessageFilter;
import org.apache.rocketmq.common.message.MessageExt;

public class {simple} implements MessageFilter {{
    @Override
    public boolean match(MessageExt msg, FilterContext context) {{
        int number = Integer.parseInt(msg.getProperty("number"));
        return {condition};
    }}
}}
"""


KEEP_FIFTH_SOURCE = java_class(KEEP_FIFTH, f"number % {STEP} == 0")
KEEP_FIFTH_IN_PYTHON = f"""class KeepFifth:
    def match(self, message):
        return int(message.properties["number"]) % {STEP} == 0
"""
KEEP_NONE_SOURCE = java_class(KEEP_NONE, "number < 0")


def numbered(number: int, topic: str = TOPIC) -> Outgoing:
    """The message of a number.

    Each five in a row go to one queue, so that a queue whose numbers fall ends with one that is
    kept: a consumer that has that one has passed all before it.
    """
    # The expression of `filterClassesFile` cannot divide: it uses another property.
    properties = f"number\x01{number}\x02rest\x01{number % STEP}\x02KEYS\x01{number}\x02"
    return Outgoing(topic, number // STEP % QUEUE_COUNT, str(number).encode(), properties)


def send_numbers(
    namesrv_address: str, broker_address: str, count: int = COUNT, *, topic: str = TOPIC
) -> None:
    """Create a topic, and send numbers down to 0. Raises: PeerError: one was refused."""
    with WireClient(broker_address) as wire:
        wire.create_topic(topic, queue_count=QUEUE_COUNT)
        wire.send_all(numbered(number, topic) for number in reversed(range(count)))
    wait_for_route(namesrv_address, topic, timeout_s=ROUTE_TIMEOUT_S)


def fifths(numbers: Iterable[int]) -> set[int]:
    """Those that KEEP_FIFTH keeps."""
    return {number for number in numbers if number % STEP == 0}
