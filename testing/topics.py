"""The request that creates a topic, as an embedded broker's methods word it."""

from __future__ import annotations

from collections.abc import Mapping

from ..common.topic_names import AUTO_CREATE_TOPIC
from ..remoting.codec import RemotingCommand
from ..remoting.headers import CreateTopicRequestHeader, encode_header
from ..remoting.request_codes import RequestCode

PERM_READ_WRITE = 6


def topic_attributes(options: Mapping[str, object]) -> dict[str, str]:
    """RocketMQ's topic attributes of keyword arguments: message_type is message.type."""
    return {key.replace("_", "."): str(value) for key, value in options.items()}


def create_topic_request(
    name: str, queues: int, perm: int, attributes: Mapping[str, str]
) -> RemotingCommand:
    """UPDATE_AND_CREATE_TOPIC (17).

    Args:
      attributes: value by key, such as message.type.
    """
    changes = ",".join(f"+{key}={value}" for key, value in attributes.items())
    header = CreateTopicRequestHeader(
        topic=name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
        attributes=changes or None,
    )
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, encode_header(header))
