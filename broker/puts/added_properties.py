"""AddedProperties: the properties that the broker adds to every message it receives.

Java counterpart: buildMsgContext of broker/processor/AbstractSendMessageProcessor.java, and
SendMessageProcessor.java, of 5.3.3.
"""

from __future__ import annotations

from ...common.message_properties import (
    MSG_REGION_HEAD,
    PROPERTY_CLUSTER,
    PROPERTY_MSG_REGION,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_UNIQUE_KEY,
    UNIQUE_KEY_HEAD,
    properties_from_bytes,
    properties_to_bytes,
)
from ...remoting.message_id import UniqueIdGenerator
from ..settings.config import BrokerConfig

_SEPARATOR = 2
"""The byte after each property."""


class AddedProperties:
    """Adds the broker's region, trace switch and cluster, and a unique key if there is none.

    Clients read CLUSTER for request-reply, the others for traces.

    Args:
      unique_ids: generates the unique keys.

    Attributes:
      first: the encoded properties, for use alone or after a separator.
      after: the same with a leading separator, because 4.9 sends none after the last property.
      of_answers: those that are also fields of the answers to sends.
    """

    def __init__(self, config: BrokerConfig, unique_ids: UniqueIdGenerator) -> None:
        self._config = config
        self._unique_ids = unique_ids
        self.settings_changed()

    def settings_changed(self) -> None:
        """Encode the values of regionId and traceOn as they are now."""
        config = self._config
        self.of_answers = {
            PROPERTY_MSG_REGION: config.region_id,
            PROPERTY_TRACE_SWITCH: "true" if config.trace_on else "false",
        }
        self._added = {**self.of_answers, PROPERTY_CLUSTER: config.broker_cluster_name}
        self.first = properties_to_bytes(self._added)
        self.after = bytes([_SEPARATOR]) + self.first

    def append_to(self, properties: bytes) -> bytes:
        """Append the broker's properties to a message's, which must not be empty."""
        return properties + (self.first if properties[-1] == _SEPARATOR else self.after)

    def merge_into(self, properties: bytes, now_ms: int) -> bytes:
        """Merge the broker's properties into those of any message.

        Args:
          properties: encoded.
          now_ms: time of the unique key, if one is generated.
        """
        if UNIQUE_KEY_HEAD in properties and MSG_REGION_HEAD not in properties:
            return self.append_to(properties)
        # A message without a unique key, or one that a client forwards.
        merged = properties_from_bytes(properties) | self._added
        if not merged.get(PROPERTY_UNIQUE_KEY):
            merged[PROPERTY_UNIQUE_KEY] = self._unique_ids.next_id(now_ms)
        return properties_to_bytes(merged)
