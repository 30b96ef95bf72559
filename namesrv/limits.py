"""Limits of a name server's tables; `remoting/names.py` has those of names.

Any peer that reaches the port may register a broker or put a KV item (there is no access control),
so every table has a named limit. RocketMQ's name server has none: it grows until its heap is full.
"""

from __future__ import annotations

BROKERS_MAX = 4_096
"""Broker addresses. The largest clusters that RocketMQ's users describe have some hundred."""

TOPICS_MAX = 500_000
"""Topics, retry topics included. About 0.5 KB each: 250 MB when full."""

QUEUE_DATA_MAX = 12_000_000
"""Pairs of topic and broker name: 1,000 brokers with 10,000 topics each, and a fifth more. 48 bytes
each where brokers share topics (docs/scale.md)."""

QUEUE_MAPPINGS_MAX = 10_000
"""Pairs of static topic and broker name."""

QUEUE_MAPPING_SIZE_MAX = 64 * 1024
"""Bytes of one mapping as JSON: some thousand queues."""

HEARTBEAT_TIMEOUT_MS_MIN = 1_000
HEARTBEAT_TIMEOUT_MS_MAX = 24 * 60 * 60 * 1_000
"""The range of a broker's heartbeat time-out; other values are clamped to it."""

KV_ITEMS_MAX = 100_000
"""KV items over all namespaces: one for each ordered topic."""

KV_NAMESPACES_MAX = 1_024
"""KV namespaces. RocketMQ's own tools use four."""

KV_VALUE_SIZE_MAX = 64 * 1024
"""Characters of one KV value. An order configuration takes about 20 for each broker."""

KV_NAME_SIZE_MAX = 1_024
"""Characters of a KV namespace or key."""
