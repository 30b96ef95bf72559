"""The options of a connection: its URL, and kombu's `transport_options`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ...client.errors import ConfigurationError
from ...remoting.cluster_url import DEFAULT_PORT, URL_SCHEME

VISIBILITY_S: Final = 60.0
"""How soon the messages of a worker that died come to others. They are renewed while it lives, so
long tasks need no longer time."""

VISIBILITY_S_MIN: Final = 1.0
"""A renewal takes some milliseconds, and longer beside a broker that restarts."""

VISIBILITY_S_MAX: Final = 3 * 24 * 3600.0
"""RocketMQ's limit of an invisible time."""

WAIT_S: Final = 1.0
"""How long a request waits for a message. A broker answers at once when there is one; at its end a
connection waits so long for the request that is under way."""

WAIT_S_MAX: Final = 30.0
"""Longer than this, proxies and firewalls take a connection for dead."""

TOPIC_QUEUES_MAX: Final = 1024
"""More than any broker needs for one topic."""

TOPIC_QUEUES: Final = 4
"""Queues of a topic that is created, on each broker. Any number of workers shares one by pops, so
this only bounds how many requests a broker serves at once."""

_SECRET: Final = re.compile(r"(?<=://)(?P<key>[^:@/?]*):[^@]*@")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `transport_options` that this transport reads.

    Attributes:
      visibility_timeout: seconds for which a received message is invisible to others; it is renewed
        while it is not acknowledged, so this is how soon the messages of a worker that died come to
        others.
      wait_time_seconds: seconds for which a request waits for a message.
      queue_name_prefix: begins the names of topics and groups.
      topic_queues: queues of a topic that is created, on each broker.
      create_topics: create topics that are not there; it needs an administrator's rights where
        access is controlled.
      native_delay: the broker holds a task until its ETA; False: the worker does, as with AMQP.
      client_options: see ClientOptions; tls and namespace, for example.
    """

    visibility_timeout: float = VISIBILITY_S
    wait_time_seconds: float = WAIT_S
    queue_name_prefix: str = ""
    topic_queues: int = TOPIC_QUEUES
    create_topics: bool = True
    native_delay: bool = True
    client_options: dict[str, Any] = {}


def read_options(given: Mapping[str, Any] | None) -> Options:
    """The options of a connection; others belong to kombu, and are passed over.

    Raises: ConfigurationError: one has a wrong type, or is out of range.
    """
    known = {
        name: (given or {})[name] for name in Options.__struct_fields__ if name in (given or {})
    }
    try:
        options = msgspec.convert(known, Options)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"transport_options: {error}") from error
    _check("visibility_timeout", options.visibility_timeout, VISIBILITY_S_MIN, VISIBILITY_S_MAX)
    _check("wait_time_seconds", options.wait_time_seconds, 0.05, WAIT_S_MAX)
    _check("topic_queues", options.topic_queues, 1, TOPIC_QUEUES_MAX)
    return options


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigurationError(f"transport_options: {name} is {value}: give {least} to {most}")


def cluster_url(connection: Any) -> str:
    """trocket's URL of a kombu.Connection.

    Several name servers are separated by commas: kombu takes what is behind a semicolon for
    another broker to fail over to.
    """
    host = str(connection.hostname or "localhost")
    if "://" not in host:
        account = ""
        if connection.userid:
            account = f"{quote(connection.userid)}:{quote(connection.password or '')}@"
        host = f"{URL_SCHEME}{account}{host}:{connection.port or DEFAULT_PORT}"
    if not host.startswith(URL_SCHEME):
        raise ConfigurationError(
            f"a URL of kombu for RocketMQ begins with {URL_SCHEME}: gRPC endpoints have no requests"
            " to create topics; give the name servers"
        )
    hosts, mark, query = host.partition("?")
    account, at, names = hosts.rpartition("@")
    return f"{account}{at}{names.replace(',', ';')}{mark}{query}"


def hidden(url: str, mask: str) -> str:
    """A URL without its secret."""
    return _SECRET.sub(rf"\g<key>:{mask}@", url)
