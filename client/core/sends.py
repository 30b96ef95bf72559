"""A send: what is prepared for it, which queue each try goes to, and which answer ends it.

A `PreparedSend` is a message or batch that only lacks its queue. A `Send` has its tries, and all
ways to send step through one: `Producer.send` waits between its steps, `send_soon` and the blocking
producer take the first try's steps in one plain call. A try has three steps:

1. `choose` picks the queue; `pause_s` says how long to wait before it.
2. `begin` starts the try's clock, which a new or restarted send has running; `prepared.encode`
   makes the frame.
3. `take` gets the answer, or the error that stands for it. True: the send is over, with `result` or
   `error`. False: there is another try, from step 1 on.

While a broker cannot be reached, tries follow with growing pauses until the deadline, so a send
outlives a restart; other failures have `retry_times` more tries.

A message for a certain queue (given, by a selector, or by its sharding key) is tried once:
elsewhere it would be out of order. Only a try that could not even connect is followed by another
one at the same broker. A message that is stored is not tried again because its answer
cannot be read: it would be stored twice.

Java counterpart: DefaultMQProducerImpl.sendDefaultImpl and sendKernelImpl,
MQClientAPIImpl.onExceptionImpl and processSendResponse. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, TypeAlias

import msgspec

from ...common.java_hash import java_hash_code
from ...remoting.bodies import MessageQueue
from ...remoting.codec import RemotingCommand
from ...remoting.errors import LocalProtocolError
from ...remoting.response_codes import ResponseCode
from ...remoting.send_template import SendPayload, SendTemplate
from ..errors import (
    Attempt,
    BadAnswerError,
    ClientError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    ForkedError,
    MessageRefusedError,
    SendError,
    ServerError,
    server_error,
)
from ..messages.message import Message, SendResult, SendStatus
from ..messages.sendable import check_takes, is_queue, wrong_choice, wrong_queue
from .fault_strategy import FaultStrategy, RoundRobinIndex
from .routes import TopicPublishInfo

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses the queue of a message among all of its topic."""

RETRY_PAUSE_S: Final = 0.1
"""Pause before an unreachable broker is tried again; doubled each time. (RocketMQ: none.)"""

RETRY_PAUSE_MAX_S: Final = 1.0
"""Longest such pause: a broker that is back is used within a second."""

TRY_TIME_MIN_S: Final = 0.001
"""Least time of a first try, if none is left: its answer then shows what happened."""

RETRY_CODES: Final = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
    }
)
"""Refusals that are tried again. Source: DefaultMQProducer.retryResponseCodes, which lacks
NOT_LEADER_FOR_QUEUE: Apache's producer fails while a queue of a static topic moves."""

REJECTED: Final = "[REJECTREQUEST]"
"""The begin of the remark of a broker that takes no sends now. Source: NettyRemotingAbstract."""

WRONG_ROUTE_CODES: Final = frozenset(
    {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NOT_LEADER_FOR_QUEUE}
)
"""Refusals that show that the route of the topic has changed."""

_SEND: Final = "SEND_MESSAGE_V2"
_SUCCESS: Final = int(ResponseCode.SUCCESS)


STORED: Final[Mapping[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}
"""Response codes after which the message is in the master's log, and their SendStatus."""


class BatchEntry(NamedTuple):
    """A message that is prepared for a batch.

    Attributes:
      message: the message that the program gave.
      message_id: its unique key.
      size: size of the body, in bytes.
      encoded: the message as it stands in a batch's body.
    """

    message: Message
    message_id: str
    size: int
    encoded: bytes


class PreparedSend(msgspec.Struct, gc=False):
    """A message or a batch, ready to be sent to any queue of its topic.

    Attributes:
      message: the message that the program gave; for a batch, the first one.
      topic: name of the topic, with namespace.
      message_id: its unique key; for a batch, all unique keys joined by commas.
      template: encodes the request.
      payload: the encoded message.
      entries: the messages of a batch of several.
    """

    message: Message
    topic: str
    message_id: str
    template: SendTemplate
    payload: SendPayload
    entries: Sequence[BatchEntry] = ()

    def encode(self, queue: MessageQueue, opaque: int, *, oneway: bool = False) -> bytes:
        """Encode the whole request.

        Raises: MessageRefusedError: the message or a field is too long.
        """
        try:
            return self.template.encode(
                self.payload, queue.queue_id, queue.broker_name, opaque, oneway=oneway
            )
        except LocalProtocolError as error:
            raise MessageRefusedError(str(error)) from error

    def result(self, answer: RemotingCommand, queue: MessageQueue) -> SendResult:
        """The result that an answer with a response code of STORED reports.

        Raises: BadAnswerError: a field is missing or invalid.
        """
        # Called for each message, so without a header object, which costs three times as much.
        find = answer.ext_fields.get
        try:
            queue_id = int(answer.ext_fields["queueId"])
            queue_offset = int(answer.ext_fields["queueOffset"])
            offset_message_id = answer.ext_fields["msgId"]
        except (KeyError, ValueError) as error:
            raise BadAnswerError(
                queue.broker_name, f"a field of the send's answer is missing or invalid: {error}"
            ) from error
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        message_id = self.message_id
        if self.payload.is_batch:
            message_id = find("batchUniqId") or message_id
        return SendResult(
            STORED[answer.code],
            message_id,
            queue,
            queue_offset,
            offset_message_id,
            find("transactionId"),
            find("recallHandle"),
            find("MSG_REGION"),
        )


class SendPolicy:
    """Which queues a producer's sends go to, and how often they are tried. One for each producer.

    Args:
      retry_times: tries after the first.
      waits_for_broker: tries of a broker that could not be reached do not count: they go on until
        the deadline, or for `wait_s` if that is shorter.
      retry_when_not_stored_ok: try again when the status is not SEND_OK.
      send_latency_fault_enable: avoid brokers that answered late.
      wait_s: seconds, from the begin of a send, in which such tries do not count.
      first_index: gives where the round of a topic's queues begins, any int; random, so that
        producers that start together do not all begin with queue 0.

    Attributes:
      is_learning: it wants to hear of each try; else `note` does nothing.
    """

    def __init__(
        self,
        retry_times: int,
        *,
        retry_when_not_stored_ok: bool,
        send_latency_fault_enable: bool,
        first_index: Callable[[], int],
        waits_for_broker: bool = False,
        wait_s: float = inf,
    ) -> None:
        self.retry_times: int = retry_times
        self.waits_for_broker: bool = waits_for_broker
        self.wait_s: float = wait_s
        self.retry_when_not_stored_ok: bool = retry_when_not_stored_ok
        self.is_learning: bool = send_latency_fault_enable
        self._first_index = first_index
        self._indexes: dict[str, RoundRobinIndex] = {}
        self._strategy = FaultStrategy(send_latency_fault_enable=send_latency_fault_enable)

    def select(
        self, info: TopicPublishInfo, last_broker_name: str | None, now_s: float
    ) -> MessageQueue:
        """The next queue in turn, of another broker than the one that just failed if possible."""
        index = self._indexes.get(info.topic)
        if index is None:
            index = self._indexes[info.topic] = RoundRobinIndex(self._first_index())
        if last_broker_name is None and not self.is_learning:
            # The strategy would choose the same queue; most sends take this path.
            return info.queues[index.next() % len(info.queues)]
        queue = self._strategy.select(
            info, index, now_ms=now_s * 1000, last_broker_name=last_broker_name
        )
        assert queue is not None  # routes without queues are errors before
        return queue

    def note(self, broker_name: str, elapsed_s: float, now_s: float, *, is_failed: bool) -> None:
        """Note the latency of a try, if slow brokers are avoided."""
        self._strategy.update(broker_name, elapsed_s * 1000, is_failed, True, now_s * 1000)


class Send:
    """One message or batch, from its first try to its last.

    Args:
      prepared: what is sent.
      start_s: now, on the clock of all `now_s`.
      timeout_s: seconds for all tries.
      queue: where to; None: a queue of the topic in turn.
      selector: chooses the queue.
      try_timeout_s: seconds for one try; None: all of `timeout_s`.

    Attributes:
      start_s: when it began, or was restarted.
      timeout_s: seconds for all tries from then on.
      try_timeout_s: seconds for one try, at most `timeout_s`.
      queue: where the try goes; set by `choose`.
      is_sent: the try has got as far as a connection, so a broker may have the message.
      address: of the broker that the try goes to, for texts; set with its connection.
      attempts: the tries that failed, in order.
      failure: how the try that was taken last failed; None: it did not.
      result: of a send that is over; None: it failed.
      error: why it failed.
    """

    __slots__ = (
        "_begin_s",
        "_fixed",
        "_last_broker",
        "_policy",
        "_selector",
        "_wanted",
        "address",
        "attempts",
        "error",
        "failure",
        "is_sent",
        "prepared",
        "queue",
        "result",
        "start_s",
        "timeout_s",
        "try_timeout_s",
    )

    queue: MessageQueue
    address: str

    def __init__(
        self,
        prepared: PreparedSend,
        policy: SendPolicy,
        start_s: float,
        timeout_s: float,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        try_timeout_s: float | None = None,
    ) -> None:
        self.prepared: PreparedSend = prepared
        self.start_s: float = start_s
        self.timeout_s: float = timeout_s
        self.try_timeout_s: float = timeout_s if try_timeout_s is None else try_timeout_s
        self.attempts: Sequence[Attempt] = ()
        self.failure: ClientError | None = None
        self.is_sent: bool = True
        self.result: SendResult | None = None
        self.error: ClientError | None = None
        self._begin_s = start_s
        self._policy = policy
        self._wanted = queue
        self._selector = selector
        self._fixed: MessageQueue | None = None
        self._last_broker: str | None = None

    # Step 1

    def choose(self, info: TopicPublishInfo, now_s: float) -> MessageQueue:
        """Pick the queue of the next try.

        Args:
          info: where the topic can be written.

        Raises: ConfigurationError: the queue that was given is of another topic; what a selector
          raises.
        """
        fixed = self._fixed
        if fixed is None:
            fixed = self._fixed = self._fixed_queue(info)
        queue = fixed or self._policy.select(info, self._last_broker, now_s)
        self.queue = queue
        return queue

    def _fixed_queue(self, info: TopicPublishInfo) -> MessageQueue | None:
        """The one queue that the message has to go to, if there is one."""
        prepared, queue = self.prepared, self._wanted
        if queue is not None:
            if not is_queue(queue):
                raise wrong_queue(queue, prepared.message.topic)
            if queue.topic in (prepared.topic, prepared.message.topic):
                return queue
            raise ConfigurationError(
                f"a queue of {queue.topic} for a message to {prepared.message.topic}"
            )
        if self._selector is not None:
            try:
                chosen = self._selector(info.queues, prepared.message)
            except TypeError:
                check_takes("selector", self._selector, "choose(queues, message)")
                raise
            if not is_queue(chosen):
                raise wrong_choice(chosen)
            return chosen
        key = prepared.message.sharding_key
        if key is not None:
            return info.queues[abs(java_hash_code(key)) % len(info.queues)]
        return None

    def pause_s(self, now_s: float) -> float:
        """Seconds to wait before the chosen queue is tried.

        Above 0 if it could not be reached before: it may be about to come back.
        """
        name = self.queue.broker_name
        count = len(self.attempts)
        if not any(
            a.broker_name == name and (_is_away(a.error) or _is_moving(a.error))
            for a in self.attempts
        ):
            return 0.0
        pause_s = min(RETRY_PAUSE_S * 2.0 ** (count - 1), RETRY_PAUSE_MAX_S)
        left_s = max(self.timeout_s - (now_s - self.start_s), 0.0)
        if self._policy.waits_for_broker:
            return min(pause_s, left_s)
        # Reserve time for the remaining tries.
        return min(pause_s, left_s / 4)

    def left_s(self, now_s: float) -> float:
        """Seconds of the time for all tries that are left."""
        return max(self.timeout_s - (now_s - self.start_s), TRY_TIME_MIN_S)

    # Step 2

    def begin(self, now_s: float) -> float:
        """Start the try's clock.

        Returns: seconds that the try has.
        Raises: SendError: the time is over, and there were tries.
        """
        left_s = self.timeout_s - (now_s - self.start_s)
        if left_s <= 0 and self.attempts:
            raise self._given_up()
        self._begin_s = now_s
        self.failure = None
        if left_s > self.try_timeout_s:
            left_s = self.try_timeout_s
        return left_s if left_s > TRY_TIME_MIN_S else TRY_TIME_MIN_S

    @property
    def try_start_s(self) -> float:
        """When the last try began."""
        return self._begin_s

    # Step 3

    def take(self, answer: RemotingCommand | ClientError, now_s: float) -> bool:
        """Take what the try ended in; True: the send is over."""
        if not isinstance(answer, RemotingCommand):
            return self._fail(answer, now_s)
        code = answer.code
        if code not in STORED:
            return self._fail(server_error(code, answer.remark, self.address, _SEND), now_s)
        policy, queue = self._policy, self.queue
        if policy.is_learning:
            policy.note(queue.broker_name, now_s - self._begin_s, now_s, is_failed=False)
        try:
            result = self.prepared.result(answer, queue)
        except ClientError as error:
            self.error = error
            return True
        if (
            code == _SUCCESS
            or not policy.retry_when_not_stored_ok
            or len(self.attempts) >= policy.retry_times
        ):
            self.result = result
            return True
        self._note(server_error(result.status, "", queue.broker_name, _SEND), now_s)
        return self._is_last(now_s)

    def _fail(self, error: ClientError, now_s: float) -> bool:
        if isinstance(error, MessageRefusedError | ClosedError | ForkedError):
            # No broker's fault, and no other try is better.
            self.error = error
            return True
        broker_name = self.queue.broker_name
        self._policy.note(broker_name, now_s - self._begin_s, now_s, is_failed=True)
        self._note(error, now_s)
        self._last_broker = broker_name
        if isinstance(error, ServerError) and error.code not in RETRY_CODES:
            self.error = error
            return True
        return self._is_last(now_s)

    def _note(self, error: ClientError, now_s: float) -> None:
        self.failure = error
        attempt = Attempt(self.queue.broker_name, now_s - self._begin_s, error)
        self.attempts = (*self.attempts, attempt)

    def _is_last(self, now_s: float) -> bool:
        policy, count = self._policy, len(self.attempts)
        if policy.waits_for_broker:
            is_away = self.failure is not None and _is_away(self.failure)
            if is_away and now_s - self.start_s < policy.wait_s and self._may_follow:
                return False
            count -= sum(_is_away(each.error) for each in self.attempts)
        if self._fixed is not None or count > policy.retry_times:
            self.error = self._given_up()
            return True
        return False

    @property
    def _may_follow(self) -> bool:
        """Whether another try keeps the order: after one that no broker has seen it does."""
        return self._fixed is None or not self.is_sent

    def _given_up(self) -> SendError:
        error = SendError(self.prepared.message.topic, self.attempts)
        error.__cause__ = self.attempts[-1].error
        return error

    def restart(self, now_s: float) -> None:
        """Restart the timeout for the remaining tries, for which the caller does not wait."""
        self.start_s = self._begin_s = now_s


def _is_away(error: ClientError) -> bool:
    """Whether no broker takes messages there: it cannot be reached, or is a slave, because another
    one has become the master. RocketMQ's remark of both is that of overload, too."""
    return isinstance(error, ConnectError) or (
        isinstance(error, ServerError)
        and error.code == ResponseCode.SYSTEM_BUSY
        and error.remark.startswith(REJECTED)
    )


def _is_moving(error: ClientError) -> bool:
    """Whether a queue of a static topic is about to be at another broker."""
    return isinstance(error, ServerError) and error.code == ResponseCode.NOT_LEADER_FOR_QUEUE
