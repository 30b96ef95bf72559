"""Requests that create topics, from the arguments of the embedded brokers' methods."""

from __future__ import annotations

from collections.abc import Mapping

from ..common.topic_names import AUTO_CREATE_TOPIC
from ..remoting.codec import RemotingCommand
from ..remoting.headers import CreateTopicRequestHeader, encode_header
from ..remoting.request_codes import RequestCode

PERM_READ_WRITE = 6


def topic_attributes(options: Mapping[str, object]) -> dict[str, str]:
    """Convert keyword arguments to RocketMQ's topic attributes: message_type to message.type."""
    return {key.replace("_", "."): str(value) for key, value in options.items()}


def create_topic_request(
    name: str, queues: int, perm: int, attributes: Mapping[str, str]
) -> RemotingCommand:
    """The request UPDATE_AND_CREATE_TOPIC (17).

    Args:
      name: name of the topic.
      queues: number of queues, for reading and for writing.
      perm: permissions: 4 to read, 2 to write, 6 for both.
      attributes: topic attributes, such as message.type.
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
