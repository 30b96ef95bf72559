"""Pops, acknowledgements and changes of invisible times, which both kinds of consumers send.

Java counterpart: PullAPIWrapper.popAsync, DefaultMQPushConsumerImpl.ackAsync and
changePopInvisibleTimeAsync.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import anyio
import anyio.lowlevel

from ...remoting import pop_requests as requests
from ...remoting.bodies import SubscriptionData
from ...remoting.headers.base import decode
from ...remoting.headers.pop import NotificationResponseHeader
from ...remoting.message import MessageExt
from ...remoting.pop_requests import Place, PopAnswer, PopOrder, Settled
from ...remoting.receipt import Receipt
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import Client
from ..errors import (
    BusyError,
    ClientError,
    ConfigurationError,
    ConnectError,
    ExpiredReceiptError,
    RequestTimeoutError,
    ServerError,
    is_not_supported,
    reading_answer,
)
from ..pulling.sql_check import sql_refusal
from ..tasks.task_group import TaskGroup

logger = logging.getLogger(__name__)

T = TypeVar("T")

POP_TIMEOUT_S: Final = 10.0
"""Time to wait for the answer to a pop, in addition to the time that the broker may wait.
RocketMQ: PullAPIWrapper.popAsync."""
POLL_S_MAX: Final = 30.0
"""Longest wait of one pop at a broker: a broker that is gone without a word is noticed then."""
EMPTY_PAUSE_S: Final = 0.05
"""Pause before the next pop, where a broker ended the wait for a message early: when it does not
wait because too many clients wait, or 50 ms before the end, as brokers do."""
SETTLE_S: Final = 10.0
"""Time in which an acknowledgement is sent again while its broker cannot be reached: one that
restarts is away for 5 s."""
SETTLE_RETRY_S: Final = 0.5
"""Pause between two such attempts."""
IN_FLIGHT_MAX: Final = 32
"""Single acknowledgements, or changes of invisible times, that one broker has at the same time."""

RECEIPT_FIELD: Final = "extraInfo"
"""The field with a receipt; see `grpc.pops.bury`."""

TRANSIENT_ERRORS: Final = (ConnectError, RequestTimeoutError, BusyError)
"""Errors after which the same request may succeed."""


class Popper:
    """The requests of one group's consumer.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      init_mode: where a group that never consumed begins; 0: the first message, 1: the end.
    """

    def __init__(self, client: Client, group: str, init_mode: int) -> None:
        self._client = client
        self._group = group
        self._init_mode = init_mode
        # Brokers that refused a batch of acknowledgements, by name.
        self._without_batches: set[str] = set()

    async def pop(
        self,
        place: Place,
        subscription: SubscriptionData,
        *,
        count: int,
        invisible_s: float,
        poll_s: float,
        order: PopOrder | None = None,
    ) -> PopAnswer:
        """Pop once.

        Args:
          place: what to pop from.
          subscription: which messages.
          count: number of messages at most, 1 to 32.
          invisible_s: how long others do not get them, in seconds.
          poll_s: how long the broker may wait for a message, in seconds.
          order: None: messages in any order.

        Raises:
          ConfigurationError: the broker is too old to pop, or refuses the subscription.
          ServerError: it refused the pop.
          ConnectError: it cannot be reached, or the connection was lost.
          RequestTimeoutError: no answer arrived in time.
          BadAnswerError: the answer violates the protocol.
        """
        header = requests.pop_header(
            place,
            self._group,
            subscription,
            count=count,
            invisible_ms=round(invisible_s * 1000),
            poll_ms=round(poll_s * 1000),
            init_mode=self._init_mode,
            order=order,
        )
        address = self._client.master_address(place.broker_name)
        try:
            answer = await self._client.request(
                address,
                RequestCode.POP_MESSAGE,
                header,
                timeout_s=poll_s + POP_TIMEOUT_S,
                ok=requests.POP_CODES,
            )
        except ServerError as error:
            raise explain_refusal(error, subscription) from error
        with reading_answer(address):
            return requests.read_pop(answer, place, subscription, in_order=order is not None)

    async def wait_for_messages(
        self,
        place: Place,
        subscription: SubscriptionData,
        *,
        poll_s: float,
        order: PopOrder | None = None,
    ) -> bool:
        """Wait until there is something to pop (NOTIFICATION); False: not in time.

        Raises: as `pop`.
        """
        header = requests.notification_header(
            place, self._group, subscription, poll_ms=round(poll_s * 1000), order=order
        )
        address = self._client.master_address(place.broker_name)
        try:
            answer = await self._client.request(
                address, RequestCode.NOTIFICATION, header, timeout_s=poll_s + POP_TIMEOUT_S
            )
        except ServerError as error:
            raise explain_refusal(error, subscription) from error
        with reading_answer(address):
            return decode(NotificationResponseHeader, answer.ext_fields).has_msg

    async def ack(self, settled: Settled, *, is_awaited: bool = False) -> None:
        """Acknowledge one message; sent again for SETTLE_S while the broker cannot be reached.

        Args:
          is_awaited: the program waits for it: if the broker does not answer, it is not sent again.

        Raises: ExpiredReceiptError: another delivery has replaced this one; and as `pop`.
        """
        header = requests.ack_header(settled.receipt, settled.topic, self._group)

        async def send() -> None:
            address = self._client.master_address(settled.receipt.broker_name)
            try:
                await self._client.request(address, RequestCode.ACK_MESSAGE, header)
            except ServerError as error:
                raise _explained(error, settled) from error

        await self._persistently(send, is_awaited)

    async def ack_all(
        self, settled: Sequence[Settled], *, is_awaited: bool = False
    ) -> list[tuple[Settled, ClientError]]:
        """Acknowledge messages: in one request for each broker, where it has batches.

        Args:
          is_awaited: see `ack`.

        Returns: those that were not acknowledged, with the reasons. A broker that takes batches
          passes over receipts that have expired, and does not report them.
        """
        by_broker: dict[str, list[Settled]] = {}
        for each in settled:
            by_broker.setdefault(each.receipt.broker_name, []).append(each)
        failed: list[tuple[Settled, ClientError]] = []
        async with TaskGroup() as group:
            for broker_name, of_broker in by_broker.items():
                group.start_soon(self._ack_at, broker_name, of_broker, failed, is_awaited)
        return failed

    async def _ack_at(
        self,
        broker_name: str,
        settled: Sequence[Settled],
        failed: list[tuple[Settled, ClientError]],
        is_awaited: bool,
    ) -> None:
        near, far = requests.split_batch(settled)
        size = requests.BATCH_COUNT_MAX
        if len(near) == 1 or broker_name in self._without_batches:
            near, far = [], [*near, *far]

        async def ack_part(part: Sequence[Settled]) -> None:
            try:
                await self._ack_batch(broker_name, part, is_awaited)
            except ClientError as error:
                if is_not_supported(error):
                    self._without_batches.add(broker_name)
                    far.extend(part)
                else:
                    failed.extend((each, error) for each in part)

        # At the same time: a broker that hangs takes the time of one of them.
        async with TaskGroup() as group:
            for first in range(0, len(near), size):
                group.start_soon(ack_part, near[first : first + size])
        limit = anyio.CapacityLimiter(IN_FLIGHT_MAX)

        async def ack_one(each: Settled) -> None:
            async with limit:
                try:
                    await self.ack(each, is_awaited=is_awaited)
                except ClientError as error:
                    failed.append((each, error))

        async with TaskGroup() as group:
            for each in far:
                group.start_soon(ack_one, each)

    async def _ack_batch(
        self, broker_name: str, settled: Sequence[Settled], is_awaited: bool
    ) -> None:
        body = requests.batch_ack_body(broker_name, self._group, settled)

        async def send() -> None:
            address = self._client.master_address(broker_name)
            await self._client.request(address, RequestCode.BATCH_ACK_MESSAGE, body=body)

        await self._persistently(send, is_awaited)

    async def change_invisible(
        self,
        settled: Settled,
        invisible_s: float,
        *,
        suspend: bool = False,
        is_awaited: bool = False,
    ) -> Receipt:
        """Change the invisible time of a message, and return the receipt that replaces its own.

        It is sent again for SETTLE_S while the broker cannot be reached. If a first answer was
        lost, the message may be delivered twice.

        Args:
          settled: the message.
          invisible_s: from now on, in seconds.
          suspend: the message's number of tries does not grow by this (brokers from 5.4 on).
          is_awaited: see `ack`.

        Raises: as `ack`.
        """
        receipt = settled.receipt
        header = requests.change_header(
            receipt, settled.topic, self._group, round(invisible_s * 1000), suspend=suspend
        )
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

        async def send() -> Receipt:
            address = self._client.master_address(settled.receipt.broker_name)
            try:
                answer = await self._client.request(address, code, header)
            except ServerError as error:
                raise _explained(error, settled) from error
            with reading_answer(address):
                return requests.read_change(answer, receipt)

        return await self._persistently(send, is_awaited)

    async def bury(self, settled: Settled, ext: MessageExt, max_reconsume_times: int) -> None:
        """Have the broker copy a message to the group's dead-letter queue; it stays as it is.

        Raises: as `ack`.
        """
        receipt = settled.receipt
        header = requests.dead_letter_header(
            receipt,
            settled.topic,
            self._group,
            physical_offset=ext.physical_offset,
            message_id=ext.offset_message_id,
            max_reconsume_times=max_reconsume_times,
        )
        address = self._client.master_address(receipt.broker_name)
        # Servers of gRPC know a message by its receipt alone.
        more = {RECEIPT_FIELD: receipt.to_text()} if self._client.grpc else None
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        await self._client.request(address, code, header, more=more)

    async def _persistently(self, send: Callable[[], Awaitable[T]], is_awaited: bool) -> T:
        end_s = self._client.now_s() + SETTLE_S
        while True:
            try:
                return await send()
            except TRANSIENT_ERRORS as error:
                await anyio.lowlevel.checkpoint_if_cancelled()
                # A broker that hangs does so for longer than one that restarts: the program has
                # messages of others to handle.
                if is_awaited and isinstance(error, RequestTimeoutError):
                    raise
                if self._client.now_s() + SETTLE_RETRY_S >= end_s:
                    raise
                self._client.refresh_soon()
                await anyio.sleep(SETTLE_RETRY_S)


def explain_refusal(error: ServerError, subscription: SubscriptionData) -> ClientError:
    """The refusal of a pop, with the way out where a setting or an old broker is the reason."""
    if is_not_supported(error):
        return ConfigurationError(
            f"the broker at {error.address} does not pop messages ({error.remark.strip()}). Brokers"
            " older than RocketMQ 5.0 do not: use PullConsumer, or PushConsumer with its default"
            " mode"
        )
    return sql_refusal(subscription, error) or error


def _explained(error: ServerError, settled: Settled) -> ServerError:
    """The refusal of an acknowledgement or of a change of the invisible time."""
    if error.code not in (ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_MESSAGE):
        return error
    receipt = settled.receipt
    return ExpiredReceiptError(
        error.code,
        f"{error.remark or 'the receipt is not valid'}. The receipt of {settled.topic}, queue"
        f" {receipt.queue_id}, offset {receipt.offset} has expired, or the message is gone: if it"
        " still exists, it is delivered again",
        error.address,
        "the receipt",
    )
