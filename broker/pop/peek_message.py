"""Peeks: PEEK_MESSAGE 200052, what a pop would give, without popping it.

Java counterpart: broker/processor/PeekMessageProcessor.java of 5.5.0.
"""

from __future__ import annotations

from random import Random
from typing import Final

from ...disk.errors import StoreError
from ...remoting.bodies import TopicConfig
from ...remoting.channel import Channel, Processor
from ...remoting.codec import RemotingCommand, encode, encode_head
from ...remoting.errors import RequestRefused
from ...remoting.headers import PeekMessageRequestHeader, decode
from ...remoting.receipt import POP_COUNT_MAX
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ...store.status import GetMessageStatus
from .pop_checks import PopChecks
from .pop_message import QUEUES_MAX
from .popped import Popped
from .services import PopServices

_RETRY_FIRST_EACH: Final = 5
"""Each that many'th peek reads the retry topic first."""

_RANDOM_MAX: Final = 100

_BAD: Final = frozenset({GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_OVERFLOW_BADLY})


class PeekMessageProcessor:
    """Serves peeks.

    Args:
      store: already loaded.
      pop: the parts of pop consumption.
      random: chooses the first queue.
    """

    def __init__(
        self,
        store: MessageStore,
        pop: PopServices,
        checks: PopChecks,
        random: Random,
    ) -> None:
        self._store = store
        self._pop = pop
        self._checks = checks
        self._random = random
        self.processors: dict[RequestCode, Processor] = {RequestCode.PEEK_MESSAGE: self.peek}

    def peek(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a peek; the answer is written to the channel.

        Raises: RequestRefused: with Apache's codes and remarks; SYSTEM_ERROR: nothing can be read.
        """
        header = decode(PeekMessageRequestHeader, request.ext_fields)
        topic = self._checks.check_peek(header, channel)
        popped = Popped()
        self._peek_all(header, topic, popped)
        fields = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
        fields["restNum"] = str(popped.rest)
        if not popped.count:
            if popped.trouble:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, popped.trouble)
            remark = GetMessageStatus.NO_MESSAGE_IN_QUEUE.name
            channel.write(encode(request.answer(ResponseCode.PULL_NOT_FOUND, remark, fields)))
            return
        answer = request.answer(ResponseCode.SUCCESS, GetMessageStatus.FOUND.name, fields)
        head = encode_head(answer, popped.size)
        channel.write([head, *popped.buffers], len(head) + popped.size)

    def _peek_all(
        self, header: PeekMessageRequestHeader, topic: TopicConfig, popped: Popped
    ) -> None:
        number = self._random.randrange(_RANDOM_MAX)
        # As pops do: otherwise retried messages would wait as long as there are new ones.
        retry_first = number % _RETRY_FIRST_EACH == 0
        group = header.consumer_group
        name = self._pop.retry_topics.name(header.topic, group)
        retry = self._checks.find_topic(name)
        if retry_first and retry is not None:
            self._peek_topic(header, retry, number, popped)
        if header.queue_id < 0:
            first = number
            if topic.read_queue_nums > QUEUES_MAX:
                first = self._random.randrange(topic.read_queue_nums)
            self._peek_topic(header, topic, first, popped)
        else:
            self._peek_queue(header, header.topic, header.queue_id, popped)
        if not retry_first and retry is not None and popped.count < header.max_msg_nums:
            self._peek_topic(header, retry, number, popped)

    def _peek_topic(
        self, header: PeekMessageRequestHeader, topic: TopicConfig, first: int, popped: Popped
    ) -> None:
        count = topic.read_queue_nums
        for number in range(min(count, QUEUES_MAX)):
            self._peek_queue(header, topic.topic_name, (first + number) % count, popped)

    def _peek_queue(
        self, header: PeekMessageRequestHeader, topic: str, queue_id: int, popped: Popped
    ) -> None:
        offset = self._pop.positions.peek(topic, header.consumer_group, queue_id)
        popped.rest += max(self._store.max_offset(topic, queue_id) - offset, 0)
        # Apache's broker has no limit; a pop has this one.
        room = min(header.max_msg_nums, POP_COUNT_MAX) - popped.count
        if room <= 0:
            return
        try:
            result = self._store.get_message(topic, queue_id, offset, room)
            if result.status in _BAD:
                offset = result.next_begin_offset
                result = self._store.get_message(topic, queue_id, offset, room)
        except StoreError as error:
            popped.trouble = str(error)
            return
        popped.buffers += result.buffers
        popped.size += result.size
        popped.count += result.count
