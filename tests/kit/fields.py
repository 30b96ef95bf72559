"""Headers and bodies of requests to a broker, as a plain client or administrator sends them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from .clock import START_MS

SEND_NAMES: Final = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch",
}  # fmt: skip
"""The names of SEND_MESSAGE_V2 and those of SEND_MESSAGE."""


def send_fields(topic: str = "T", queue_id: int = 0, **more: object) -> dict[str, object]:
    """The header of SEND_MESSAGE_V2."""
    fields: dict[str, object] = {
        "a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": START_MS,
        "h": 0, "i": "UNIQ_KEY\x010123456789ABCDEF\x02", "j": 0, "k": "false", "m": "false",
    }  # fmt: skip
    return fields | more


def long_names(fields: Mapping[str, object]) -> dict[str, object]:
    """The header of SEND_MESSAGE with the values of one of SEND_MESSAGE_V2."""
    return {SEND_NAMES[name]: value for name, value in fields.items()}


def topic_fields(topic: str = "T", queue_count: int = 1, **more: object) -> dict[str, object]:
    """The header of UPDATE_AND_CREATE_TOPIC."""
    fields: dict[str, object] = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queue_count,
        "writeQueueNums": queue_count, "perm": 6, "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }  # fmt: skip
    return fields | more


def pull_fields(topic: str = "T", queue_id: int = 0, **more: object) -> dict[str, object]:
    """The header of PULL_MESSAGE: subscription given, everything, held for 15 s."""
    fields: dict[str, object] = {
        "consumerGroup": "CG", "topic": topic, "queueId": queue_id, "queueOffset": 0,
        "maxMsgNums": 32, "sysFlag": 2 | 4, "commitOffset": 0, "suspendTimeoutMillis": 15_000,
        "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    return fields | more


def heartbeat(
    group: str,
    *subscriptions: Mapping[str, object],
    client_id: str = "c",
    producers: Iterable[str] = (),
    **more: object,
) -> bytes:
    """The body of HEART_BEAT of a push consumer.

    Args:
      subscriptions: made by `subscribed`.
      producers: further groups of the client.
      more: further fields of the group.
    """
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": subscriptions,
    }  # fmt: skip
    data = {"clientID": client_id, "consumerDataSet": [consumer | more]}
    data["producerDataSet"] = [{"groupName": name} for name in producers]
    return json.dumps(data).encode()


def subscribed(topic: str = "T", expression: str = "*", **more: object) -> dict[str, object]:
    """A subscription of `heartbeat`: by tags, of which no code is given."""
    fields: dict[str, object] = {
        "topic": topic, "subString": expression, "subVersion": 1, "expressionType": "TAG",
        "classFilterMode": False, "tagsSet": [], "codeSet": [],
    }  # fmt: skip
    return fields | more
