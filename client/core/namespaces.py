"""Names of topics and groups in a namespace, which brokers know as `namespace%name`.

The prefix of a retry or DLQ topic comes first: `%RETRY%namespace%group`. System topics and system
groups have no namespace.

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
    """Add the namespace to the name of a topic or group.

    Args:
      namespace: namespace of the client; None or "": none.
      resource: name of the topic or group; it may have the namespace already.

    Returns: `namespace%resource`. The name of a system topic or group, a name that has the
      namespace already, and an empty name are returned unchanged.
    """
    if not namespace or not resource or _is_system(resource):
        return resource
    prefix, name = _split(resource)
    if name.startswith(namespace + NAMESPACE_SEPARATOR):
        return resource
    return f"{prefix}{namespace}{NAMESPACE_SEPARATOR}{name}"


def without_namespace(resource: str, namespace: str | None) -> str:
    """Remove the namespace from the name of a topic or group.

    Args:
      resource: name of the topic or group, as brokers know it.
      namespace: namespace of the client; None or "": none.

    Returns: the name without this namespace; unchanged if it has none or another one.
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
