"""The names and the address of the broker that wrote a store, as far as its files have them.

A store does not have its broker's name. But a broker makes topics that are named after itself and
its cluster, and every message has its address.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ...common.topic_names import AUTO_CREATE_TOPIC, REVIVE_TOPIC_PREFIX
from ...disk.errors import StoreError
from ...disk.os_disk import Disk
from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import decode_messages
from ...store.message_store import MessageStore
from ...store.offline.json_files import TOPICS, read_json

REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
PERM_INHERIT: Final = 1
"""The bit that the topics of a broker and of its cluster have. Source: PermName.PERM_INHERIT."""
DEFAULT_CLUSTER: Final = "DefaultCluster"
DEFAULT_BROKER: Final = "stopped-broker"
"""Names where the store has none."""


class Names(NamedTuple):
    """The names of a broker and of its cluster."""

    cluster: str
    broker: str


def read_names(disk: Disk, root: str) -> Names:
    """The names after which a broker called its topics; the defaults where it has none.

    Args:
      root: storePathRootDir.

    Raises: StoreIOError: a file is there and cannot be read.
    """
    for name in (TOPICS, f"{TOPICS}.bak"):
        path = f"{root}/config/{name}"
        if disk.exists(path):
            table = (read_json(disk, path).tree or {}).get("topicConfigTable")
            if isinstance(table, dict) and table:
                return names_of(table)
    return Names(DEFAULT_CLUSTER, DEFAULT_BROKER)


def names_of(topics: Mapping[str, Any]) -> Names:
    """The names in a table of topics; the defaults where it has none. Pure.

    Args:
      topics: each topic's settings by its name, as in topics.json.

    Source: TopicConfigManager.init of RocketMQ 5.5.0.
    """
    replies = [each for each in sorted(topics) if each.endswith(REPLY_TOPIC_SUFFIX)]
    revives = [each for each in sorted(topics) if each.startswith(REVIVE_TOPIC_PREFIX)]
    cluster = DEFAULT_CLUSTER
    if replies:
        cluster = replies[0].removesuffix(REPLY_TOPIC_SUFFIX)
    elif revives:
        cluster = revives[0].removeprefix(REVIVE_TOPIC_PREFIX)
    own = [
        name
        for name, settings in topics.items()
        if name not in (cluster, AUTO_CREATE_TOPIC) and _is_of_a_broker(settings)
    ]
    return Names(cluster, own[0] if len(own) == 1 else DEFAULT_BROKER)


def _is_of_a_broker(settings: object) -> bool:
    """Whether a topic has one queue and is for others to inherit from: no program makes such."""
    if not isinstance(settings, Mapping):
        return False
    perm, queues = settings.get("perm"), settings.get("readQueueNums")
    return isinstance(perm, int) and bool(perm & PERM_INHERIT) and queues == 1


def newest_store_host(store: MessageStore) -> str:
    """`ip:port` of the broker that stored the newest message with a queue; "": there is none.

    Args:
      store: loaded.
    """
    queues = store.queue_store.queues
    if not queues:
        return ""
    (topic, queue_id), queue = max(queues.items(), key=lambda each: each[1].physical_end())
    if queue.physical_end() <= 0:
        return ""
    try:
        found = store.get_message(topic, queue_id, queue.max_offset - 1, 1)
        messages = [each for part in found.buffers for each in decode_messages(part, inflate=False)]
    except (StoreError, RemoteProtocolError):
        return ""
    return messages[0].store_host_text if messages else ""
