"""Dead letters as messages to their original topics.

Java counterpart: DLQMessageController of the dashboard. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from ...common import message_properties as names
from ...common.topic_names import normal_topic
from ..errors import MessageRefusedError
from ..messages.message import Message, ReceivedMessage


def revive(
    dead_letter: ReceivedMessage, without_namespace: Callable[[str], str]
) -> tuple[Message, dict[str, str]]:
    """The message that sends a dead letter to its original topic again.

    It has the body, tag, keys, flag, sharding key and the program's properties, and no delay.

    Args:
      dead_letter: a message of a dead-letter topic.
      without_namespace: a topic as the program knows it.

    Returns: the message, and RocketMQ's properties that name its origin.
    Raises: MessageRefusedError: no property has its original topic, so it is no dead letter.
    """
    properties = dead_letter.properties
    # Brokers of 4.x and trocket's write the first one, later ones of Apache both.
    topic = properties.get(names.PROPERTY_RETRY_TOPIC) or properties.get(
        names.PROPERTY_DLQ_ORIGIN_TOPIC
    )
    if topic is None:
        raise MessageRefusedError(
            f"message {dead_letter.message_id} does not name its original topic: it is no dead"
            " letter"
        )
    # A popped message was in the group's retry topic of its topic.
    topic = normal_topic(topic, properties.get(names.PROPERTY_ORIGIN_GROUP, ""))
    message = dead_letter.copy_to(without_namespace(topic))
    origin = {
        names.PROPERTY_DLQ_ORIGIN_TOPIC: topic,
        names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID: dead_letter.message_id,
    }
    return message, origin
