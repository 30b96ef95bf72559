"""Acknowledgements of popped messages: ACK_MESSAGE 200051, BATCH_ACK_MESSAGE 200151.

One for a check point in memory marks a bit of it. Others are stored as records, with which the
revive service then finds the check point. Late and repeated ones are answered with success.

Java counterpart: broker/processor/AckMessageProcessor.java of 5.5.0.
"""

from __future__ import annotations

import binascii
import logging
from contextlib import nullcontext
from typing import Final

from ...common.steps import Steps
from ...remoting.bodies import BATCH_ACKS_MAX, BatchAck, BatchAckMessageRequestBody
from ...remoting.channel import Answer, Channel, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.headers import AckMessageRequestHeader, decode
from ...remoting.receipt import POP_COUNT_MAX, Receipt, TopicForm
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ...store.status import PutMessageStatus, PutRefusal
from ..puts.send_turn import SendTurn
from ..settings.config import BrokerConfig
from ..tables.topic_config_manager import TopicConfigManager
from .acks import Acks
from .buffer import OrderKey
from .pop_checks import read_receipt, refuse_lite, refuse_no_queue
from .services import PopServices

logger = logging.getLogger(__name__)

BIT_SET_SIZE_MAX: Final = 16 * 1024
"""Characters of a batch's bit set: a pop has at most 32 messages, but its filter may have skipped
maxFilterMessageSize / 20 others, 800 by default, between two of them."""

BIT_SETS_SIZE_MAX: Final = POP_COUNT_MAX * BIT_SET_SIZE_MAX
"""The same for all bit sets of one request, which take some five milliseconds."""

STEP_POPS: Final = 64
"""Pops of one request that are acknowledged before other clients are served: with a record for each
some three milliseconds."""


class AckMessageProcessor:
    """Serves acknowledgements.

    Args:
      store: already loaded.
      pop: the parts of pop consumption.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        turn: SendTurn,
        pop: PopServices,
        topics: TopicConfigManager,
    ) -> None:
        self._config = config
        self._store = store
        self._topic_table = topics.topic_config_table
        self._buffer = pop.buffer
        self._acks = Acks(pop.buffer, pop.puts, turn, pop.revive)
        self._turn = turn
        self._orders = pop.orders
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.ack_batch,
        }

    def ack(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        """Serve the acknowledgement of one message.

        Raises: RequestRefused: with Apache's codes and remarks; SYSTEM_ERROR if the receipt cannot
          be read.
        """
        header = decode(AckMessageRequestHeader, request.ext_fields)
        topic, queue_id, offset = header.topic, header.queue_id, header.offset
        refuse_no_queue(self._topic_table, topic, queue_id, channel)
        least, end = (
            self._store.min_offset(topic, queue_id),
            self._store.max_offset(topic, queue_id),
        )
        if not least <= offset <= end:
            raise RequestRefused(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{least}~{end}",
            )
        group, extra_info = header.consumer_group, header.extra_info
        # A receipt is sent back as it was given out: nearly always it need not be parsed.
        entry = self._buffer.entry_of(f"{topic}@{group}@{extra_info.rpartition(' ')[0]}")
        if entry is not None and entry.check_point.queue_id == queue_id:
            index = entry.check_point.index_of(offset)
            if index >= 0:
                self._buffer.ack(entry, 1 << index)
                return request.answer()
        refuse_lite(header.lite_topic)
        receipt = read_receipt(extra_info)
        if receipt.in_order:
            illegal = self._orders.ack(
                topic,
                group,
                queue_id,
                (offset,),
                pop_time=receipt.pop_time,
                remote_address=channel.remote_address,
            )
            if illegal is not None:
                raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, illegal)
            return request.answer()
        reason = self._acks.refusal(receipt)
        if reason:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, reason)
        if not self._ack(OrderKey(topic, group, queue_id), receipt, (offset,), channel):
            return request.answer()
        self._turn.answer(request, request.answer(), True)
        return None

    def ack_batch(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Serve the acknowledgement of several messages of several pops.

        Entries with an unknown topic or queue, and offsets outside of the queue, are skipped.

        Raises: RequestRefused: SYSTEM_ERROR if the body cannot be read; INVALID_PARAMETER if it has
          too many pops, or too long bit sets.
        """
        body = None
        if request.body:
            try:
                body = BatchAckMessageRequestBody.from_request(request.body)
            except RemoteProtocolError as error:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if body is None or not body.acks:
            return request.answer(ResponseCode.NO_MESSAGE)
        if len(body.acks) > BATCH_ACKS_MAX:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"{len(body.acks)} check points in one request, the limit is {BATCH_ACKS_MAX}",
            )
        size = sum(len(batch.bit_set) for batch in body.acks)
        if size > BIT_SETS_SIZE_MAX:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"bit sets of {size} characters in one request, the limit is {BIT_SETS_SIZE_MAX}",
            )
        name = body.broker_name or self._config.broker_name
        return answer_of(self._ack_in_steps(request, body.acks, name, channel))

    def _ack_in_steps(
        self, request: RemotingCommand, batches: list[BatchAck], broker_name: str, channel: Channel
    ) -> Steps[RemotingCommand | None]:
        """Steps that acknowledge messages of several pops; None: the last turn has the answer.

        Raises: RequestRefused: the code of a put: a record is not stored.
        """
        is_stored = False
        illegal: list[str] = []
        outcomes: list[bool] = []  # of the turns before the last one
        last = len(batches) - 1
        for begin in range(0, len(batches), STEP_POPS):
            if begin:
                yield
            # The first step belongs to the turn of the request; each later one is a turn of its
            # own.
            with channel.turn if begin else nullcontext():
                is_put = False
                for batch in batches[begin : begin + STEP_POPS]:
                    is_put |= self._ack_batch(batch, broker_name, channel, illegal)
                is_stored |= is_put
                if begin + STEP_POPS > last:
                    return self._answer_batch(request, channel, is_stored, illegal, outcomes)
                if is_put:
                    self._turn.when_written(outcomes.append)
        return None

    def _answer_batch(
        self,
        request: RemotingCommand,
        channel: Channel,
        is_stored: bool,
        illegal: list[str],
        outcomes: list[bool],
    ) -> RemotingCommand | None:
        """Answer at once, or with the turn if there is a record.

        Raises: RequestRefused: a record of an earlier turn could not be written.
        """
        if not all(outcomes):
            remark = self._store.trouble or "a part of the acknowledgements could not be written"
            refusal = PutRefusal(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark)
            raise self._turn.refusal(refusal)
        answer = request.answer()
        if illegal:
            answer = request.answer(ResponseCode.MESSAGE_ILLEGAL, illegal[-1])
        # All in memory, or in order: there is nothing to wait for.
        if not is_stored:
            return answer
        self._turn.begin(channel)
        self._turn.answer(request, answer, True)
        return None

    def _ack_batch(
        self, batch: BatchAck, broker_name: str, channel: Channel, illegal: list[str]
    ) -> bool:
        """Acknowledge messages of one pop; return whether a record was appended.

        Args:
          illegal: gets a remark if a pop in order did not have one of the messages.
        """
        try:
            form = TopicForm(batch.retry)
        except ValueError:
            return False
        topic, queue_id = form.real_topic(batch.topic, batch.group), batch.queue_id
        config = self._topic_table.get(topic)
        if config is None or not 0 <= queue_id < config.read_queue_nums:
            logger.warning(
                "%(peer)s: a batch of acknowledgements names queue %(queue_id)d of %(topic)s, "
                "which does not exist: it is skipped",
                {"peer": channel.remote_address, "queue_id": queue_id, "topic": topic},
            )
            return False
        # A batch has no receipts of single messages; this one names the pop that they all belong
        # to.
        receipt = Receipt(
            batch.start_offset,
            batch.pop_time,
            batch.invisible_time,
            batch.revive_queue_id,
            form,
            broker_name,
            queue_id,
            batch.start_offset,
        )
        least = self._store.min_offset(topic, queue_id)
        end = self._store.max_offset(topic, queue_id)
        # Bits beyond the queue name no messages.
        offsets = tuple(
            batch.start_offset + index
            for index in bits_of(batch.bit_set)
            if least <= batch.start_offset + index <= end
        )
        if receipt.in_order:
            remark = self._orders.ack(
                topic,
                batch.group,
                queue_id,
                offsets,
                pop_time=batch.pop_time,
                remote_address=channel.remote_address,
            )
            if remark is not None:
                illegal.append(remark)
            return False
        # Skipped and not refused: the other pops of the request are acknowledged.
        if not offsets or self._acks.refusal(receipt):
            return False
        return self._ack(OrderKey(topic, batch.group, queue_id), receipt, offsets, channel)

    def _ack(
        self, queue: OrderKey, receipt: Receipt, offsets: tuple[int, ...], channel: Channel
    ) -> bool:
        """Acknowledge messages of one pop; return whether a record was appended to the turn.

        Args:
          receipt: may be of this broker, see `Acks.refusal`.

        Raises: RequestRefused: the code of a put: the record is not stored.
        """
        entry = self._acks.find(queue, receipt)
        if entry is not None:
            self._acks.ack_in_memory(entry, offsets)
            return False
        self._turn.begin(channel)
        refusal = self._acks.ack_in_store(queue, receipt, offsets)
        if refusal is not None:
            raise self._turn.refusal(refusal)
        return True


def bits_of(bit_set: str) -> list[int]:
    """The indexes of the bits of a batch, ascending; none if it has more than a pop has messages.

    Args:
      bit_set: base64 of bytes in little endian, at most BIT_SET_SIZE_MAX characters.

    Raises: RequestRefused: SYSTEM_ERROR if it is not base64; INVALID_PARAMETER if it is too long.
    """
    if len(bit_set) > BIT_SET_SIZE_MAX:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"a bit set of {len(bit_set)} characters, the limit is {BIT_SET_SIZE_MAX}",
        )
    try:
        number = int.from_bytes(binascii.a2b_base64(bit_set, strict_mode=True), "little")
    except ValueError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the bit set of a batch is not base64: {error}"
        ) from error
    indexes: list[int] = []
    # No pop has so large a batch, and the loop would take long.
    if number.bit_count() > POP_COUNT_MAX:
        return indexes
    while number:
        lowest = number & -number
        indexes.append(lowest.bit_length() - 1)
        number ^= lowest
    return indexes
