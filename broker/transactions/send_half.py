"""HalfPuts: appends half messages, which open a transaction. UsualHalves: their fast path.

A half message of the usual kind is stored with few searches in its properties, and its final
message is kept for its end (`half_message_cache.py`). The bytes in the log and the answer
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
from ...remoting.channel import Channel
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.message_codec import PROPERTIES_SIZE_MAX
from ...remoting.response_codes import ResponseCode
from ...remoting.sys_flag import COMPRESSED, TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE
from ...store.message_store import MessageStore
from ...store.status import PutResult
from ..messages.half_messages import HalfTraits, usual_half
from ..messages.inner_message import InnerMessage
from ..puts.added_properties import AddedProperties
from ..puts.turn_puts import Place, TurnPuts
from ..settings.config import BrokerConfig
from .half_message_cache import CachedHalf
from .transaction_service import TransactionService

PLACES_CACHED_MAX: Final = 1024
"""Queues whose properties in half messages are cached, some hundred bytes each."""

_ID_HEAD: Final = f"{PROPERTY_TRANSACTION_ID}\x01".encode()
_PROPERTIES_SIZE_MAX: Final = PROPERTIES_SIZE_MAX - 4096
"""Bytes that leave room for all that the broker adds to a half message, now and when it is checked,
parked or delivered; larger ones take the general path, which computes the room that they need."""


class HalfPuts:
    """Appends half messages, whose transactions are then open.

    Args:
      puts: appends messages within a turn.
      transactions: gets the half messages.

    Attributes:
      puts, transactions: see the arguments.
    """

    def __init__(self, puts: TurnPuts, transactions: TransactionService) -> None:
        self.puts = puts
        self.transactions = transactions

    def put(self, message: InnerMessage) -> Place:
        """Append a half message; the turn must have begun.

        Raises: RequestRefused: it was not stored.
        """
        if self.transactions.open.is_full:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST]system busy, {len(self.transactions.open)} transactions are open",
            )
        place = self.puts.put(message)
        self.transactions.put_half(place.queue_offset, message.properties)
        return place

    def put_and_answer(
        self, request: RemotingCommand, channel: Channel, message: InnerMessage
    ) -> None:
        """Append a half message, and answer success when it is written.

        Raises: RequestRefused: it was not stored.
        """
        turn = self.puts.turn
        turn.begin(channel)
        self.put(message)
        turn.answer(request, request.answer(ResponseCode.SUCCESS, None), False)


class UsualHalves:
    """Appends half messages of the usual kind.

    Args:
      store: already loaded.
      halves: has the turn and the transactions.
      added: the properties that the broker adds to each message.
    """

    def __init__(
        self, config: BrokerConfig, store: MessageStore, halves: HalfPuts, added: AddedProperties
    ) -> None:
        self._config = config
        self._put_message = store.put_message
        self._added = added
        self._kinds = halves.puts.kinds
        self._turn = halves.puts.turn
        self._open = halves.transactions.open
        self._put_usual_half = halves.transactions.put_usual_half
        self._counts = halves.transactions.counts
        self._limits = store.config
        self._size_max = store.config.mapped_file_size_commit_log - PROPERTIES_SIZE_MAX

    def send(self, request: RemotingCommand, message: InnerMessage) -> bool:
        """Store a half message and have the turn answer it, which must have begun.

        Args:
          message: what it sends, as it came.
        Returns: False if it is of another kind, or cannot be stored, and nothing was done.
        Raises: RequestRefused: the store refuses it.
        """
        topic, queue_id, body = message.topic, message.queue_id, message.body
        properties, sys_flag = message.properties, message.sys_flag
        if (
            sys_flag & ~COMPRESSED != TRANSACTION_PREPARED_TYPE
            or message.flag
            or message.reconsume_times
            or not properties
        ):
            return False
        properties = self._added.append_to(properties)
        usual = usual_half(properties)
        if usual is None or not self.may_put(topic, len(body), len(properties)):
            return False
        unique_key, traits = usual
        refusal, physical_offset, queue_offset = self.put(
            topic, queue_id, body, properties, unique_key, traits,
            born_timestamp_ms=message.born_timestamp_ms, born_host=message.born_host,
            sys_flag=sys_flag,
        )  # fmt: skip
        if refusal is not None:
            raise self._turn.refusal(refusal)
        waits = traits[2]
        self._turn.accept_half(request, queue_id, physical_offset, queue_offset, unique_key, waits)
        self._counts.left += 1
        return True

    def may_put(self, topic: str, body_size: int, properties_size: int) -> bool:
        """Whether a half message for a topic, with these sizes in bytes, may be usual."""
        return not (
            topic[0] == "%"
            or body_size > self._size_max
            or body_size > self._limits.max_message_size
            or properties_size > _PROPERTIES_SIZE_MAX
            or self._config.reject_transaction_message
            or self._open.is_full
            or self._kinds.delivery_refusal(topic) is not None
        )

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        unique_key: bytes,
        traits: HalfTraits,
        *,
        born_timestamp_ms: int,
        born_host: bytes,
        sys_flag: int,
    ) -> PutResult:
        """Append a usual half message in the present turn, and cache it; see `usual_half`.

        Args:
          topic, queue_id: to which a commit delivers; `may_put` allows the topic.
          properties: with those that the broker adds.
          sys_flag: as it came.
        """
        group, tags_code, waits = traits
        # The properties of the final message: a commit needs neither the log nor the decoder.
        final = b"%b%b%b\2" % (properties, _ID_HEAD, unique_key)
        sys_flag &= ~TRANSACTION_PREPARED_TYPE
        result = self._put_message(
            TRANS_HALF_TOPIC,
            0,
            body,
            final + _place_properties(topic, queue_id),
            born_timestamp_ms=born_timestamp_ms,
            born_host=born_host,
            store_host=self._turn.store_host,
            tags_code=tags_code,
            sys_flag=sys_flag,
        )
        refusal, physical_offset, queue_offset = result
        if refusal is None:
            self._put_usual_half(
                CachedHalf(
                    topic, queue_id, body, final, born_timestamp_ms, born_host,
                    sys_flag | TRANSACTION_COMMIT_TYPE, tags_code, physical_offset, queue_offset,
                    unique_key.decode("ascii"), group, waits,
                )
            )  # fmt: skip
        return result


@lru_cache(maxsize=PLACES_CACHED_MAX)
def _place_properties(topic: str, queue_id: int) -> bytes:
    return properties_to_bytes({PROPERTY_REAL_TOPIC: topic, PROPERTY_REAL_QUEUE_ID: str(queue_id)})
