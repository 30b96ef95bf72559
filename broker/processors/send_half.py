"""UsualHalves: the fast path of a send that begins a transaction.

A half message of the usual kind is stored without an `InnerMessage` and with few searches in its
properties, and is kept for its end (`half_message_cache.py`). The bytes in the log and the answer
are those of `SendMessageProcessor._send_half`, which serves all others.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ...common.message_properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_ID,
    properties_to_bytes,
)
from ...common.topic_names import TRANS_HALF_TOPIC
from ...remoting.codec import RemotingCommand
from ...remoting.message_codec import PROPERTIES_SIZE_MAX
from ...remoting.sys_flag import TRANSACTION_NOT_TYPE, reset_transaction_value
from ...store.message_store import MessageStore
from ..config import BrokerConfig
from ..half_message_cache import CachedHalf
from ..transactions import usual_half
from .send_turn import WAIT_OFF
from .turn_puts import TurnPuts

PLACES_CACHED_MAX: Final = 1024
"""Queues whose properties in half messages are cached, some hundred bytes each."""

_ID_HEAD: Final = f"{PROPERTY_TRANSACTION_ID}\x01".encode()
_ROOM: Final = 2048
"""More bytes than all that a usual half message gets when it is checked, parked or delivered: its
topic and queue, the count of its checks, longer topics, hosts of IPv6."""


class UsualHalves:
    """Appends half messages of the usual kind.

    Args:
      config: the broker's.
      store: already loaded.
      puts: has the turn and the transactions.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, puts: TurnPuts) -> None:
        self._config = config
        self._put_message = store.put_message
        self._kinds = puts.kinds
        self._turn = puts.turn
        self._store_host = puts.turn.store_host
        self._transactions = puts.transactions
        limits = store.config
        self._size_max = min(
            limits.max_message_size, limits.mapped_file_size_commit_log - PROPERTIES_SIZE_MAX
        )

    def send(
        self,
        request: RemotingCommand,
        topic: str,
        queue_id: int,
        properties: bytes,
        *,
        born_timestamp_ms: int,
        born_host: bytes,
        flag: int,
        sys_flag: int,
        reconsume_times: int,
    ) -> bool:
        """Store a half message and have the turn answer it, which must have begun.

        Args:
          request: the send.
          topic, queue_id: of the final message.
          properties: encoded, with those that the broker adds, and a separator at their end.
        Returns: False: it is of another kind, or cannot be stored, and nothing was done.
        Raises: RequestRefused: the store refuses it.
        """
        usual = usual_half(properties)
        body = request.body
        transactions = self._transactions
        if (
            usual is None
            or len(body) > self._size_max
            or len(properties) > PROPERTIES_SIZE_MAX - _ROOM
            or self._config.reject_transaction_message
            or transactions.open.is_full
            or self._kinds.delivery_refusal(topic) is not None
        ):
            return False
        unique_key, group, tags_code = usual
        final = properties + _ID_HEAD + unique_key + b"\2"
        sys_flag = reset_transaction_value(sys_flag, TRANSACTION_NOT_TYPE)
        refusal, physical_offset, queue_offset = self._put_message(
            TRANS_HALF_TOPIC,
            0,
            body,
            final + _place_properties(topic, queue_id),
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            store_host=self._store_host,
            tags_code=tags_code,
            flag=flag,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times,
        )
        if refusal is not None:
            raise self._turn.refusal(refusal)
        half = CachedHalf(
            physical_offset, queue_offset, topic, queue_id, body, tags_code, final,
            unique_key.decode("ascii"), group, born_timestamp_ms, born_host, flag,
            reconsume_times, sys_flag,
        )  # fmt: skip
        transactions.put_usual_half(half)
        self._turn.accept_half(
            request, queue_id, physical_offset, queue_offset, unique_key, WAIT_OFF not in final
        )
        return True


@lru_cache(maxsize=PLACES_CACHED_MAX)
def _place_properties(topic: str, queue_id: int) -> bytes:
    return properties_to_bytes({PROPERTY_REAL_TOPIC: topic, PROPERTY_REAL_QUEUE_ID: str(queue_id)})
