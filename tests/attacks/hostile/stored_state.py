"""State that clients have created in a broker, and an estimate of its memory.

The costs are what the anonymous memory of a broker grew by when 10,000 topics, 10,000 queues of one
message, 100,000 half messages and 70,000 timers were made in it, and a little more for what the
growth of tables leaves behind. A process that takes more than these, the budget of its connections
and its own has a leak.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from trocket.common.topic_names import TIMER_TOPIC, TRANS_HALF_TOPIC
from trocket.interop.wire import WireClient


class Kind(NamedTuple):
    """A kind of state: the number of them, and the bytes that each takes."""

    number: int
    bytes_each: int


TOPIC_BYTES: Final = 1_600
"""A topic's configuration, its line of topics.json, its registration. Measured: 1,490."""
QUEUE_BYTES: Final = 1_700
"""A queue that has messages. Measured: 1,570."""
GROUP_BYTES: Final = 1_000
"""A consumer group's configuration and offsets; its retry topic counts as a topic."""
HALF_MESSAGE_BYTES: Final = 48
"""A half message, while its transaction is open. Measured: 38."""
TIMER_BYTES: Final = 48
"""A timer message; 33 measured where many are due at once. One that is alone in its second takes
350, but the attacks' are due within ten minutes."""


def stored_state(address: str, store: Path) -> dict[str, Kind]:
    """The current state of a broker.

    Finished half messages and timers are counted, too: the attacks finish none.

    Args:
      address: HOST:PORT of the broker.
      store: its data folder.
    Raises: PeerError: the broker does not answer.
    """
    with WireClient(address) as client:
        return {
            "topics": Kind(len(client.topics()), TOPIC_BYTES),
            "queues": Kind(sum(1 for _ in store.glob("consumequeue/*/*")), QUEUE_BYTES),
            "groups": Kind(len(client.groups()), GROUP_BYTES),
            "half messages": Kind(client.max_offset(TRANS_HALF_TOPIC, 0), HALF_MESSAGE_BYTES),
            "timers": Kind(client.max_offset(TIMER_TOPIC, 0), TIMER_BYTES),
        }


def size_of(state: dict[str, Kind]) -> int:
    """The estimated memory of the state in bytes."""
    return sum(kind.number * kind.bytes_each for kind in state.values())
