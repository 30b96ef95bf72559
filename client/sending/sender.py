"""Sends of one producer: routes, connections and time around the pure `Sending`.

The logger `trocket.client.sending.sender` has a DEBUG line for each try: the queue, and how it
ended. It has none if the level was set after the producer was created.

Java counterpart: DefaultMQProducerImpl.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Coroutine
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias

import anyio

from ...remoting.bodies import MessageQueue
from ...remoting.codec import RemotingCommand
from ...remoting.request_codes import RequestCode
from ..checks.option_check import SECONDS_MAX, check_timeout
from ..connection.client import Client
from ..connection.connection import Connection
from ..connection.waiting import Window
from ..core.outgoing import Outgoing
from ..core.routes import TopicPublishInfo
from ..core.sending import TRY_TIME_MIN_S, WRONG_ROUTE_CODES, Selector, Sending, SendPolicy
from ..errors import (
    ClientError,
    ClosedError,
    ConnectError,
    RequestTimeoutError,
    SendError,
    ServerError,
)
from ..messages.message import SendResult
from ..options.send_options import RETRY_TIMES, ProducerConfig
from .packer import Packer

logger = logging.getLogger(__name__)

SEND: Final = RequestCode.SEND_MESSAGE_V2

OnEnd: TypeAlias = Callable[[SendResult | None, ClientError | None], None]
"""Called once, in the loop, with the result or the error; must not raise."""

Finish: TypeAlias = Callable[[Sending, OnEnd], Coroutine[Any, Any, None]]
"""Makes the remaining tries."""

OnSent: TypeAlias = Callable[[Sending, SendResult, RemotingCommand], None]
"""Called in the loop with a send that a broker confirmed, and its answer; must not raise."""

Spawn: TypeAlias = Callable[[Finish, Sending, OnEnd], None]
"""Runs `Finish` with its arguments in the background; may raise a ClientError."""


class Sender:
    """Carries out the sends of one producer.

    Args:
      client: open while something is sent.
      group: with namespace.
      config: the producer's.
      check_open: raises ClosedError if the producer is not open.
      on_sent: called for each confirmed send; None: nothing is called.
      waits_for_route: look up a route again while there is none.

    Attributes:
      config: the producer's.
      check_open: as it was given.
      packer: makes what is sent.

    Raises: ConfigurationError: a package is missing for the compression that is configured.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        config: ProducerConfig,
        check_open: Callable[[], None],
        on_sent: OnSent | None = None,
        *,
        waits_for_route: bool = True,
    ) -> None:
        self._client = client
        self.check_open: Callable[[], None] = check_open
        self._on_sent = on_sent
        self.config: ProducerConfig = config
        wait_s = self._wait_s = client.wait_for_broker_s
        self._policy = SendPolicy(
            RETRY_TIMES if config.retry_times is None else config.retry_times,
            waits_for_broker=config.retry_times is None if wait_s is None else wait_s > 0,
            wait_s=inf if wait_s is None else wait_s,
            retry_when_not_stored_ok=config.retry_when_not_stored_ok,
            send_latency_fault_enable=config.send_latency_fault_enable,
            first_index=partial(random.getrandbits, 31),
        )
        self._waits_for_route = waits_for_route
        self.packer: Packer = Packer(client, group, config)
        # A send outlives the wait for its broker.
        self._timeout_s = max(config.send_timeout_s or client.send_timeout_s, wait_s or 0.0)
        self._try_timeout_s = min(self._timeout_s, client.timeout_s)
        # Asked once, because a pipelined send takes only a few microseconds.
        self._is_logged = logger.isEnabledFor(logging.DEBUG)
        # Bound once: fewer objects for each unconfirmed message, and so fewer garbage collections.
        self._take_answer = self._on_answer if on_sent is None else self._on_traced_answer

    def sending(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Sending:
        """A send that has not begun.

        Args:
          queue: where to; None: a queue of the topic in turn.
          selector: chooses the queue.
          timeout_s: seconds for all tries, from now on; None: the producer's, of which one try has
            at most the client's `timeout_s`.

        Raises: ClosedError; ForkedError.
        """
        self.check_open()
        try_timeout_s = timeout_s
        if timeout_s is None:
            timeout_s, try_timeout_s = self._timeout_s, self._try_timeout_s
        elif timeout_s.__class__ is not float or not timeout_s < SECONDS_MAX:
            check_timeout("timeout_s", timeout_s)
        now_s = self._client.now_s()
        return Sending(outgoing, self._policy, now_s, timeout_s, queue, selector, try_timeout_s)

    async def publish_info(self, topic: str, sending: Sending | None = None) -> TopicPublishInfo:
        """The queues of a topic, with namespace, that can be written to.

        Args:
          sending: for which send, whose time limit is kept; None: the producer's limit, from now.

        Raises: RouteNotFoundError; ConnectError.
        """
        if sending is None:
            return await self.look_up(topic)
        return await self.look_up(topic, sending.start_s, sending.timeout_s)

    async def look_up(
        self, topic: str, start_s: float | None = None, timeout_s: float | None = None
    ) -> TopicPublishInfo:
        """The same for a send that is not made yet.

        Args:
          start_s: since when it has waited; None: from now on.
          timeout_s: its time limit, in seconds; None: the producer's.
        """
        now_s = self._client.now_s
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        wait_s = limit_s if self._wait_s is None else min(limit_s, self._wait_s)
        if not self._waits_for_route:
            wait_s = 0.0
        window = Window(now_s, wait_s, start_s, first_s=limit_s)
        count = self.config.default_topic_queue_nums
        return await self._client.publish_info(topic, count, window)

    async def connect(self, sending: Sending, limit_s: float) -> Connection:
        """The connection to where the send goes, when there is room for a request on it.

        Args:
          limit_s: seconds to wait for both.

        Raises: ConnectError; RequestTimeoutError: the broker takes no bytes; ClosedError;
          ForkedError.
        """
        client = self._client
        end_s = client.now_s() + limit_s
        address = client.master_of(sending.queue)
        connection = client.open_connection(address)
        if connection is None:
            connection = await client.connection(address, limit_s)
        if connection.is_backed_up:
            with anyio.move_on_after(end_s - client.now_s()):
                await connection.wait_writable()
                return connection
            raise RequestTimeoutError(SEND.name, address, limit_s)
        return connection

    # Sends that wait

    async def send(self, sending: Sending) -> SendResult:
        """Make the remaining tries.

        Raises: as `Producer.send`.
        """
        client = self._client
        topic = sending.outgoing.topic
        while True:
            info = client.known_publish_info(topic)
            if info is None or sending.attempts:
                left_s = await self._next_try(sending)
            else:  # nearly always
                now_s = client.now_s()
                sending.choose(info, now_s)
                left_s = sending.begin(now_s)
            answer = await self._try(sending, left_s)
            if self._take(sending, answer):
                break
        if sending.result is None:
            assert sending.error is not None  # it is over
            raise sending.error
        if self._on_sent is not None and isinstance(answer, RemotingCommand):
            self._on_sent(sending, sending.result, answer)
        return sending.result

    async def send_oneway(self, sending: Sending) -> None:
        """Make tries until one has put the message on a connection.

        Raises: as `Producer.send_oneway`.
        """
        try:
            while not await self._is_sent_oneway(sending):
                pass
        except SendError as error:
            text = f"the message could not be sent: {error.tries}"
            raise ConnectError(sending.queue.broker_name, text) from error.__cause__

    async def _is_sent_oneway(self, sending: Sending) -> bool:
        """Make one try; False: there is another one."""
        left_s = await self._next_try(sending)
        try:
            connection = await self.connect(sending, left_s)
        except (ConnectError, RequestTimeoutError) as error:
            sending.is_sent = False
            if self._take(sending, error):
                assert sending.error is not None  # it is over
                raise sending.error from error
            return False
        connection.send_oneway(sending.outgoing.encode(sending.queue, 0, oneway=True))
        return True

    async def _next_try(self, sending: Sending) -> float:
        """Wait for the route and the pause before the next try; returns the seconds that it has."""
        client = self._client
        topic = sending.outgoing.topic
        info = client.known_publish_info(topic) or await self.publish_info(topic, sending)
        now_s = client.now_s()
        sending.choose(info, now_s)
        if sending.attempts:
            await anyio.sleep(sending.pause_s(now_s))
            now_s = client.now_s()
        return sending.begin(now_s)

    def _take(self, sending: Sending, answer: RemotingCommand | ClientError) -> bool:
        """Take what a try ended in; True: the send is over."""
        is_over = sending.take(answer, self._client.now_s())
        if self._is_logged:
            _log_try(sending, self._client.now_s())
        if sending.failure is not None:
            self._look_after_routes(sending.failure, sending.outgoing.topic)
        return is_over

    async def _try(self, sending: Sending, timeout_s: float) -> RemotingCommand | ClientError:
        """The broker's answer, or why there is none."""
        client = self._client
        try:
            connection = client.open_connection(client.master_of(sending.queue))
            if connection is None or connection.is_backed_up:
                sending.is_sent = False
                start_s = client.now_s()
                connection = await self.connect(sending, timeout_s)
                timeout_s = max(timeout_s - (client.now_s() - start_s), TRY_TIME_MIN_S)
            sending.is_sent = True
            opaque = client.next_opaque()
            frame = sending.outgoing.encode(sending.queue, opaque)
            sending.address = connection.address
            return await connection.exchange(frame, opaque, timeout_s, SEND)
        except ClientError as error:
            return error

    def _look_after_routes(self, failure: ClientError, topic: str) -> None:
        if isinstance(failure, ConnectError | RequestTimeoutError):
            self._client.refresh_soon()
        elif isinstance(failure, ServerError) and failure.code in WRONG_ROUTE_CODES:
            self._client.forget_route(topic)

    # Sends without a task: a task, its context and two events cost as much as the rest of a send

    def begin(
        self, sending: Sending, spawn: Spawn, on_end: OnEnd, *, at_once: bool = False
    ) -> bool:
        """Make the first try in this call, and the others in the background.

        Args:
          at_once: see `Connection.submit`.

        Returns: False: nothing was sent, and `on_end` will not be called: the route or the
          connection is not there, or the connection has no room.
        Raises: MessageRefusedError; ConfigurationError; what a selector raises.
        """
        client = self._client
        info = client.known_publish_info(sending.outgoing.topic)
        if info is None:
            return False
        address = client.broker_address(sending.choose(info, sending.start_s).broker_name)
        if address is None:  # the queue of a static topic
            address = client.broker_address(client.owner(sending.queue))
        connection = client.open_connection(address) if address else None
        if connection is None or connection.is_backed_up:
            return False
        # The body of `_submit`, inlined: most sends take this path.
        sending.address = connection.address
        opaque = client.next_opaque()
        connection.submit(
            sending.outgoing.encode(sending.queue, opaque),
            opaque,
            partial(self._take_answer, sending, spawn, on_end),
            sending.try_timeout_s,
            at_once=at_once,
        )
        return True

    async def begin_when_ready(self, sending: Sending, spawn: Spawn, on_end: OnEnd) -> None:
        """Wait for the route, the connection and room on it, then `begin`; the time starts there.

        The wait for the route counts from `sending.start_s`, which may be earlier.

        A broker that is not there counts as no try: all tries are made in the background then.

        Raises: RouteNotFoundError; ConnectError: no name server answers; and as `begin`.
        """
        client = self._client
        topic = sending.outgoing.topic
        info = client.known_publish_info(topic) or await self.publish_info(topic, sending)
        sending.choose(info, client.now_s())
        try:
            connection = await self.connect(sending, sending.left_s(client.now_s()))
            sending.restart(client.now_s())
            self._submit(sending, connection, spawn, on_end)
        except (ConnectError, RequestTimeoutError):
            sending.restart(client.now_s())
            spawn(self.finish, sending, on_end)

    def _submit(
        self, sending: Sending, connection: Connection, spawn: Spawn, on_end: OnEnd
    ) -> None:
        opaque = self._client.next_opaque()
        sending.address = connection.address
        connection.submit(
            sending.outgoing.encode(sending.queue, opaque),
            opaque,
            partial(self._take_answer, sending, spawn, on_end),
            sending.try_timeout_s,
        )

    def _on_answer(
        self,
        sending: Sending,
        spawn: Spawn,
        on_end: OnEnd,
        answer: RemotingCommand | ClientError,
    ) -> None:
        client = self._client
        try:
            if not isinstance(answer, RemotingCommand):
                # Closing the client ends its connections: report that it was closed instead.
                client.check_open()
            is_over = sending.take(answer, client.now_s())
            if self._is_logged:
                _log_try(sending, client.now_s())
            if sending.failure is not None:
                self._look_after_routes(sending.failure, sending.outgoing.topic)
            if not is_over:
                spawn(self.finish, sending, on_end)
                return
        except ClientError as error:
            on_end(None, error)
        else:
            on_end(sending.result, sending.error)

    def _on_traced_answer(
        self,
        sending: Sending,
        spawn: Spawn,
        on_end: OnEnd,
        answer: RemotingCommand | ClientError,
    ) -> None:
        """`_on_answer` of a Sender with `on_sent`: the others have no check for each message."""
        self._on_answer(sending, spawn, on_end, answer)
        result = sending.result
        if self._on_sent and result is not None and isinstance(answer, RemotingCommand):
            self._on_sent(sending, result, answer)

    async def finish(self, sending: Sending, on_end: OnEnd) -> None:
        """Make the remaining tries, and call `on_end` with the outcome."""
        result: SendResult | None = None
        # The outcome if this task is cancelled or fails: `on_end` must be called in any case.
        failure: ClientError | None = ClosedError("it was closed before the message was confirmed")
        try:
            result = await self.send(sending)
            failure = None
        except ClientError as error:
            failure = error
        finally:
            on_end(result, failure)


def _log_try(sending: Sending, now_s: float) -> None:
    """Log how a try ended; only with DEBUG."""
    if sending.result is not None:
        outcome: object = sending.result.status.name
    else:
        outcome = sending.failure or sending.error
    logger.debug(
        "%s to %s/%d, try %d, %.3g s after the send began: %s",
        sending.outgoing.message_id,
        sending.queue.broker_name,
        sending.queue.queue_id,
        len(sending.attempts) + (sending.failure is None),
        now_s - sending.start_s,
        outcome,
    )
