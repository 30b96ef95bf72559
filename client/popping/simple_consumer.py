"""The simple consumer: the program asks for messages, and settles each one by its receipt.

The broker keeps the state of the group, message by message: there are no queues to assign and no
offsets to commit, and a program that ends or restarts leaves nothing behind but messages that
become visible again.

Java counterpart: SimpleConsumer of the 5.x clients (rocketmq-clients), with the proxy's pops.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Never, NoReturn, Self, Unpack

import anyio
import anyio.lowlevel

from ...remoting.bodies import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from ...remoting.pop_requests import INVISIBLE_S_MIN, Place, PopAnswer, PopOrder, Settled
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..checks.call_check import refuse_names
from ..checks.misuse import explained, knows_elsewhere, wrong_for
from ..checks.other_names import SIMPLE_CONSUMER
from ..connection.client import Client
from ..connection.members import GroupMember
from ..connection.options import split_options
from ..connection.participant import Participant, configured, subscribed_to
from ..core.routes import subscribe_queues
from ..core.subscription import MessageSelector, check_subscriptions
from ..core.topics import check_consumer_group, check_topic
from ..errors import ClientError, ClosedError, ConfigurationError, RequestTimeoutError, ServerError
from ..messages.interceptor import call_after_consume, call_before_consume
from ..options.consumer_options import check_start_by_grpc
from ..options.push_options import MAX_RECONSUME_TIMES, RetryLater
from ..options.simple_options import (
    INVISIBLE_S,
    RECEIVE_COUNT,
    WAIT_S,
    SimpleConsumerConfig,
    SimpleConsumerOptions,
    check_invisible,
    check_receive,
    pop_init_mode,
)
from ..pulling.sql_check import check_sql_subscriptions
from ..sending.tracing import consumer_trace
from ..tasks.first_answer import NEXT_SERVER_S
from ..tasks.task_group import together
from .late_answers import LateAcks, LatePops, joined
from .pop_race import pop_at_all
from .pop_watch import PopWatch
from .popped_message import PoppedMessage, check_settling, queue_of
from .popper import EMPTY_PAUSE_S, POLL_S_MAX, TRANSIENT_ERRORS, Popper

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
"""Pause after all brokers were out of reach."""


@knows_elsewhere(SIMPLE_CONSUMER)
class SimpleConsumer(Participant):
    """Receives messages of a group by pops; the broker shares them among all who ask.

    Use, under trio or asyncio::

        async with SimpleConsumer(url, group="g", subscriptions={"Topic": "*"}) as consumer:
            for message in await consumer.receive():
                ...
                await consumer.ack(message)

    A message that is received is invisible to others for a time. If it is not acknowledged by then,
    the broker delivers it again, to any consumer of the group.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the consumer group.
      subscriptions: the topics to receive from, each with the messages to receive: "*" for all,
        tags ("A || B"), Tag or Sql. Default: none; see `subscribe`.
      options: see SimpleConsumerOptions; those of ClientOptions are allowed only with a URL.

    Raises: ConfigurationError: the URL, a name, a selector or an option is invalid.
    """

    @explained
    def __init__(
        self,
        client: str | Client,
        *,
        group: str,
        subscriptions: Mapping[str, MessageSelector] | None = None,
        **options: Unpack[SimpleConsumerOptions],
    ) -> None:
        self._config, client_options = split_options(SimpleConsumerConfig, options)
        super().__init__(client, client_options, group, check_consumer_group)
        if self._client.grpc is not None:
            check_start_by_grpc(self._config.consume_from_where)
        init_mode = pop_init_mode(self._config.consume_from_where)
        self._popper = Popper(self._client, self._group, init_mode)
        self._subscriptions: dict[str, SubscriptionData] = {}
        if subscriptions is not None:
            configured(check_subscriptions, subscriptions)
            for topic, selector in subscriptions.items():
                self._subscribe(topic, selector)
        trace = consumer_trace(self._client, self._group, self._config.trace)
        self._interceptors = self._client.interceptors
        if trace is not None:
            self._traces = trace.dispatcher
            self._interceptors = (*self._interceptors, trace)
        # Known until a route or a subscription changes.
        self._places: list[Place] | None = None
        self._turn = 0
        # Attempts in order that got no answer: they are made again, by the same ids.
        self._lost_attempts: dict[Place, list[PopOrder]] = {}
        self._watch = PopWatch(
            self._client, self._popper, self._subscriptions, is_orderly=self._config.is_orderly
        )
        self._pops = LatePops(self._client, self._subscriptions, self._watch.wake)
        self._late_acks = LateAcks(self._client, self._popper, self._on_acknowledged)
        self._member = GroupMember(
            self._group,
            self._describe,
            lambda: list(self._subscriptions),
            on_routes_changed=self._forget_places,
        )

    def _describe(self) -> ConsumerData:
        return ConsumerData(
            group_name=self._group,
            consume_type=ConsumeType.CONSUME_POP,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=self._config.consume_from_where,
            subscription_data_set=list(self._subscriptions.values()),
        )

    async def _before_joining(self) -> None:
        self._watch.open()
        subscriptions = list(self._subscriptions.values())
        await check_sql_subscriptions(self._client, self._group, subscriptions)

    async def _leave(self) -> None:
        self._watch.close()
        # Shielded from cancellation, so that brokers do not count this member for two minutes.
        with anyio.move_on_after(self._client.timeout_s, shield=True):
            await together((self._late_acks.finish, super()._leave))

    # Subscriptions

    @property
    def subscriptions(self) -> dict[str, str]:
        """The topics, without namespace, each with its tags or SQL expression."""
        return {
            self._client.without_namespace(topic): data.sub_string
            for topic, data in self._subscriptions.items()
        }

    def subscribe(self, topic: str, selector: MessageSelector = "*") -> None:
        """Receive from a topic from now on; a topic that is subscribed gets another selector.

        Args:
          topic: the topic.
          selector: which messages to receive: tags ("A || B"), Tag or Sql; "*" selects all.

        Raises:
          ConfigurationError: the topic's name or the selector is invalid.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._check_open()
        self._subscribe(topic, selector)
        self._forget_places()
        self._client.heartbeat_soon()

    def unsubscribe(self, topic: str) -> None:
        """Receive no more messages of a topic; those received before can be settled.

        Raises:
          ConfigurationError: it is not subscribed.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._check_open()
        if self._subscriptions.pop(self._client.with_namespace(topic), None) is None:
            raise ConfigurationError(f"the consumer does not subscribe to the topic {topic}")
        self._forget_places()
        self._client.heartbeat_soon()

    def _subscribe(self, topic: str, selector: MessageSelector) -> None:
        configured(check_topic, topic)
        full = self._client.with_namespace(topic)
        self._subscriptions[full] = subscribed_to(full, selector, self._client.wall_ms())

    def _forget_places(self) -> None:
        self._places = None

    # Messages

    async def receive(
        self,
        /,
        max_messages: int = RECEIVE_COUNT,
        *,
        invisible_s: float = INVISIBLE_S,
        wait_s: float = WAIT_S,
        **unknown: Never,
    ) -> list[PoppedMessage]:
        """Receive messages, which are invisible to others until they are acknowledged.

        Each call begins with another broker and topic, in turn. Brokers that cannot be reached are
        tried again until the time is over. If the call is cancelled, messages that were on their
        way are delivered again after `invisible_s`.

        Args:
          max_messages: largest number of messages, 1 to 32.
          invisible_s: seconds until a message that is not acknowledged is delivered again, 0.001
            to three days.
          wait_s: seconds to wait for the first message, >= 0; `math.inf`: until there is one. A
            request that is under way then gets its own time limit.

        Returns: the messages; an empty list if there were none in time.
        Raises:
          ConfigurationError: an argument is out of range, no topic is subscribed, the broker is
            older than RocketMQ 5.0, or it refuses an SQL92 expression.
          RouteNotFoundError: no name server knows a topic, or the broker has deleted it.
          AccessDeniedError: the group or the topic may not be read.
          ServerError: a broker refused the request.
          ConnectError, RequestTimeoutError: no broker could be reached all the time.
          BadAnswerError: an answer violates the protocol.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._check_open()
        refuse_names("receive of a SimpleConsumer", unknown)
        check_receive(max_messages, wait_s)
        check_invisible("invisible_s", invisible_s, INVISIBLE_S_MIN)
        end_s = self._client.now_s() + wait_s
        sweep = _Sweep(max_messages, invisible_s, end_s)
        self._turn += 1
        while True:
            places = await self._all_places(end_s)
            found = await self._sweep(places, sweep)
            left_s = end_s - self._client.now_s()
            if found or (left_s <= 0 and sweep.failure is None):
                return self._handed_out(found)
            if sweep.failure is not None:
                if left_s <= 0:
                    # One that is only slow may still answer in the time of one request.
                    if await self._pops.wait_for_answer(self._client.timeout_s):
                        return self._handed_out(self._pops.take(max_messages))
                    raise sweep.failure
                self._client.refresh_soon()
                await anyio.sleep(min(RETRY_S, left_s))
            elif len(places) > 1 and self._client.grpc is None:
                if sweep.is_watched:
                    # A broker announced messages and gave none: an earlier message of their queue
                    # is not acknowledged, or other members had them first.
                    await anyio.sleep(min(EMPTY_PAUSE_S, left_s))
                sweep.is_watched = True
                if not self._pops.has_messages:
                    await self._watch.wait_for_any(places, end_s - self._client.now_s())
            else:
                await anyio.sleep(min(EMPTY_PAUSE_S, left_s))

    def _handed_out(self, messages: list[PoppedMessage]) -> list[PoppedMessage]:
        for message in messages if self._interceptors else ():
            call_before_consume(self._interceptors, message)
        return messages

    async def _all_places(self, end_s: float) -> list[Place]:
        """All brokers of all topics; neighbours are of different topics, if there are several.

        Until `end_s`, it waits for name servers that are away and for topics that are not there.
        """
        places = self._places
        if places is not None:
            return places
        if not self._subscriptions:
            raise ConfigurationError("the consumer subscribes to no topic: call `subscribe` first")
        subscribed = list(self._subscriptions)
        by_rank: list[tuple[int, Place]] = []
        wait_s = max(end_s - self._client.now_s(), 0.0)
        if self._client.wait_for_broker_s is not None:
            wait_s = min(wait_s, self._client.wait_for_broker_s)
        look_up = partial(self._client.route, wait_s=wait_s, is_missing_ok=True)
        routes = await together(partial(look_up, topic) for topic in subscribed)
        for topic, route in zip(subscribed, routes, strict=True):
            queues = subscribe_queues(topic, route)
            brokers = dict.fromkeys(self._client.owner(queue) for queue in queues)
            by_rank += [(rank, Place(topic, name)) for rank, name in enumerate(brokers)]
        if not by_rank:
            topics = ", ".join(subscribed)
            raise ConfigurationError(f"no broker has readable queues of {topics}: see their perm")
        places = [place for _, place in sorted(by_rank)]
        if list(self._subscriptions) == subscribed:
            self._places = places
        return places

    async def _sweep(self, places: Sequence[Place], sweep: _Sweep) -> list[PoppedMessage]:
        """Pop from one place after the other, until one has messages.

        With a single place, its broker waits for them. Of several, one that does not answer is
        passed over.
        """
        first = self._turn % len(places)
        late = self._pops.take(sweep.count)
        if late:
            return late
        in_turn = (*places[first:], *places[:first])
        if len(places) > 1 and self._client.grpc is not None:
            raced = await pop_at_all(in_turn, partial(self._pop_and_wait, sweep))
            self._pops.put(raced.late)
            sweep.failure = joined(raced.failures) if len(raced.failures) == len(places) else None
            return raced.found
        failures: list[ClientError] = []
        for place in in_turn:
            found: list[PoppedMessage] | None
            try:
                if len(places) == 1:
                    found = await self._pop_and_wait(sweep, place)
                else:
                    found = await self._pops.pop(place, partial(self._pop, place, sweep, 0.0))
            except TRANSIENT_ERRORS as error:
                await anyio.lowlevel.checkpoint_if_cancelled()
                logger.debug("a pop from %s failed: %s", place, error)
                failures.append(error)
                continue
            if found:
                return found
            if found is None:
                failures.append(self._silence(place))
        sweep.failure = joined(failures) if len(failures) == len(places) else None
        return []

    def _silence(self, place: Place) -> RequestTimeoutError:
        address = self._client.broker_address(place.broker_name) or place.broker_name
        return RequestTimeoutError(RequestCode.POP_MESSAGE.name, address, NEXT_SERVER_S)

    async def _pop_and_wait(self, sweep: _Sweep, place: Place) -> list[PoppedMessage]:
        left_s = max(sweep.end_s - self._client.now_s(), 0.0)
        return await self._pop(place, sweep, min(left_s, POLL_S_MAX))

    async def _pop(self, place: Place, sweep: _Sweep, poll_s: float) -> list[PoppedMessage]:
        subscription = self._subscriptions.get(place.topic)
        if subscription is None:  # unsubscribed in the meantime
            return []
        asked_s = self._client.now_s()
        try:
            answer = await self._attempt(place, subscription, sweep, poll_s)
        except ServerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                self._client.forget_route(place.topic)
                self._forget_places()
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST or sweep.is_announced:
                raise
            # The broker has not received the first heartbeat yet.
            sweep.is_announced = True
            await self._client.heartbeat(error.address)
            answer = await self._attempt(place, subscription, sweep, poll_s)
        # A broker that holds no pop takes the messages when it is asked, however late it answers.
        return self._received(place, answer, self._client.now_s() if poll_s else asked_s)

    async def _attempt(
        self, place: Place, subscription: SubscriptionData, sweep: _Sweep, poll_s: float
    ) -> PopAnswer:
        order = None
        if self._config.is_orderly:
            lost = self._lost_attempts.get(place)
            order = lost.pop() if lost else PopOrder(uuid.uuid4().hex)
        is_answered = False
        try:
            answer = await self._popper.pop(
                place,
                subscription,
                count=sweep.count,
                invisible_s=sweep.invisible_s,
                poll_s=poll_s,
                order=order,
            )
            is_answered = True
        except ServerError:
            is_answered = True
            raise
        finally:
            if order is not None and not is_answered:
                self._lost_attempts.setdefault(place, []).append(order)
        return answer

    def _received(self, place: Place, answer: PopAnswer, popped_s: float) -> list[PoppedMessage]:
        topic = self._client.without_namespace(place.topic)
        received = []
        others = []
        for ext, receipt, is_selected in answer.messages:
            settled = Settled(place.topic, receipt)
            if is_selected:
                queue = queue_of(settled, self._group)
                deadline_s = popped_s + receipt.invisible_time / 1000
                received.append(PoppedMessage(ext, topic, settled, queue, deadline_s))
            else:
                others.append(settled)
        if others:
            # Their tags have the hash codes of the wanted ones: the group has passed them.
            self._client.start_soon(self._ack_others, others)
        return received

    async def _ack_others(self, others: Sequence[Settled]) -> None:
        for settled, error in await self._popper.ack_all(others):
            logger.warning("%s was not acknowledged: %s", settled, error)

    # Settling

    async def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a message: the group is done with it.

        It is sent again for ten seconds while the broker cannot be reached; once, if it takes the
        request and does not answer.

        Raises:
          AlreadySettledError: it is acknowledged already.
          ExpiredReceiptError: the broker does not accept the receipt (any more): the message is
            delivered again, or is gone. Brokers accept most late acknowledgements without a word,
            and deliver the message again all the same.
          ConnectError, RequestTimeoutError: the broker could not be reached in time.
          ServerError: the broker refused the request.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._check_open()
        check_settling(message, "ack")
        await self._popper.ack(message.settled, is_awaited=True)
        self._on_acknowledged(message)

    async def ack_all(self, messages: Iterable[PoppedMessage]) -> None:
        """Acknowledge messages: in one request for each broker, where it takes batches.

        Those that could not be acknowledged have `is_settled` false afterwards. A broker that takes
        batches passes over receipts that have expired.

        Raises:
          AlreadySettledError: one is acknowledged already; nothing is sent.
          ClientError: the error of the first message that was not acknowledged; see `ack`.
        """
        self._check_open()
        given = list(messages)
        for each in given:
            check_settling(each, "ack_all")
        wanted = {each.settled: each for each in given}
        failed = await self._popper.ack_all(list(wanted), is_awaited=True)
        left = {settled for settled, _ in failed}
        for settled, message in wanted.items():
            if settled not in left:
                self._on_acknowledged(message)
        if failed:
            raise failed[0][1]

    def _on_acknowledged(self, message: PoppedMessage) -> None:
        message.on_acknowledged()
        call_after_consume(self._interceptors, message, None)

    async def change_invisible(self, message: PoppedMessage, seconds: float) -> None:
        """Change the time after which a message is delivered again, counted from now.

        The message gets a new receipt; the old one is not valid any more.

        Args:
          message: a message that is not acknowledged.
          seconds: 0 delivers it again soon; at most three days.

        Raises: ConfigurationError: the time is out of range; and as `ack`.
        """
        self._check_open()
        check_invisible("seconds", seconds, 0)
        check_settling(message, "change_invisible")
        receipt = await self._popper.change_invisible(message.settled, seconds, is_awaited=True)
        message.on_changed(receipt, self._client.now_s() + seconds)

    async def dead_letter(self, message: PoppedMessage) -> None:
        """Give a message up: the broker copies it to the group's dead-letter topic.

        Then it is acknowledged. If that fails, it may be delivered, and given up, again.

        Args:
          message: a message that is not acknowledged.

        Raises: as `ack`.
        """
        self._check_open()
        check_settling(message, "dead_letter")
        await self._popper.bury(message.settled, message._ext, MAX_RECONSUME_TIMES)
        await self._popper.ack(message.settled, is_awaited=True)
        message.on_acknowledged()
        call_after_consume(self._interceptors, message, RetryLater(-1))

    # Iteration

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise wrong_for(self, "async for")

    def __aiter__(self) -> AsyncIterator[PoppedMessage]:
        return self.messages()

    def messages(
        self,
        *,
        max_messages: int = RECEIVE_COUNT,
        invisible_s: float = INVISIBLE_S,
        auto_ack: bool = True,
    ) -> AsyncIterator[PoppedMessage]:
        """Iterate over messages until the consumer is closed.

        Messages are received `max_messages` at a time. Those whose invisible time ends before their
        turn are left out: the broker delivers them again. So are those that are left when the
        iteration ends early.

        Args:
          max_messages, invisible_s: see `receive`.
          auto_ack: acknowledge each message when the next one is requested, unless it is settled
            already; a message that ends the iteration (`break`, an exception) is delivered again.

        Raises: ClosedError: at the first message, if the consumer was never opened.
        """
        return _Messages(
            self, self._late_acks, lambda: self._was_opened, max_messages, invisible_s, auto_ack
        )


class _Sweep:
    """What one `receive` asks for.

    Attributes:
      count, invisible_s: see `receive`.
      end_s: until when to wait for the first message, by the client's clock.
      failure: the last error, if no broker could be reached.
      is_announced: a heartbeat was sent because a broker did not know the group.
      is_watched: it has waited at several brokers or topics before.
    """

    __slots__ = ("count", "end_s", "failure", "invisible_s", "is_announced", "is_watched")

    def __init__(self, count: int, invisible_s: float, end_s: float) -> None:
        self.count = count
        self.invisible_s = invisible_s
        self.end_s = end_s
        self.failure: ClientError | None = None
        self.is_announced = False
        self.is_watched = False


class _Messages:
    """An iteration over a simple consumer's messages."""

    def __init__(
        self,
        consumer: SimpleConsumer,
        acks: LateAcks,
        was_opened: Callable[[], bool],
        count: int,
        invisible_s: float,
        auto_ack: bool,
    ) -> None:
        self._consumer = consumer
        self._acks = acks
        self._was_opened = was_opened
        self._count = count
        self._invisible_s = invisible_s
        self._auto_ack = auto_ack
        self._received: list[PoppedMessage] = []
        self._last: PoppedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PoppedMessage:
        try:
            last, self._last = self._last, None
            if last is not None and not last.is_settled:
                await self._acks.ack(last)
            message = await self._next()
        except ClosedError:
            if self._was_opened():
                raise StopAsyncIteration from None
            raise
        if self._auto_ack:
            self._last = message
        return message

    async def _next(self) -> PoppedMessage:
        consumer = self._consumer
        while True:
            while self._received:
                message = self._received.pop(0)
                if consumer.client.now_s() < message.deadline_s:
                    return message
            self._received = await consumer.receive(self._count, invisible_s=self._invisible_s)
