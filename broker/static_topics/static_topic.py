"""Requests for logic queues of static topics: pulls (11, 361), offsets (14, 15, 29 to 32), sends.

A request is rewritten for the physical queue that holds the offset, served by the processor of
other topics or by the broker that has the queue, and its answer is rewritten. The leader of the
queue does this; another broker refuses with NOT_LEADER_FOR_QUEUE. A rewritten request has
`lo=false` and is never rewritten again, so it cannot be forwarded in circles.

Other topics pay nothing: pulls are compared with the table once for a series, sends only if their
topic is one of those to be checked.

Java counterpart: the methods rewriteRequestForStaticTopic of SendMessageProcessor,
PullMessageProcessor, ConsumerManageProcessor and AdminBrokerProcessor of 5.5.0, whose threads wait
for the other broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec
import trio

from ...remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail, item_at
from ...remoting.channel import Answer, Channel, Deferred, Processor
from ...remoting.codec import NO_EXT_FIELDS, RemotingCommand, decode_frame
from ...remoting.errors import RequestRefused
from ...remoting.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    Header,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    decode,
    read_number,
)
from ...remoting.number_fields import QUEUE_ID_OR_ANY
from ...remoting.pull_sys_flag import COMMIT_OFFSET, SUSPEND
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..settings.config import BrokerConfig
from ..tables.topic_queue_mapping_manager import TopicQueueMappingManager
from ..waiting.pull import HOLD_MS_MAX
from .peer_brokers import PeerBrokers
from .static_pull_answer import LogicPlace, PullPlace, logic_place

_NOT_LEADER: Final = (
    "{topic}-{queue_id} does not exit in request process of current broker {broker}"
)
_NOT_LEADER_OF_PULL: Final = (
    "{topic}-{queue_id} cannot find mapping item in request process of current broker {broker}"
)
_NOT_LEADER_OF_MIN: Final = (
    "{topic}-{queue_id} is not leader in broker {broker}, request code "
    f"{int(RequestCode.GET_MIN_OFFSET)}"
)
"""RocketMQ's remarks, with its spelling."""

_LO: Final = "lo"
_FALSE: Final = "false"

_PULLED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Answers to a pull that have offsets."""

_HeaderT = TypeVar("_HeaderT", bound=Header)

Items = Sequence[LogicQueueMappingItem]


class PullsPhysically(Protocol):
    """The processor of pulls from physical queues, which writes its answer to the channel."""

    def __call__(self, request: RemotingCommand, channel: Channel, /) -> Answer: ...


class KeepsAnswers(Protocol):
    """The part of `SendTurn` that is used here."""

    def change_last_answer(self, change: Callable[[dict[str, str]], None]) -> None:
        """Change the fields of the answer that was kept last."""


class _Sink:
    """Takes the answer of a processor that writes to its channel.

    Attributes:
      remote_address, remote_host: of the request's channel.
    """

    def __init__(self, channel: Channel) -> None:
        self.remote_address, self.remote_host = channel.remote_address, channel.remote_host
        self.closed = False
        self._parts: list[bytes | memoryview] = []

    def write(
        self, frame: bytes | memoryview | Sequence[bytes | memoryview], size: int | None = None
    ) -> None:
        """Keep a part of the answer."""
        self._parts += [frame] if isinstance(frame, (bytes, memoryview)) else frame

    def answer(self) -> RemotingCommand:
        """The answer that was written."""
        return decode_frame(b"".join(self._parts))


class StaticTopicProcessor:
    """Serves requests for logic queues.

    Args:
      config: the broker's; read at each pull.
      mappings: of the broker's static topics.
      now_s: the clock for held pulls, such as trio.current_time.
    """

    def __init__(
        self,
        config: BrokerConfig,
        mappings: TopicQueueMappingManager,
        peers: PeerBrokers,
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._config = config
        self._mappings = mappings
        self._peers = peers
        self._now_s = now_s
        self._waiting: dict[tuple[str, int], trio.Event] = {}  # held pulls, by physical queue
        self._inner: dict[int, Processor] = {}
        self.topics = mappings.topic_queue_mapping_table
        mappings.changes.subscribe(self._mapping_changed)

    # ---- sends ---------------------------------------------------------------------------

    def send(
        self,
        request: RemotingCommand,
        topic: str,
        queue_name: str,
        turn: KeepsAnswers,
        send: Callable[[RemotingCommand], None],
    ) -> None:
        """Serve a send to a logic queue.

        Args:
          topic: its topic, which is static.
          queue_name: the field of the header that has the queue id.
          send: serves the rewritten send, and has the turn keep its answer.
        Raises: RequestRefused: NOT_LEADER_FOR_QUEUE, or as `send`.
        """
        text = request.ext_fields.get(queue_name)
        if text is None:  # `send` refuses it
            send(_with_fields(request, {_LO: _FALSE}))
            return
        queue_id = read_number(queue_name, QUEUE_ID_OR_ANY, text)
        if queue_id < 0:
            queue_id = self._any_queue(topic)
        _, items = self._mappings.items(topic, queue_id, refusal=_NOT_LEADER)
        leader = items[-1]
        send(_with_fields(request, {queue_name: str(leader.queue_id), _LO: _FALSE}))

        def to_logic(answer: dict[str, str]) -> None:
            answer["queueId"] = str(queue_id)
            if "queueOffset" in answer:
                answer["queueOffset"] = str(leader.logic_within(int(answer["queueOffset"])))

        turn.change_last_answer(to_logic)

    def _any_queue(self, topic: str) -> int:
        """A queue that this broker leads; -1 if there is none.

        Source: TopicQueueMappingManager.buildTopicQueueMappingContext, which takes the first one,
        even if another broker leads it.
        """
        detail = self.topics[topic]
        return next((queue_id for queue_id in detail.hosted_queues if detail.leads(queue_id)), -1)

    # ---- pulls ---------------------------------------------------------------------------

    def pull(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        channel: Channel,
        pull: PullsPhysically,
    ) -> Deferred:
        """Serve a pull from a logic queue; it is held as others if there is no new message.

        Offsets that the pull would commit are ignored: consumers commit by request 15, too.

        Args:
          header: its header, of a static topic.
          channel: where it came from.
          pull: serves the rewritten pull.
        """
        return Deferred(partial(self._pull, request, header, channel, pull))

    async def _pull(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        channel: Channel,
        pull: PullsPhysically,
    ) -> RemotingCommand:
        hold_ms = header.suspend_timeout_millis
        if not self._config.long_polling_enable:
            hold_ms = self._config.short_polling_time_mills
        over_s = self._now_s() + min(max(hold_ms, 0), HOLD_MS_MAX) / 1000
        may_hold = bool(header.sys_flag & SUSPEND)
        while True:
            detail, items = self._leading(header.topic, header.queue_id, _NOT_LEADER_OF_PULL)
            item = _found(item_at(items, header.queue_offset))
            is_local = item.bname == detail.bname
            # Before the pull, so that a message that arrives meanwhile is not missed.
            arrival = self._arrival(header.topic, item.queue_id if is_local else -1)
            answer = await self._pull_item(request, header, channel, pull, detail, item)
            if answer.code not in _PULLED:
                return answer
            place = _place_of(answer)
            physical = item.physical_of(header.queue_offset)
            logic = logic_place(items, item, physical, place)
            if logic.code != ResponseCode.PULL_NOT_FOUND or not may_hold:
                return _rewritten(request, answer, logic, is_local=is_local)
            if self._now_s() >= over_s:
                return _rewritten(request, answer, logic, is_local=is_local)
            with trio.move_on_at(over_s):
                await arrival.wait()

    async def _pull_item(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        channel: Channel,
        pull: PullsPhysically,
        detail: TopicQueueMappingDetail,
        item: LogicQueueMappingItem,
    ) -> RemotingCommand:
        """Pull from an item's physical queue, here or at another broker, without waiting there."""
        offset = item.physical_of(header.queue_offset)
        fields = {
            "queueOffset": str(offset),
            "sysFlag": str(header.sys_flag & ~(SUSPEND | COMMIT_OFFSET)),
        }
        if item.is_ended:
            count = min(item.end_offset - max(offset, item.start_offset), header.max_msg_nums)
            fields["maxMsgNums"] = str(max(count, 1))
        physical = _physical(request, item, fields)
        if item.bname != detail.bname:
            return await self._call(item.bname, physical)
        sink = _Sink(channel)
        pull(physical, sink)  # type: ignore[arg-type]
        return sink.answer()

    def _arrival(self, topic: str, queue_id: int) -> trio.Event:
        key = (topic, queue_id)
        event = self._waiting.get(key)
        if event is None:
            event = self._waiting[key] = trio.Event()
        return event

    def arrived(self, queues: Collection[tuple[str, int]]) -> None:
        """Wake the pulls that wait for messages of these physical queues."""
        if self._waiting:
            for key in queues:
                event = self._waiting.pop(key, None)
                if event is not None:
                    event.set()

    def _mapping_changed(self, topics: Collection[str]) -> None:
        """Try held pulls again, which may now have to ask another broker."""
        for key in [key for key in self._waiting if key[0] in topics]:
            self._waiting.pop(key).set()

    # ---- offsets -------------------------------------------------------------------------

    def wrap(self, processors: Mapping[int, Processor]) -> dict[int, Processor]:
        """The processors that serve static topics here, and all others as before.

        Args:
          processors: of the broker, by request code.
        Returns: those that differ.
        """
        serve: dict[int, Processor] = {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }
        self._inner = {code: processors[code] for code in serve}
        return {code: self._choice(self._inner[code], own) for code, own in serve.items()}

    def _choice(
        self,
        inner: Processor,
        serve: Processor,
    ) -> Processor:
        topics = self.topics

        def process(request: RemotingCommand, channel: Channel, /) -> Answer:
            if topics:
                fields = request.ext_fields
                if fields.get("topic") in topics and not is_physical(fields):
                    return serve(request, channel)
            return inner(request, channel)

        return process

    def _leading(
        self, topic: str, queue_id: int, refusal: str = _NOT_LEADER
    ) -> tuple[TopicQueueMappingDetail, Items]:
        """The items of a queue that this broker leads; it waited, so the mapping may be gone."""
        if topic not in self.topics:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return self._mappings.items(topic, queue_id, refusal=refusal)

    async def _ask(
        self,
        request: RemotingCommand,
        channel: Channel,
        detail: TopicQueueMappingDetail,
        item: LogicQueueMappingItem,
        *,
        code: RequestCode | None = None,
        fields: Mapping[str, str] = NO_EXT_FIELDS,
    ) -> RemotingCommand:
        """Serve a request for an item's physical queue, here or at its broker.

        Args:
          code: of another request about the same queue; None: the request's own.
          fields: changes of the header.
        Raises: RequestRefused: as the processor, or the other broker cannot be asked.
        """
        physical = _physical(request, item, fields)
        if code is not None:
            physical.code = code
        if item.bname != detail.bname:
            answer = await self._call(item.bname, physical)
            return request.answer(answer.code, answer.remark, answer.ext_fields, answer.body)
        return self._serve_here(physical, channel)

    def _serve_here(self, physical: RemotingCommand, channel: Channel) -> RemotingCommand:
        """Serve a rewritten request for a physical queue of this broker."""
        answer = self._inner[physical.code](physical, channel)
        assert isinstance(answer, RemotingCommand)  # these processors do not defer
        return answer

    async def _call(self, broker_name: str, physical: RemotingCommand) -> RemotingCommand:
        """Send a rewritten request to another broker, as a request of this one's own."""
        command = RemotingCommand(physical.code, physical.ext_fields, physical.body)
        return await self._peers.call(broker_name, command)

    def _max_offset(self, request: RemotingCommand, channel: Channel) -> Deferred:
        header = decode(GetMaxOffsetRequestHeader, request.ext_fields)

        async def run() -> RemotingCommand:
            detail, items = self._leading(header.topic, header.queue_id)
            item = _found(next((item for item in reversed(items) if item.is_decided), None))
            answer = await self._ask(request, channel, detail, item)
            return _with_offset(answer, item.logic_of)

        return Deferred(run)

    def _min_offset(self, request: RemotingCommand, channel: Channel) -> Deferred:
        header = decode(GetMinOffsetRequestHeader, request.ext_fields)

        async def run() -> RemotingCommand:
            detail, items = self._leading(header.topic, header.queue_id, _NOT_LEADER_OF_MIN)
            item = _found(item_at(items, 0))
            answer = await self._ask(request, channel, detail, item)
            return _with_offset(answer, item.logic_within)

        return Deferred(run)

    def _earliest(self, request: RemotingCommand, channel: Channel) -> Deferred:
        header = decode(GetEarliestMsgStoretimeRequestHeader, request.ext_fields)

        async def run() -> RemotingCommand:
            detail, items = self._leading(header.topic, header.queue_id)
            item = _found(item_at(items, 0))
            return await self._ask(request, channel, detail, item)

        return Deferred(run)

    def _search(self, request: RemotingCommand, channel: Channel) -> Deferred:
        """The offset by time: in the oldest item that has a message of the time or later.

        Source: AdminBrokerProcessor.rewriteRequestForStaticTopic for 29, which takes the newest
        item that another broker has.
        """
        header = decode(SearchOffsetRequestHeader, request.ext_fields)

        async def run() -> RemotingCommand:
            detail, items = self._leading(header.topic, header.queue_id)
            decided = [item for item in items if item.is_decided]
            _found(item_at(items, 0))
            for item in decided:
                answer = await self._ask(request, channel, detail, item)
                if answer.code != ResponseCode.SUCCESS:
                    return answer
                offset = _offset_of(answer)
                # At its end the physical queue has no message of the time or later: the next item
                # may.
                if item is decided[-1] or offset < await self._end_of(
                    request, channel, detail, item
                ):
                    break
            return _with_offset(answer, item.logic_of)

        return Deferred(run)

    async def _end_of(
        self,
        request: RemotingCommand,
        channel: Channel,
        detail: TopicQueueMappingDetail,
        item: LogicQueueMappingItem,
    ) -> int:
        """The physical offset after an item's last message."""
        if item.is_ended:
            return item.end_offset
        answer = await self._ask(request, channel, detail, item, code=RequestCode.GET_MAX_OFFSET)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "")
        return _offset_of(answer)

    def _query(self, request: RemotingCommand, channel: Channel) -> Deferred:
        """The offset that a group committed, in the newest item for which it committed one."""
        header = decode(QueryConsumerOffsetRequestHeader, request.ext_fields)

        async def run() -> RemotingCommand:
            detail, items = self._leading(header.topic, header.queue_id)
            if len(items) == 1 and items[0].logic_offset == 0:
                return await self._ask(request, channel, detail, items[0])
            for item in reversed(items):
                if not item.is_decided:
                    continue
                answer = await self._ask(
                    request, channel, detail, item, fields={"setZeroIfNotFound": _FALSE}
                )
                if answer.code == ResponseCode.SUCCESS:
                    return _with_offset(answer, item.logic_of)
                if answer.code != ResponseCode.QUERY_NOT_FOUND:
                    raise RequestRefused(
                        ResponseCode.SYSTEM_ERROR,
                        f"Unknown response code {answer.code} of broker {item.bname}: "
                        f"{answer.remark}",
                    )
            remark = "Not found, maybe this group consumer boot first"
            return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, {})

        return Deferred(run)

    def _update(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Store an offset; at once if it is here, so that the last of several commits stays."""
        header = decode(UpdateConsumerOffsetRequestHeader, request.ext_fields)
        detail, items = self._leading(header.topic, header.queue_id)
        item = _found(item_at(items, header.commit_offset))
        offset = max(item.physical_of(header.commit_offset), 0)
        fields = {"commitOffset": str(offset)}
        if item.bname == detail.bname:
            return self._serve_here(_physical(request, item, fields), channel)
        return Deferred(partial(self._ask, request, channel, detail, item, fields=fields))


def is_physical(fields: Mapping[str, str]) -> bool:
    """Whether a request is about a physical queue, because a broker rewrote it."""
    return fields.get(_LO) == _FALSE


def _with_fields(request: RemotingCommand, changes: Mapping[str, str]) -> RemotingCommand:
    fields = {**dict(request.ext_fields), **changes}
    return msgspec.structs.replace(request, ext_fields=fields)


def _physical(
    request: RemotingCommand, item: LogicQueueMappingItem, fields: Mapping[str, str]
) -> RemotingCommand:
    names = {_LO: _FALSE, "bname": item.bname, "queueId": str(item.queue_id)}
    return _with_fields(request, {**names, **fields})


def _found(item: LogicQueueMappingItem | None) -> LogicQueueMappingItem:
    """Raises: RequestRefused: SYSTEM_ERROR if no item of the queue has a logic offset yet."""
    if item is None:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            "the logic queue is being moved to this broker: its logic offset is not decided yet, "
            "try again",
        )
    return item


def _place_of(answer: RemotingCommand) -> PullPlace:
    header = decode(PullMessageResponseHeader, answer.ext_fields)
    return PullPlace(answer.code, header.next_begin_offset, header.min_offset, header.max_offset)


def _rewritten(
    request: RemotingCommand, answer: RemotingCommand, logic: LogicPlace, *, is_local: bool
) -> RemotingCommand:
    fields = {**dict(answer.ext_fields), **logic.fields()}
    if not is_local:
        fields["suggestWhichBrokerId"] = "0"  # the other broker's ids mean nothing here
    remark = answer.remark if logic.code == ResponseCode.SUCCESS else None  # as RocketMQ
    body = answer.body if logic.code == ResponseCode.SUCCESS else b""
    return request.answer(logic.code, remark, fields, body)


def _offset_of(answer: RemotingCommand) -> int:
    return decode(OffsetResponseHeader, answer.ext_fields).offset


def _with_offset(answer: RemotingCommand, logic_of: Callable[[int], int]) -> RemotingCommand:
    """An answer with a logic offset in place of its physical one; refusals stay."""
    if answer.code != ResponseCode.SUCCESS:
        return answer
    offset = str(logic_of(_offset_of(answer)))
    return msgspec.structs.replace(answer, ext_fields={**answer.ext_fields, "offset": offset})
