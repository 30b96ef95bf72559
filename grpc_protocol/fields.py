"""Values that several messages have, to and fro: names, times, endpoints. Pure.

Source: NamespaceUtil.java, GrpcConverter.java of RocketMQ 5.5.0.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from ..common import message_properties as names
from .enums import AddressScheme

TRACE_CONTEXT: Final = "TRACE_CONTEXT"
BORN_HOST: Final = "__BORNHOST"
LITE_TOPIC: Final = "__LITE_TOPIC"

RESERVED_PROPERTIES: Final = names.SYSTEM_PROPERTIES | {TRACE_CONTEXT, BORN_HOST, LITE_TOPIC}
"""Names that are no user property's."""


def set_time(time: Any, milliseconds_: int) -> None:
    """Set a Timestamp or a Duration; its own method checks a range, and takes far longer."""
    seconds, rest = divmod(milliseconds_, 1000)
    time.seconds = seconds
    if rest:
        time.nanos = rest * 1_000_000


def milliseconds(time: Any) -> int:
    """Of a Timestamp or a Duration, rounded down."""
    return int(time.seconds) * 1000 + int(time.nanos) // 1_000_000


def set_resource(resource: Any, name: str) -> None:
    """Set a message Resource to a name as brokers know it; see `full_name`."""
    namespace, separator, rest = name.partition("%")
    if separator and namespace and rest:
        resource.resource_namespace, resource.name = namespace, rest
    else:
        resource.name = name


def full_name(resource: Any) -> str:
    """The name of a topic or group, with its namespace, as brokers know it.

    Args:
      resource: a message Resource.
    """
    namespace, name = resource.resource_namespace, resource.name
    return f"{namespace}%{name}" if namespace else str(name)


def set_endpoints(endpoints: Any, address: str) -> None:
    """Set a message Endpoints to one address, `host:port`."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        is_v6 = ipaddress.ip_address(host).version == 6
        endpoints.scheme = AddressScheme.IPv6 if is_v6 else AddressScheme.IPv4
    except ValueError:
        endpoints.scheme = AddressScheme.DOMAIN_NAME
    endpoints.addresses.add(host=host, port=int(port))
