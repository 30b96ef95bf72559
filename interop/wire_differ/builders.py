"""Builders shared by the scripts: names, headers of sends and pulls, bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Final

from ...common.java_hash import java_hash_code
from ...remoting.codec import RemotingCommand, SerializeType
from ...remoting.request_codes import RequestCode
from .normalise import Normaliser, clock, java_exception_text, physical_offsets
from .request import BodyKind, FieldValue, Request

BORN_MS: Final = 1_700_000_000_000
BROKER_NAME: Final = "broker-a"
CLUSTER: Final = "DefaultCluster"
WITH_SUBSCRIPTION: Final = 0x4
SUSPEND: Final = 0x2
COMMIT: Final = 0x1
"""Bits of a pull's sysFlag. Source: common/sysflag/PullSysFlag.java."""

STORED: Final[tuple[Normaliser, ...]] = (
    clock("body.*.store_timestamp_ms"),
    physical_offsets("body.*.physical_offset"),
)
"""For an answer with stored records."""

bad = partial(Request, erroneous=True)
"""A request that a server should refuse, or that asks for something missing."""
refused = partial(Request, erroneous=True, expect=1, normalisers=(java_exception_text(),))
"""A request that Apache answers with the text of a Java exception."""


class Names:
    """A generator of names that only one script uses, the same on both sides.

    Args:
      area: a short word for the script.
      header: part of the names, because each script is played with both kinds of header.
    """

    def __init__(self, area: str, header: SerializeType) -> None:
        self.prefix = f"wd-{area}-{header.name[0].lower()}"

    def __call__(self, name: str) -> str:
        return f"{self.prefix}-{name}"


def json_body(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def properties(**members: str) -> str:
    """Encoded properties of a message, with a separator at the end as 5.x writes it."""
    return "".join(f"{name}\x01{value}\x02" for name, value in members.items())


def unique_key(names: Names, number: int) -> str:
    """A unique key for a message: 32 hex digits."""
    return f"{abs(java_hash_code(names.prefix)):024X}{number:08X}"


def send_fields(topic: str, text: str, **changed: FieldValue) -> dict[str, FieldValue]:
    """The header of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE, whose field names are letters.

    Args:
      text: the message's encoded properties.
      changed: replaced or added fields.
    """
    return {
        "a": "wd-producers",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 0,
        "g": BORN_MS,
        "h": 0,
        "i": text,
        "j": 0,
        "k": False,
        "m": False,
        "n": BROKER_NAME,
        **changed,
    }


def send_fields_v1(topic: str, text: str, **changed: FieldValue) -> dict[str, FieldValue]:
    """The header of SEND_MESSAGE and SEND_REPLY_MESSAGE, whose field names are words."""
    return {
        "producerGroup": "wd-producers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": BORN_MS,
        "flag": 0,
        "properties": text,
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
        "bname": BROKER_NAME,
        **changed,
    }


def pull_fields(group: str, topic: str, **changed: FieldValue) -> dict[str, FieldValue]:
    """The header of a pull of all tags, answered at once."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": WITH_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        **changed,
    }


def create_topic(topic: str, name: str = "", **changed: FieldValue) -> Request:
    """A request that creates a topic of two queues."""
    name = name or f"make topic {topic.rsplit('-', 1)[-1]}"
    return Request(name, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, **changed))


def topic_fields(topic: str, **changed: FieldValue) -> dict[str, FieldValue]:
    """The header of UPDATE_AND_CREATE_TOPIC."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 2,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        **changed,
    }


def create_group(group: str, name: str = "", **members: object) -> Request:
    """A request that creates a group; `members` with their names in the JSON body."""
    name = name or f"make group {group.rsplit('-', 1)[-1]}"
    body = json_body({"groupName": group, **members})
    return Request(name, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def subscription(topic: str, expression: str = "*", **changed: object) -> dict[str, object]:
    """A SubscriptionData as a client sends it."""
    tags = [] if expression == "*" else [tag.strip() for tag in expression.split("||")]
    return {
        "classFilterMode": False,
        "codeSet": [java_hash_code(tag) for tag in tags],
        "expressionType": "TAG",
        "subString": expression,
        "subVersion": BORN_MS,
        "tagsSet": tags,
        "topic": topic,
        **changed,
    }


def heartbeat_body(
    client_id: str,
    *,
    group: str = "",
    subscriptions: tuple[Mapping[str, object], ...] = (),
    producer: str = "",
    **changed: object,
) -> bytes:
    """A heartbeat of a client with one consumer, one producer, or both.

    Args:
      changed: replaced or added members of the consumer.
    """
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": list(subscriptions),
        "unitMode": False,
        **changed,
    }
    return json_body(
        {
            "clientID": client_id,
            "consumerDataSet": [consumer] if group else [],
            "heartbeatFingerprint": 0,
            "producerDataSet": [{"groupName": producer}] if producer else [],
            "withoutSub": False,
        }
    )


def pull_until(group: str, topic: str, name: str, count: int, **changed: FieldValue) -> Request:
    """A pull, repeated until it returns at least `count` records, which are compared.

    A broker answers a send before consumers can see the message.
    """
    return Request(
        name,
        RequestCode.PULL_MESSAGE,
        pull_fields(group, topic, **changed),
        body_kind=BodyKind.RECORDS,
        normalisers=STORED,
        until=lambda answer: answer.code == 0 and record_count(answer) >= count,
    )


def record_count(answer: RemotingCommand) -> int:
    """Number of records in an answer's body, counted by their sizes."""
    count, position = 0, 0
    while position + 4 <= len(answer.body):
        size = int.from_bytes(answer.body[position : position + 4], "big")
        position += max(size, 4)
        count += 1
    return count
