"""Messages that the broker stores itself: delayed, timed, retried, dead letters.

Pure, but for the store that `InnerPuts` appends to.

Java counterpart: MessageExtBrokerInner.java, broker/util/HookUtils.java handleScheduleMessage of
5.3.3.
"""

from __future__ import annotations

from typing import Final

from ...common.clock import WallTimeMs
from ...common.delay_levels import delay_levels_ms
from ...common.java_hash import tags_code
from ...common.message_properties import (
    DELAY_NAME,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_DUE_MS,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_WAIT_STORE_MSG_OK,
    TAGS_NAME,
    find_property,
    properties_from_bytes,
    properties_to_bytes,
)
from ...common.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from ...remoting.message_codec import PROPERTIES_SIZE_MAX
from ...remoting.number_fields import INT64, parse_integer
from ...remoting.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK
from ...store.config import MessageStoreConfig
from ...store.message_store import MessageStore
from ...store.status import PutMessageStatus, PutResult
from ...store.writing.inner_message import InnerMessage
from .admission import TIMER_NAMES, TopicKinds

__all__ = [
    "TOO_LARGE",
    "DelayLevels",
    "InnerMessage",
    "InnerPuts",
    "WaitingRefused",
    "delay_level",
    "delayed",
    "timed",
]

_INT64_TEXT: Final = str(0x7FFFFFFFFFFFFFFF)
_DELIVERY_ROOM: Final = len(
    properties_to_bytes(
        {PROPERTY_TIMER_ENQUEUE_MS: _INT64_TEXT, PROPERTY_TIMER_DEQUEUE_MS: _INT64_TEXT}
    )
)
"""Bytes of the properties that a timer message gets when it is delivered."""
_TIMER_ROOM: Final = _DELIVERY_ROOM + len(properties_to_bytes({PROPERTY_TIMER_OUT_MS: _INT64_TEXT}))
"""Bytes of the properties that a timer message gets in all."""
_CHECK_ROOM: Final = len(
    properties_to_bytes(
        {PROPERTY_TRANSACTION_CHECK_TIMES: _INT64_TEXT, PROPERTY_WAIT_STORE_MSG_OK: "false"}
    )
)
"""Bytes of the properties that a half message gets when its transaction is checked."""


class DelayLevels:
    """The delay levels of a broker, counted from 1.

    Args:
      message_delay_level: the configured durations, such as "1s 5s 2h".

    Raises: ValueError: a duration is not a number and a unit.
    """

    def __init__(self, message_delay_level: str) -> None:
        self._delays_ms = delay_levels_ms(message_delay_level)

    @property
    def level_max(self) -> int:
        return len(self._delays_ms)

    def delay_ms(self, level: int) -> int:
        """The delay of a level; a level above the highest counts as the highest."""
        return self._delays_ms[min(level, self.level_max) - 1]

    def due_ms(self, level: int, now_ms: WallTimeMs) -> WallTimeMs:
        """The time of day at which a message of a level is due that is sent now."""
        return WallTimeMs(now_ms + self.delay_ms(level))


def delay_level(properties: bytes) -> int:
    """A message's delay level; 0 or less: it is not delayed.

    Raises: ValueError: DELAY is not an int32. RocketMQ answers a NumberFormatException's text.
    """
    raw = find_property(properties, DELAY_NAME)
    if raw is None:
        return 0
    level = int(raw) if len(raw) <= 11 and raw.lstrip(b"+-").isdigit() else None
    if level is None or not -(1 << 31) <= level < 1 << 31:
        raise ValueError(f"the property DELAY is {raw[:40]!r}, not a delay level")
    return level


def delayed(
    message: InnerMessage,
    level: int,
    levels: DelayLevels,
    due_ms: WallTimeMs | None = None,
) -> InnerMessage:
    """The message in the form that waits in SCHEDULE_TOPIC_XXXX.

    Args:
      due_ms: kept as a property; None: the store timestamp and the level tell when it is due.
    Source: HookUtils.transformDelayLevelMessage.
    """
    level = min(level, levels.level_max)
    waiting = message.moved(SCHEDULE_TOPIC, level - 1)
    added = {
        PROPERTY_DELAY_TIME_LEVEL: str(level),
        PROPERTY_REAL_TOPIC: message.topic,
        PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
    }
    if due_ms is not None:
        added[PROPERTY_REAL_DUE_MS] = str(due_ms)
    waiting.change_properties(added, *TIMER_NAMES)  # the level takes precedence
    return waiting


TOO_LARGE: Final = frozenset(
    {PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED}
)
"""Refusals of the store that a retry cannot change."""


class WaitingRefused(Exception):
    """A delayed, timer or half message that must not be stored.

    Attributes:
      status: the reason: WHEEL_TIMER_NOT_ENABLE, WHEEL_TIMER_MSG_ILLEGAL, or, when it would be too
        large at its delivery, MESSAGE_ILLEGAL or PROPERTIES_SIZE_EXCEEDED.
      remark: the size and its limit; "": the status says all.
    """

    def __init__(self, status: PutMessageStatus, remark: str = "") -> None:
        super().__init__(status.name)
        self.status = status
        self.remark = remark


def timed(message: InnerMessage, now_ms: WallTimeMs, config: MessageStoreConfig) -> InnerMessage:
    """The message in the form that waits in rmq_sys_wheel_timer; unchanged if it is due now.

    Raises: WaitingRefused: timers are off, its time is not a number or too far in the future, or it
      recalls a message that is due.
    Source: HookUtils.checkIfTimerMessage, transformTimerMessage.
    """
    properties = properties_from_bytes(message.properties)
    name = next((name for name in TIMER_NAMES if name in properties), None)
    if name is None or PROPERTY_TIMER_OUT_MS in properties or message.topic == TIMER_TOPIC:
        return message  # delivered already, or rolled on by Apache's broker
    if not config.timer_wheel_enable:
        raise WaitingRefused(PutMessageStatus.WHEEL_TIMER_NOT_ENABLE)
    number = parse_integer(properties[name])
    if number is None or not INT64.has(number):
        raise WaitingRefused(PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL)
    deliver_ms = number
    if name != PROPERTY_TIMER_DELIVER_MS:
        deliver_ms = now_ms + number * (1000 if name == PROPERTY_TIMER_DELAY_SEC else 1)
    if deliver_ms <= now_ms:
        if PROPERTY_TIMER_DEL_UNIQKEY in properties:
            raise WaitingRefused(PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL)
        return message
    if deliver_ms - now_ms > config.timer_max_delay_sec * 1000:
        raise WaitingRefused(PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL)
    waiting = message.moved(TIMER_TOPIC, 0)
    waiting.change_properties(
        {
            PROPERTY_TIMER_OUT_MS: str(out_ms(deliver_ms, config.timer_precision_ms)),
            PROPERTY_REAL_TOPIC: message.topic,
            PROPERTY_REAL_QUEUE_ID: str(message.queue_id),
        }
    )
    return waiting


class InnerPuts:
    """Appends messages to what the store's next commit writes.

    Args:
      store: already loaded.
      client_topics: see `TopicKinds`.

    Attributes:
      levels: of this broker.
      kinds: of this broker's topics.
    """

    def __init__(self, store: MessageStore, levels: DelayLevels, *client_topics: str) -> None:
        self._store = store
        self.levels = levels
        self.kinds = TopicKinds(*client_topics)

    def waiting(self, message: InnerMessage) -> InnerMessage:
        """The message in the form that is stored first: in a waiting topic if delivery is later.

        Raises:
          ValueError: its delay level is not a number.
          WaitingRefused: it is a timer message that must not be stored, or it would not fit the
            commit log at its delivery.
        Source: HookUtils.handleScheduleMessage.
        """
        if message.sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT_TYPE):
            return message
        level = delay_level(message.properties)
        if level > 0:
            # The message may be newer than the turn's time, by which it would be delivered early.
            self._store.writer.read_clock()
            waiting = delayed(message, level, self.levels, self._kept_due_ms(level))
            self._refuse_too_large(waiting, message.topic, len(waiting.properties))
            return waiting
        if b"TIMER_DEL" in message.properties:
            self._store.writer.read_clock()
            waiting = timed(message, self._store.wall_time_ms, self._store.config)
            if waiting is not message:
                size = len(waiting.properties) + _DELIVERY_ROOM
                self._refuse_too_large(waiting, message.topic, size)
            return waiting
        return message

    def _kept_due_ms(self, level: int) -> WallTimeMs | None:
        """When a message is due whose store timestamp does not tell it; None: that tells it.

        A queue that is built again from the log reckons from the store timestamps. They are ahead
        of the time of day while the clock, which was set back, has not caught up.
        """
        if int(self._store.wall_time_ms) == int(self._store.store_time_ms):
            return None
        return self.levels.due_ms(level, self._store.wall_time_ms)

    def refuse_half_too_large(self, half: InnerMessage, topic: str) -> None:
        """Refuse a half message that could not be written again or committed later.

        Args:
          half: in the form in which it will be stored.
          topic: the topic that it was sent to.
        Raises: WaitingRefused: MESSAGE_ILLEGAL or PROPERTIES_SIZE_EXCEEDED.
        """
        size = len(half.properties) + _CHECK_ROOM
        if b"TIMER_DEL" in half.properties:
            size += _TIMER_ROOM
        # It is written again to its topic or parked in TRANS_CHECK_MAX_TIME_TOPIC: take the longer.
        self._refuse_too_large(half, max(topic, TRANS_CHECK_MAX_TIME_TOPIC, key=len), size)

    def _refuse_too_large(self, waiting: InnerMessage, topic: str, properties_size: int) -> None:
        hosts_size = len(waiting.born_host) + len(waiting.store_host)
        has_nul = b"\0" in waiting.properties
        if not self._store.fits(
            topic, len(waiting.body), properties_size, hosts_size, has_nul=has_nul
        ):
            if properties_size <= PROPERTIES_SIZE_MAX:
                raise WaitingRefused(PutMessageStatus.MESSAGE_ILLEGAL)
            remark = (
                f"{properties_size} bytes of properties, at most {PROPERTIES_SIZE_MAX} are allowed"
            )
            raise WaitingRefused(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, remark)

    def put(self, message: InnerMessage) -> PutResult:
        """Append one message to its topic and queue; returns as `MessageStore.put`."""
        if message.topic == SCHEDULE_TOPIC:
            code: int = self.levels.due_ms(message.queue_id + 1, self._store.wall_time_ms)
        else:
            tags = find_property(message.properties, TAGS_NAME)
            code = 0 if tags is None else tags_code(str(tags, "utf-8", "replace"))
        return self._store.put(message, code)


def out_ms(deliver_ms: int, precision_ms: int) -> int:
    """The start of the slot at whose end a message is delivered: TIMER_OUT_MS, ms since 1970.

    Source: RocketMQ 5.3.3 HookUtils.transformTimerMessage.
    """
    return (deliver_ms - 1) // precision_ms * precision_ms
