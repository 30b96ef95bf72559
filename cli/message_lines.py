"""A message as a line: JSON for scripts, columns for people.

The JSON uses the names of `trocket store export`, and `trocket send --json` reads it; docs/cli.md
lists all names.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ..common.message_properties import PROPERTY_KEYS, PROPERTY_SHARDING_KEY, PROPERTY_TAGS
from ..common.terminal import printable, time_text

if TYPE_CHECKING:
    from ..client import Message, ReceivedMessage

READ: Final = (
    "body",
    "bodyBase64",
    "delayLevel",
    "delaySeconds",
    "flag",
    "keys",
    "properties",
    "shardingKey",
    "tags",
)
"""Members that `send --json` reads."""

PASSED_OVER: Final = frozenset(
    {
        "bodyCRC",
        "bornHost",
        "bornTimestamp",
        "brokerName",
        "deliveryAttempt",
        "firstPopTime",
        "invisibleUntil",
        "isCompressed",
        "messageId",
        "msgId",
        "physicalOffset",
        "preparedTransactionOffset",
        "queueId",
        "queueOffset",
        "receipt",
        "reconsumeTimes",
        "size",
        "storeHost",
        "storeTimestamp",
        "sysFlag",
        "topic",
    }
)
"""Members that describe where a message was stored; `send --json` ignores them."""


class BadLineError(ValueError):
    """A line that does not describe a message."""


def as_json(message: ReceivedMessage) -> dict[str, Any]:
    """A message under RocketMQ's names; `body` if it is UTF-8 text, else `bodyBase64`."""
    found: dict[str, Any] = {
        "topic": message.topic,
        "brokerName": message.queue.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.store_size,
        "messageId": message.message_id,
        "msgId": message.offset_message_id,
        "storeTimestamp": message.store_timestamp_ms,
        "bornTimestamp": message.born_timestamp_ms,
        "storeHost": message.store_host,
        "bornHost": message.born_host,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "properties": dict(message.properties),
    }
    if message.receipt is not None:
        found |= {
            "receipt": message.receipt,
            "deliveryAttempt": message.delivery_attempt,
            "firstPopTime": message.first_pop_time_ms,
            "invisibleUntil": message.invisible_until_ms,
        }
    try:
        found["body"] = message.text
    except UnicodeDecodeError:
        found["bodyBase64"] = base64.b64encode(message.body).decode()
    return found


def as_text(message: ReceivedMessage) -> str:
    """Store time, queue, tag, keys, id and the whole body, without control characters.

    A popped message that is delivered again has the number of this delivery.
    """
    parts = [
        time_text(message.store_timestamp_ms),
        f"{message.queue.broker_name}/{message.queue_id} @{message.queue_offset}",
    ]
    if message.tags:
        parts.append(f"tags={message.tags}")
    if message.keys:
        parts.append(f"keys={' '.join(message.keys)}")
    if message.receipt is not None and message.delivery_attempt > 1:
        parts.append(f"attempt={message.delivery_attempt}")
    parts.append(f"id={message.message_id}")
    try:
        body = message.text
    except UnicodeDecodeError:
        body = f"({len(message.body)} bytes) {message.body.hex(' ')}"
    return printable("  ".join([*parts, body]))


def from_json(line: bytes, topic: str) -> Message:
    """The message that a line of JSON describes.

    Args:
      line: one object; system properties in it are dropped, the message gets new ones.
      topic: the topic to send to; the line's topic is ignored.

    Raises: BadLineError: the line is not a JSON object, or a member has a wrong name or type.
    """
    from ..client import Message
    from ..common.message_properties import SYSTEM_PROPERTIES

    try:
        tree = json.loads(line)
    except ValueError as error:
        raise BadLineError(f"not JSON: {error}") from None
    if not isinstance(tree, dict):
        raise BadLineError("not a JSON object")
    for name in tree:
        if name not in READ and name not in PASSED_OVER:
            raise BadLineError(f"unknown member {name!r}; known members: {', '.join(READ)}")
    if tree.get("isCompressed"):
        raise BadLineError("the body is still compressed: export without --as-stored")
    properties = tree.get("properties") or {}
    if not isinstance(properties, dict) or not all(
        isinstance(value, str) for value in properties.values()
    ):
        raise BadLineError("properties must be an object of strings")
    keys = tree.get("keys", properties.get(PROPERTY_KEYS)) or ()
    if not isinstance(keys, str) and not _is_texts(keys):
        raise BadLineError("keys must be a string or a list of strings")
    delay_s = _number(tree, "delaySeconds", (int, float), None)
    return Message(
        topic,
        _body(tree),
        tags=_text(tree, "tags", properties.get(PROPERTY_TAGS)),
        keys=keys,
        properties={k: v for k, v in properties.items() if k not in SYSTEM_PROPERTIES and v},
        sharding_key=_text(tree, "shardingKey", properties.get(PROPERTY_SHARDING_KEY)),
        delay_level=_number(tree, "delayLevel", (int,), 0),
        delay_s=delay_s,
        flag=_number(tree, "flag", (int,), 0),
    )


def _is_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)


def _body(tree: Mapping[str, Any]) -> bytes:
    text, encoded = tree.get("body"), tree.get("bodyBase64")
    if isinstance(text, str) and encoded is None:
        return text.encode("utf-8", "surrogatepass")
    if isinstance(encoded, str) and text is None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadLineError(f"bodyBase64: {error}") from None
    raise BadLineError("give either body or bodyBase64, as a string")


def _text(tree: Mapping[str, Any], name: str, default: str | None) -> str | None:
    value = tree.get(name, default)
    if value is not None and not isinstance(value, str):
        raise BadLineError(f"{name} must be a string")
    return value or None


def _number(tree: Mapping[str, Any], name: str, kinds: tuple[type, ...], default: Any) -> Any:
    value = tree.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise BadLineError(f"{name} must be a number")
    return value
