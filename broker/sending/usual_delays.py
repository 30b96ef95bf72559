"""UsualDelays: the fast path of sends with a delay level.

The bytes in the log and the answer are those of `SendMessageProcessor._send_special`, which serves
all others: with timers, priorities, properties that only a broker sets, or without a unique key.
"""

from __future__ import annotations

from typing import Final

from ...common.message_properties import (
    DELAY_HEAD,
    MSG_REGION_HEAD,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    UNIQUE_KEY_HEAD,
    WAIT_OFF,
)
from ...common.topic_names import SCHEDULE_TOPIC
from ...remoting.codec import RemotingCommand
from ...remoting.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK
from ...store.message_store import MessageStore
from ..messages.inner_message import DelayLevels, InnerMessage
from ..puts.added_properties import AddedProperties
from ..puts.send_turn import SendTurn

_LEVELS: Final = {b"%d" % level: level for level in range(1, 100)}
"""The levels as clients write them."""
_PLACE: Final = (
    f"{PROPERTY_DELAY_TIME_LEVEL}\1%d\2{PROPERTY_REAL_TOPIC}\1%b\2{PROPERTY_REAL_QUEUE_ID}\1%d\2"
).encode()
"""What `inner_message.delayed` adds."""


class UsualDelays:
    """Appends messages of the usual kind that have a delay level.

    Args:
      store: already loaded.
      levels: of this broker.
      added: the properties that the broker adds to each message.
    """

    def __init__(
        self, store: MessageStore, turn: SendTurn, levels: DelayLevels, added: AddedProperties
    ) -> None:
        self._store = store
        self._turn = turn
        self._levels = levels
        self._added = added

    def send(self, request: RemotingCommand, message: InnerMessage) -> bool:
        """Store a message and have the turn answer it, which must have begun.

        Args:
          message: what it sends, as it came.
        Returns: False if it is of another kind, or cannot be stored, and nothing was done.
        Raises: RequestRefused: the store refuses it.
        """
        properties = message.properties
        at = properties.find(DELAY_HEAD)
        # All names with a rule but DELAY have an underscore, as UNIQ_KEY has.
        if (
            at < 0
            or (at and properties[at - 1] != 2)
            or properties.count(b"_") != 1
            or UNIQUE_KEY_HEAD not in properties
            or properties.count(b"DELAY") != 1
            or message.sys_flag & ~(COMPRESSED | COMPRESSION_TYPE_MASK)
            or message.topic[0] == "%"
            or MSG_REGION_HEAD in properties
            or b"#" in properties
            or b"\0" in properties
        ):
            return False
        end = properties.find(b"\2", at)
        if end < 0:
            end = len(properties)
        level = _LEVELS.get(properties[at + len(DELAY_HEAD) : end])
        if level is None:
            return False
        store, levels = self._store, self._levels
        # The message may be newer than the turn's time, by which it would be delivered early.
        store.writer.read_clock()
        now_ms = store.wall_time_ms
        if int(now_ms) != int(store.store_time_ms):  # its due time is kept in a property
            return False
        level = min(level, levels.level_max)
        own = self._added.append_to(properties[:at] + properties[end + 1 :])
        waiting = own + _PLACE % (level, message.topic.encode(), message.queue_id)
        body = message.body
        if len(body) > store.config.max_message_size or not store.fits(
            message.topic, len(body), len(waiting), len(message.born_host) + len(message.store_host)
        ):
            return False
        refusal, physical_offset, queue_offset = store.put_message(
            SCHEDULE_TOPIC,
            level - 1,
            body,
            waiting,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=message.born_host,
            store_host=message.store_host,
            tags_code=levels.due_ms(level, now_ms),
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
        )
        if refusal is not None:
            raise self._turn.refusal(refusal)
        waits = WAIT_OFF not in properties
        self._turn.accept(request, message.queue_id, physical_offset, queue_offset, waits)
        return True
