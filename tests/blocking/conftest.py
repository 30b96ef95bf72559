"""The client's broker and topics, for the blocking client."""

from __future__ import annotations

from tests.client.conftest import broker, group, shared_broker, topic

__all__ = ["broker", "group", "shared_broker", "topic"]
