"""Pulls of push and pull consumers, and the brokers that queues are read from.

Java counterpart: PullAPIWrapper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from ...remoting.bodies import MessageQueue, SubscriptionData
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_messages
from ...remoting.response_codes import ResponseCode
from ..connection.client import Client
from ..connection.connection_log import failure_level
from ..core import queue_requests as requests
from ..core.queue_requests import PullAnswer, PullStatus
from ..errors import ClientError, ConfigurationError, ConnectError, reading_answer

logger = logging.getLogger(__name__)


class PullResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a pull.

    Attributes:
      status: FOUND, or the reason why there are no messages.
      messages: the messages that match the subscription, with decompressed bodies.
      next_begin_offset: offset of the next pull.
      min_offset: offset of the first message in the queue.
      max_offset: offset of the next message to be stored in the queue.
      suggest_which_broker_id: id of the broker to pull from next; 0: the master.
    """

    status: PullStatus
    messages: list[MessageExt]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int


def broker_of(client: Client, queue: MessageQueue, broker_id: int = 0) -> str:
    """The address of a queue's broker, `host:port`.

    Raises: ConnectError: no route names the broker.
    """
    return _known(client.broker_address(client.owner(queue), broker_id), queue)


def reader_of(client: Client, queue: MessageQueue) -> str:
    """The address, `host:port`, to read a queue from and to commit its offsets to.

    It is a slave's while there is no master. Offsets that are committed to a slave may never reach
    the master.

    Raises: ConnectError: no route names the broker.
    """
    return _known(client.reading_address(client.owner(queue)), queue)


async def found(
    client: Client, queue: MessageQueue, find: Callable[[Client, MessageQueue], str]
) -> str:
    """What `find` finds, after a look-up of the topic's route if no route names the broker yet.

    Raises: as `find` and `Client.route`.
    """
    try:
        return find(client, queue)
    except ConnectError:
        await client.route(queue.topic)
        return find(client, queue)


def _known(address: str | None, queue: MessageQueue) -> str:
    if address is None:
        raise ConnectError(queue.broker_name, "no route of the name servers names this broker")
    return address


async def pull(
    client: Client,
    queue: MessageQueue,
    subscription: SubscriptionData,
    group: str,
    offset: int,
    *,
    count: int,
    suspend_s: float,
    timeout_s: float,
    commit_offset: int = 0,
    broker_id: int = 0,
    is_subscription_sent: bool = False,
    filter_server: str | None = None,
    inflate: bool = True,
) -> PullResult:
    """Pull once.

    Args:
      client: an open client.
      queue: the queue; its topic has the namespace.
      subscription: which messages to receive.
      group: name of the group, with namespace.
      offset: offset of the first message.
      count: largest number of messages.
      suspend_s: seconds that the broker may hold the pull while there are no messages; 0: none.
      timeout_s: seconds to wait for the answer; more than `suspend_s`.
      commit_offset: the group's offset, to be committed with the pull; 0: none. It is not sent to
        slaves.
      broker_id: 0 for the master, or a slave while there is no master; otherwise the id that the
        last pull suggested, or any other of this broker name.
      is_subscription_sent: send the subscription with the pull; otherwise the broker uses that of
        the heartbeats.
      filter_server: address of a filter server to pull from instead of the broker, `host:port`.
      inflate: False: compressed bodies stay as they are stored, and their `sys_flag` says so.

    Raises:
      ServerError: the broker refused the pull.
      ConnectError: the broker cannot be reached, or the connection was lost.
      RequestTimeoutError: no answer arrived in time.
      BadAnswerError: the answer cannot be decoded.
      ConfigurationError: a body is compressed in a way that needs a package.
    """
    request = requests.pull(
        queue,
        subscription,
        group,
        offset,
        count=count,
        suspend_s=suspend_s,
        commit_offset=0 if broker_id else commit_offset,
        is_subscription_sent=is_subscription_sent,
        is_class_filtered=filter_server is not None,
    )
    address = filter_server
    if address is None:
        if broker_id:
            address = broker_of(client, queue, broker_id)
        else:
            address = await found(client, queue, reader_of)
    answer = await client.request(
        address, request.code, request.header, timeout_s=timeout_s, ok=request.ok
    )
    with reading_answer(queue.broker_name):
        return _pull_result(request.read(answer), subscription, inflate=inflate)


def _pull_result(
    answer: PullAnswer, subscription: SubscriptionData, *, inflate: bool
) -> PullResult:
    messages: list[MessageExt] = []
    if answer.code == ResponseCode.SUCCESS:
        messages = decode_messages(answer.body, inflate=inflate)
    if messages:
        if subscription.tags_set:
            messages = [m for m in messages if subscription.selects(m.tags)]
        if answer.offset_delta:
            for message in messages:
                message.queue_offset += answer.offset_delta
    return PullResult(
        requests.PULL_STATUSES[answer.code],
        messages,
        answer.next_offset,
        answer.min_offset,
        answer.max_offset,
        answer.suggested_broker_id,
    )


class PullFailureLog:
    """Logs the failed pulls of one consumer.

    That a body cannot be decompressed without a package is logged once per topic. The pull is
    retried until the package is installed or the messages have expired; the group's offset does not
    move past them.

    Args:
      what: what failed, for the log.
    """

    def __init__(self, what: str = "a pull") -> None:
        self._what = what
        self._logged: set[str] = set()

    def log(self, queue: MessageQueue, error: ClientError, pause_s: float) -> None:
        """Log that a pull of this queue failed, and that the next one follows after `pause_s`."""
        if not isinstance(error, ConfigurationError):
            level = failure_level(error)
            text = "%s of %s failed, retrying in %g s: %s"
            logger.log(level, text, self._what, queue, pause_s, error)
        elif queue.topic not in self._logged:
            self._logged.add(queue.topic)
            logger.error(
                "messages of the topic %s cannot be read here, and wait at the broker: %s",
                queue.topic,
                error,
            )
