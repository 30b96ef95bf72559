"""Sends of one producer: routes, connections and time around the pure `Send`.

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
from ...remoting.response_codes import ResponseCode
from ..checks.option_check import SECONDS_MAX, check_timeout
from ..connection.client import Client
from ..connection.connection import Connection
from ..connection.grpc import refuse_by
from ..connection.waiting import Window
from ..core.routes import TopicPublishInfo
from ..core.sends import TRY_TIME_MIN_S, WRONG_ROUTE_CODES, PreparedSend, Selector, Send, SendPolicy
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

Finish: TypeAlias = Callable[[Send, OnEnd], Coroutine[Any, Any, None]]
"""Makes the remaining tries."""

OnSent: TypeAlias = Callable[[Send, SendResult, RemotingCommand], None]
"""Called in the loop with a send that a broker confirmed, and its answer; must not raise."""

Spawn: TypeAlias = Callable[[Finish, Send, OnEnd], None]
"""Runs `Finish` with its arguments in the background; may raise a ClientError."""


class Sender:
    """Carries out the sends of one producer.

    Args:
      client: open while something is sent.
      group: with namespace.
      check_open: raises ClosedError if the producer is not open.
      on_sent: called for each confirmed send; None: nothing is called.
      waits_for_route: look up a route again while there is none.

    Attributes:
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

    def new_send(
        self,
        prepared: PreparedSend,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> Send:
        """A send that has not begun.

        Args:
          queue: where to; None: a queue of the topic in turn.
          selector: chooses the queue.
          timeout_s: seconds for all tries, from now on; None: the producer's, of which one try has
            at most the client's `timeout_s`.

        Raises: ClosedError; ForkedError.
        """
        self.check_open()
        if queue is not None or selector is not None:
            refuse_by(
                self._client.grpc,
                "a send to a certain queue",
                "give the message a sharding_key: the server keeps those of one key in one queue",
            )
        try_timeout_s = timeout_s
        if timeout_s is None:
            timeout_s, try_timeout_s = self._timeout_s, self._try_timeout_s
        elif timeout_s.__class__ is not float or not timeout_s < SECONDS_MAX:
            check_timeout("timeout_s", timeout_s)
        now_s = self._client.now_s()
        return Send(prepared, self._policy, now_s, timeout_s, queue, selector, try_timeout_s)

    async def publish_info(self, topic: str, send: Send | None = None) -> TopicPublishInfo:
        """The queues of a topic, with namespace, that can be written to.

        Args:
          send: for which one, whose time limit is kept; None: the producer's limit, from now.

        Raises: RouteNotFoundError; ConnectError.
        """
        if send is None:
            return await self.look_up(topic)
        return await self.look_up(topic, send.start_s, send.timeout_s)

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

    async def connect(self, send: Send, limit_s: float) -> Connection:
        """The connection to where the send goes, when there is room for a request on it.

        Args:
          limit_s: seconds to wait for both.

        Raises: ConnectError; RequestTimeoutError: the broker takes no bytes; ClosedError;
          ForkedError.
        """
        client = self._client
        end_s = client.now_s() + limit_s
        address = client.master_of(send.queue)
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

    async def send(self, send: Send) -> SendResult:
        """Make the remaining tries.

        Raises: as `Producer.send`.
        """
        client = self._client
        topic = send.prepared.topic
        while True:
            info = client.known_publish_info(topic)
            if info is None or send.attempts:
                left_s = await self._next_try(send)
            else:  # nearly always
                now_s = client.now_s()
                send.choose(info, now_s)
                left_s = send.begin(now_s)
            answer = await self._try(send, left_s)
            if self._take(send, answer):
                break
        if send.result is None:
            assert send.error is not None  # it is over
            raise send.error
        if self._on_sent is not None and isinstance(answer, RemotingCommand):
            self._on_sent(send, send.result, answer)
        return send.result

    async def send_oneway(self, send: Send) -> None:
        """Make tries until one has put the message on a connection.

        Raises: as `Producer.send_oneway`.
        """
        try:
            while not await self._is_sent_oneway(send):
                pass
        except SendError as error:
            text = f"the message could not be sent: {error.tries}"
            raise ConnectError(send.queue.broker_name, text) from error.__cause__

    async def _is_sent_oneway(self, send: Send) -> bool:
        """Make one try; False: there is another one."""
        left_s = await self._next_try(send)
        try:
            connection = await self.connect(send, left_s)
        except (ConnectError, RequestTimeoutError) as error:
            send.is_sent = False
            if self._take(send, error):
                assert send.error is not None  # it is over
                raise send.error from error
            return False
        connection.send_oneway(send.prepared.encode(send.queue, 0, oneway=True))
        return True

    async def _next_try(self, send: Send) -> float:
        """Wait for the route and the pause before the next try; returns the seconds that it has."""
        client = self._client
        topic = send.prepared.topic
        info = client.known_publish_info(topic) or await self.publish_info(topic, send)
        now_s = client.now_s()
        send.choose(info, now_s)
        if send.attempts:
            await anyio.sleep(send.pause_s(now_s))
            now_s = client.now_s()
        return send.begin(now_s)

    def _take(self, send: Send, answer: RemotingCommand | ClientError) -> bool:
        """Take what a try ended in; True: the send is over."""
        is_over = send.take(answer, self._client.now_s())
        if self._is_logged:
            _log_try(send, self._client.now_s())
        if send.failure is not None:
            self._look_after_routes(send.failure, send.prepared.topic)
        return is_over

    async def _try(self, send: Send, timeout_s: float) -> RemotingCommand | ClientError:
        """The broker's answer, or why there is none."""
        client = self._client
        try:
            connection = client.open_connection(client.master_of(send.queue))
            if connection is None or connection.is_backed_up:
                send.is_sent = False
                start_s = client.now_s()
                connection = await self.connect(send, timeout_s)
                timeout_s = max(timeout_s - (client.now_s() - start_s), TRY_TIME_MIN_S)
            send.is_sent = True
            opaque = client.next_opaque()
            frame = send.prepared.encode(send.queue, opaque)
            send.address = connection.address
            return await connection.exchange(frame, opaque, timeout_s, SEND)
        except ClientError as error:
            return error

    def _look_after_routes(self, failure: ClientError, topic: str) -> None:
        if isinstance(failure, ConnectError | RequestTimeoutError):
            self._client.refresh_soon()
        elif isinstance(failure, ServerError):
            if failure.code in WRONG_ROUTE_CODES:
                self._client.forget_route(topic)
            elif failure.code == ResponseCode.SYSTEM_BUSY:
                # A master that has become a slave answers so, and another one has its place.
                self._client.refresh_soon()

    # Sends without a task: a task, its context and two events cost as much as the rest of a send

    def begin(self, send: Send, spawn: Spawn, on_end: OnEnd, *, at_once: bool = False) -> bool:
        """Make the first try in this call, and the others in the background.

        Args:
          at_once: see `Connection.submit`.

        Returns: False: nothing was sent, and `on_end` will not be called: the route or the
          connection is not there, or the connection has no room.
        Raises: MessageRefusedError; ConfigurationError; what a selector raises.
        """
        client = self._client
        info = client.known_publish_info(send.prepared.topic)
        if info is None:
            return False
        address = client.broker_address(send.choose(info, send.start_s).broker_name)
        if address is None:  # the queue of a static topic
            address = client.broker_address(client.owner(send.queue))
        connection = client.open_connection(address) if address else None
        if connection is None or connection.is_backed_up:
            return False
        # The body of `_submit`, inlined: most sends take this path.
        send.address = connection.address
        opaque = client.next_opaque()
        connection.submit(
            send.prepared.encode(send.queue, opaque),
            opaque,
            partial(self._take_answer, send, spawn, on_end),
            send.try_timeout_s,
            at_once=at_once,
        )
        return True

    async def begin_when_ready(self, send: Send, spawn: Spawn, on_end: OnEnd) -> None:
        """Wait for the route, the connection and room on it, then `begin`; the time starts there.

        The wait for the route counts from `send.start_s`, which may be earlier.

        A broker that is not there counts as no try: all tries are made in the background then.

        Raises: RouteNotFoundError; ConnectError: no name server answers; and as `begin`.
        """
        client = self._client
        topic = send.prepared.topic
        info = client.known_publish_info(topic) or await self.publish_info(topic, send)
        send.choose(info, client.now_s())
        try:
            connection = await self.connect(send, send.left_s(client.now_s()))
            send.restart(client.now_s())
            self._submit(send, connection, spawn, on_end)
        except (ConnectError, RequestTimeoutError):
            send.restart(client.now_s())
            spawn(self.finish, send, on_end)

    def _submit(self, send: Send, connection: Connection, spawn: Spawn, on_end: OnEnd) -> None:
        opaque = self._client.next_opaque()
        send.address = connection.address
        connection.submit(
            send.prepared.encode(send.queue, opaque),
            opaque,
            partial(self._take_answer, send, spawn, on_end),
            send.try_timeout_s,
        )

    def _on_answer(
        self,
        send: Send,
        spawn: Spawn,
        on_end: OnEnd,
        answer: RemotingCommand | ClientError,
    ) -> None:
        client = self._client
        try:
            if not isinstance(answer, RemotingCommand):
                # Closing the client ends its connections: report that it was closed instead.
                client.check_open()
            is_over = send.take(answer, client.now_s())
            if self._is_logged:
                _log_try(send, client.now_s())
            if send.failure is not None:
                self._look_after_routes(send.failure, send.prepared.topic)
            if not is_over:
                spawn(self.finish, send, on_end)
                return
        except ClientError as error:
            on_end(None, error)
        else:
            on_end(send.result, send.error)

    def _on_traced_answer(
        self,
        send: Send,
        spawn: Spawn,
        on_end: OnEnd,
        answer: RemotingCommand | ClientError,
    ) -> None:
        """`_on_answer` of a Sender with `on_sent`: the others have no check for each message."""
        self._on_answer(send, spawn, on_end, answer)
        result = send.result
        if self._on_sent and result is not None and isinstance(answer, RemotingCommand):
            self._on_sent(send, result, answer)

    async def finish(self, send: Send, on_end: OnEnd) -> None:
        """Make the remaining tries, and call `on_end` with the outcome."""
        result: SendResult | None = None
        # The outcome if this task is cancelled or fails: `on_end` must be called in any case.
        failure: ClientError | None = ClosedError("it was closed before the message was confirmed")
        try:
            result = await self.send(send)
            failure = None
        except ClientError as error:
            failure = error
        finally:
            on_end(result, failure)


def _log_try(send: Send, now_s: float) -> None:
    """Log how a try ended; only with DEBUG."""
    if send.result is not None:
        outcome: object = send.result.status.name
    else:
        outcome = send.failure or send.error
    logger.debug(
        "%s to %s/%d, try %d, %.3g s after the send began: %s",
        send.prepared.message_id,
        send.queue.broker_name,
        send.queue.queue_id,
        len(send.attempts) + (send.failure is None),
        now_s - send.start_s,
        outcome,
    )
