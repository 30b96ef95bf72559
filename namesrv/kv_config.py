"""KVConfigManager: strings by namespace and key, which survive restarts.

RocketMQ uses it for the order of topics (`ORDER_TOPIC_CONFIG`: topic -> `brokerName:queues;…`);
tools may store other strings.

File: `{"configTable":{namespace:{key:value}}}`, as Apache's name server writes it.

Pure: the owner saves a state file after a change (`store/state/`).

Java counterpart: RocketMQ 5.3.3 namesrv/kvconfig/KVConfigManager.java.
"""

from __future__ import annotations

import logging

import msgspec

from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .limits import KV_ITEMS_MAX, KV_NAME_SIZE_MAX, KV_NAMESPACES_MAX, KV_VALUE_SIZE_MAX

logger = logging.getLogger(__name__)

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics. Source: RocketMQ NamesrvUtil.java."""


class _KVConfigFile(msgspec.Struct):
    """The content of kvConfig.json."""

    configTable: dict[str, dict[str, str]] = {}


class KVConfigManager:
    """The KV table of one name server. One task at a time uses it."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, str]] = {}
        self._item_count = 0

    def decode(self, text: bytes) -> None:
        """Replace the table by the file's.

        Raises: ValueError: the text is not a KV table; nothing is changed then.
        """
        # msgspec's errors are ValueErrors.
        self._table = msgspec.json.decode(text, type=_KVConfigFile).configTable
        self._item_count = sum(map(len, self._table.values()))

    def to_json(self) -> bytes:
        """The file's content for the present table."""
        return msgspec.json.encode(_KVConfigFile(self._table))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one item.

        Args:
          namespace: 1 to KV_NAME_SIZE_MAX printable characters.
          key: likewise.
          value: any string of at most KV_VALUE_SIZE_MAX characters.
        Raises: RequestRefused: SYSTEM_ERROR for an illegal name or value, and for a full table.
        """
        for what, name in (("namespace", namespace), ("key", key)):
            if not 0 < len(name) <= KV_NAME_SIZE_MAX or not name.isprintable():
                _refuse(f"illegal {what}: {name[:80]!r}")
        if len(value) > KV_VALUE_SIZE_MAX:
            _refuse(f"the value has {len(value)} characters, the limit is {KV_VALUE_SIZE_MAX}")
        if any("\ud800" <= character <= "\udfff" for character in value):
            # It cannot be encoded, so no later change could be saved, either.
            _refuse("the value has half of a surrogate pair")
        items = self._table.get(namespace)
        if items is None or key not in items:
            if self._item_count >= KV_ITEMS_MAX:
                _refuse(f"the table is full: {KV_ITEMS_MAX} items")
            if items is None and len(self._table) >= KV_NAMESPACES_MAX:
                _refuse(f"the table is full: {KV_NAMESPACES_MAX} namespaces")
            self._item_count += 1
        if items is None:
            items = self._table[namespace] = {}
        items[key] = value
        logger.info(
            "KV config: %(namespace)s %(key)s = %(value)r",
            {"namespace": namespace, "key": key, "value": value[:200]},
        )

    def delete(self, namespace: str, key: str) -> bool:
        """Remove one item; the namespace stays, even empty, as RocketMQ leaves it.

        Returns: False when there was none.
        """
        items = self._table.get(namespace)
        if items is None or items.pop(key, None) is None:
            return False
        self._item_count -= 1
        logger.info(
            "KV config: %(namespace)s %(key)s deleted", {"namespace": namespace, "key": key}
        )
        return True

    def get(self, namespace: str, key: str) -> str | None:
        """The value of one item; None if there is none."""
        return self._table.get(namespace, {}).get(key)

    def items(self, namespace: str) -> dict[str, str] | None:
        """A copy of one namespace; None when it was never put to."""
        items = self._table.get(namespace)
        return None if items is None else dict(items)


def _refuse(reason: str) -> None:
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
