"""Names of topics and groups inside a namespace: `namespace%name` is what brokers see.

The prefix of a retry or DLQ topic stays in front: `%RETRY%namespace%group`. RocketMQ's own topics
and groups are in no namespace.

Java counterpart: NamespaceUtil of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

from typing import Final

from ...common.topic_names import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    is_system_group,
    is_system_topic,
)

NAMESPACE_SEPARATOR: Final = "%"


def with_namespace(namespace: str | None, resource: str) -> str:
    """A topic or group as brokers know it.

    Args:
      namespace: of the client; None or "": none.
      resource: topic or group, with or without the namespace already.
    Returns: `namespace%resource`; the resource as it is when it is RocketMQ's own, carries the
      namespace already, or is empty.
    """
    if not namespace or not resource or _is_system(resource):
        return resource
    prefix, name = _split(resource)
    if name.startswith(namespace + NAMESPACE_SEPARATOR):
        return resource
    return f"{prefix}{namespace}{NAMESPACE_SEPARATOR}{name}"


def without_namespace(resource: str, namespace: str | None) -> str:
    """A topic or group as the program knows it.

    Args:
      resource: as brokers know it.
      namespace: of the client; None or "": none, and the resource comes back as it is.
    Returns: the resource without this namespace; as it is when it carries none or another.
    """
    if not namespace or not resource or _is_system(resource):
        return resource
    prefix, name = _split(resource)
    head = namespace + NAMESPACE_SEPARATOR
    return prefix + name[len(head) :] if name.startswith(head) else resource


def _split(resource: str) -> tuple[str, str]:
    """The prefix of a retry or DLQ topic (else ""), and the rest."""
    for prefix in (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource


def _is_system(resource: str) -> bool:
    return is_system_topic(resource) or is_system_group(resource)
