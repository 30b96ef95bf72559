"""A send that is checked and not stored: it names a queue that no topic has.

Source: RocketMQ MixAll.SELF_TEST_PRODUCER_GROUP.
"""

from __future__ import annotations

from typing import Final

PRODUCER_GROUP: Final = "SELF_TEST_P_GROUP"

NO_QUEUE: Final = 2**31 - 1
"""A queue that no topic has; the largest number of the protocol's field."""


def probe_fields(topic: str) -> dict[str, str]:
    """The fields, as clients send them, of a send to a queue that no topic has."""
    return {
        "producerGroup": PRODUCER_GROUP,
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(NO_QUEUE),
        "sysFlag": "0",
        "bornTimestamp": "0",
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
    }
