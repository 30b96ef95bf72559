"""What tests of servers share: a broker inside the test, a client of it, and what they exchange."""

from __future__ import annotations

from .client import Client, Inbox
from .clock import START_MS, TrioClock, WrongClock
from .embedded import Broker, broker_and_client, broker_client, embedded_broker, put_record
from .fields import (
    heartbeat,
    long_names,
    pull_fields,
    send_fields,
    subscribed,
    topic_fields,
)
from .queues import bodies, bodies_of, send, stored

__all__ = [
    "START_MS",
    "Broker",
    "Client",
    "Inbox",
    "TrioClock",
    "WrongClock",
    "bodies",
    "bodies_of",
    "broker_and_client",
    "broker_client",
    "embedded_broker",
    "heartbeat",
    "long_names",
    "pull_fields",
    "put_record",
    "send",
    "send_fields",
    "stored",
    "subscribed",
    "topic_fields",
]
