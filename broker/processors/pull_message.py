"""Pulls: PULL_MESSAGE 11, with long polling, the tag filter and the SQL92 filter.

LITE_PULL_MESSAGE 361 is the same request from lite pull consumers of 5.x.

An answer's body is the stored records, sent from the store's maps without copying. A pull that
finds nothing is held (`pull_request_hold.py`) until a message arrives or it times out.

SQL92 is refused unless enablePropertyFilter is true. Such a pull scans a bounded part of its queue,
in units and in time; if nothing matches, the answer has the offset at which to continue. If
messages have bit maps (`filter_bit_maps.py`), only those that may match are read.

Class filters are applied by filter servers, which pull everything. A consumer that pulls with such
a subscription from the broker gets every message.

With slaveReadEnable a master directs consumers that are far behind to a slave
(suggestWhichBrokerId). A slave directs them back when they have caught up, and does not hold pulls
while it follows a master, because new messages are at the master first. A slave does not correct an
offset past its end, because its master may have it (unless offsetCheckInSlave is set); without a
master such a pull is held.

Java counterpart: broker/processor/PullMessageProcessor.java, DefaultPullMessageResultHandler.java
of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ...common.java_integers import INT32_MAX
from ...common.message_properties import find_property
from ...common.sql92.expression import Expression
from ...common.topic_names import RETRY_TOPIC_PREFIX
from ...remoting.answer_template import AnswerTemplate
from ...remoting.bodies import PERM_READ, SubscriptionGroupConfig
from ...remoting.channel import Channel, Processor
from ...remoting.codec import RemotingCommand, encode, encode_head
from ...remoting.errors import RequestRefused
from ...remoting.headers import PullMessageRequestHeader, decode
from ...remoting.pull_sys_flag import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import FAQ_HELP, ResponseCode
from ...store.errors import StoreError
from ...store.message_store import MessageStore
from ...store.queues.new_tags import tags_codes_since
from ...store.reading.message_reader import GetMessageResult
from ...store.reading.record_filter import RecordFilter
from ...store.status import GetMessageStatus
from ..admission import may_commit_offset, own_offsets
from ..config import MASTER_ID, BrokerConfig
from ..consumer_filter_manager import ConsumerFilterManager, compile_filter
from ..consumer_manager import ConsumerManager
from ..consumer_offset_manager import ConsumerOffsetManager
from ..filter_bit_maps import FilterBitMaps
from ..pull import Pull, Selector
from ..pull_request_hold import HeldPull, PullRequestHoldService
from ..replication import MasterSide, SlaveSide
from ..subscription import SUB_ALL, SUBSCRIPTION_LENGTH_MAX, TAG, tags_codes_of
from ..subscription_group_manager import SubscriptionGroupManager
from ..topic_config_manager import TopicConfigManager

logger = logging.getLogger(__name__)

_BROKER_FORBIDDEN: Final = "1"
_GROUP_FORBIDDEN: Final = "2"
_TOPIC_FORBIDDEN: Final = "3"
_BROADCASTING_DISABLE_FORBIDDEN: Final = "4"
"""The setting that forbids a pull. Source: remoting/protocol/ForbiddenType.java."""
HOLD_MS_MAX: Final = 30 * 60 * 1000
"""The longest time for which a pull may be held; RocketMQ accepts any number. Its clients ask for
15 s, and never for more than their time-outs."""

FILTER_TIME_MAX_S: Final = 0.01
"""How long one pull may scan for messages that match its expression, which blocks the loop; at
least one message is read. The 800 of maxFilterMessageSize take 8 ms with a usual expression, a
single hostile message with a hostile one up to 25 ms. RocketMQ has no limit but the 800."""

_FOUND = GetMessageStatus.FOUND
_CODES: Final = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""The answer's code by outcome. The two of an empty queue become PULL_OFFSET_MOVED when the pull's
offset is not 0. Source: PullMessageProcessor.composeResponseHeader."""

_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_RETRY: Final = ResponseCode.PULL_RETRY_IMMEDIATELY

_MOVED_WHEN_NOT_FIRST: Final = frozenset(
    {GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE}
)


def _template(status: GetMessageStatus, code: ResponseCode) -> AnswerTemplate:
    constants = {"suggestWhichBrokerId": "0", "topicSysFlag": "0", "groupSysFlag": "0"}
    names = ("nextBeginOffset", "minOffset", "maxOffset")
    return AnswerTemplate(names, constants=constants, code=code, remark=status.name)


_TEMPLATES: Final = {
    (status, code): _template(status, code)
    for status in _CODES
    for code in {_CODES[status], _MOVED, _RETRY}
}
"""The prepared answers by outcome and code."""


class PullMessageProcessor:
    """Serves pulls, immediately or after holding them.

    Args:
      config: the broker's.
      store: already loaded.
      topics, groups, consumers, offsets: the broker's tables.
      now_s: the clock for deadlines of held pulls and scans, such as trio.current_time.
      filters: the expressions of heartbeats; None: enablePropertyFilter is false.
      bit_maps: finds messages that need not be read.
      replication: knows whether a slave follows its master now.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        now_s: Callable[[], float],
        filters: ConsumerFilterManager | None,
        bit_maps: FilterBitMaps,
        replication: MasterSide | SlaveSide,
    ) -> None:
        self._config = config
        self._filters = filters
        self._bit_maps = bit_maps
        self._store = store
        self._topic_table = topics.topic_config_table
        self._groups = groups
        self._group_table = groups.subscription_group_table
        self._consumers = consumers
        self._offsets = offsets
        self._now_s = now_s
        self._readable = bool(config.broker_permission & PERM_READ)
        self._may_read_slave = config.slave_read_enable
        self._replication = replication
        self._keeps_offsets = store.is_slave and not store.config.offset_check_in_slave
        self._templates = _TEMPLATES
        self._found = self._templates[_FOUND, ResponseCode.SUCCESS]
        self.hold_service = PullRequestHoldService(
            self._resume,
            tags_codes_since=lambda key, offset: tags_codes_since(
                store.queue_store.queues.get(key), offset
            ),
            elapsed_s=store.clock.monotonic_s,
        )
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.PULL_MESSAGE: self.pull_message,
            RequestCode.LITE_PULL_MESSAGE: (
                self.pull_message if config.lite_pull_message_enable else self._refuse_lite_pull
            ),
        }

    def _refuse_lite_pull(self, request: RemotingCommand, channel: Channel) -> None:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"the broker[{self._config.broker_ip1}] for lite pull consumer is forbidden",
        )

    def pull_message(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a pull; the answer is written to the channel, now or later.

        Raises: RequestRefused: with Apache's codes and remarks; SYSTEM_ERROR: the first message is
          damaged or cannot be read.
        """
        header = decode(PullMessageRequestHeader, request.ext_fields)
        selector = self._check(header, channel)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        sys_flag = header.sys_flag
        commits = sys_flag & COMMIT_OFFSET and header.commit_offset >= 0
        if commits and not may_commit_offset(group):
            raise RequestRefused(ResponseCode.NO_PERMISSION, own_offsets(group))
        size_max = header.max_msg_bytes
        if size_max is None or size_max <= 0:
            size_max = INT32_MAX
        pull = Pull(
            channel, request.opaque, request.serialize_type, group, topic, queue_id,
            header.queue_offset, header.max_msg_nums, size_max, selector,
        )  # fmt: skip
        try:
            result = self._get(pull)
        except StoreError as error:
            # The consumer retries; the error's text says what an operator should do.
            logger.error(
                "%s: a pull of %s failed: %s", channel.remote_address, (topic, queue_id), error
            )
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        next_offset, end = result.next_begin_offset, result.max_offset
        self._offsets.commit_pull_offset(
            group, topic, queue_id, next_offset if next_offset <= end else end
        )
        if commits:
            committed = header.commit_offset
            if committed <= end:
                self._offsets.commit_offset(group, topic, queue_id, committed)
            else:
                self._commit_past_end(header, end)
        if (
            sys_flag & SUSPEND
            and result.status is not _FOUND
            and self._may_wait(result.status, pull.queue_offset)
            and not self._replication.has_master
        ):
            hold_ms = header.suspend_timeout_millis
            if not self._config.long_polling_enable:
                hold_ms = self._config.short_polling_time_mills
            deadline_s = self._now_s() + min(max(hold_ms, 0), HOLD_MS_MAX) / 1000
            if self.hold_service.hold(HeldPull(pull, deadline_s)):
                return
        self._answer(pull, result)

    def _get(self, pull: Pull) -> GetMessageResult:
        """Read from the store. Raises: StoreError: a record or file cannot be read."""
        tags_codes = record_filter = None
        selector = pull.selector
        if selector is None:  # nearly always: all messages are wanted
            pass
        elif isinstance(selector, frozenset):
            tags_codes = selector
        else:
            record_filter = self._record_filter(pull, selector)
        return self._store.get_message(
            pull.topic,
            pull.queue_id,
            pull.queue_offset,
            pull.count_max,
            pull.size_max,
            tags_codes,
            record_filter,
        )

    def _commit_past_end(self, header: PullMessageRequestHeader, end: int) -> None:
        """Commit an offset past the queue's end if that can be right; the pull is served anyway."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offset, is_slave = header.commit_offset, self._store.is_slave
        if not self._offsets.commit_within(group, topic, queue_id, offset, end, is_slave=is_slave):
            logger.debug(
                "the offset %d of group %s is not committed: %s queue %d ends at %d",
                offset, group, topic, queue_id, end,
            )  # fmt: skip

    def _resume(self, held: HeldPull, over: bool) -> bool:
        """Try a held pull again; return whether it was answered."""
        pull = held.pull
        try:
            result = self._get(pull)
        except StoreError as error:
            logger.error("%s: a held pull of %s failed: %s", pull.channel, pull.place, error)
            pull.channel.write(encode(pull.answer(ResponseCode.SYSTEM_ERROR, str(error))))
            return True
        except Exception as error:
            logger.exception("%s: a held pull of %s failed", pull.channel, pull.place)
            remark = f"{type(error).__name__}: {error}"
            pull.channel.write(encode(pull.answer(ResponseCode.SYSTEM_ERROR, remark)))
            return True
        if not over:
            is_at_end = result.next_begin_offset >= result.max_offset
            if result.status is GetMessageStatus.NO_MATCHED_MESSAGE and is_at_end:
                # Everything so far was compared, so the next try starts at the new message.
                held.move_to(result.next_begin_offset)
                return False
            if self._may_wait(result.status, pull.queue_offset):
                return False
        self._answer(pull, result)
        return True

    def _record_filter(self, pull: Pull, expression: Expression) -> RecordFilter:
        """The filter that the store applies to each record of a pull by an expression."""
        now_s, topic = self._now_s, pull.topic
        end_s = now_s() + FILTER_TIME_MAX_S
        if self._config.filter_support_retry and topic.startswith(RETRY_TOPIC_PREFIX):
            return RecordFilter(partial(self._matches_origin, topic), lambda: now_s() > end_s)
        can_skip = self._bit_maps.skip_test(topic, pull.group, expression)
        return RecordFilter(expression.matches, lambda: now_s() > end_s, can_skip)

    def _matches_origin(self, topic: str, properties: bytes) -> bool:
        """Whether a retried message matches the group's expression for its original topic.

        If the group has none, every message matches.
        Source: broker/filter/ExpressionForRetryMessageFilter.java isMatchedByCommitLog.
        """
        origin = find_property(properties, b"RETRY_TOPIC")
        if origin is None or self._filters is None:
            return True
        group = topic.removeprefix(RETRY_TOPIC_PREFIX)
        data = self._filters.find(str(origin, "utf-8", "replace"), group)
        return data is None or data.expression is None or data.expression.matches(properties)

    def _may_wait(self, status: GetMessageStatus, queue_offset: int) -> bool:
        """Whether a new message may satisfy a pull that found nothing."""
        code = _code_of(status, queue_offset)
        return code == _NOT_FOUND or (code == _MOVED and self._keeps_offsets)

    def _code_of(self, status: GetMessageStatus, queue_offset: int) -> ResponseCode:
        """The answer's code for a pull that found nothing.

        Source: PullMessageProcessor.composeResponseHeader, DefaultPullMessageResultHandler.handle.
        """
        code = _code_of(status, queue_offset)
        if code == _MOVED and self._keeps_offsets:
            return _RETRY
        return _RETRY if code == _NOT_FOUND and self._replication.has_master else code

    def _answer(self, pull: Pull, result: GetMessageResult) -> None:
        topic, group, status = pull.topic, pull.group, result.status
        if status is _FOUND:  # nearly always
            template = self._found
        else:
            template = self._templates[status, self._code_of(status, pull.queue_offset)]
            if template.code == _MOVED:
                logger.warning(
                    "PULL_OFFSET_MOVED: %s of group %s pulled %s from offset %d, which does not "
                    "exist, and is sent to %d (%s)",
                    pull.channel.remote_address, group, topic, pull.queue_offset,
                    result.next_begin_offset, status.name,
                )  # fmt: skip
        topic_config = self._topic_table.get(topic)
        group_config = self._group_table.get(group)
        topic_flag = 0 if topic_config is None else topic_config.topic_sys_flag
        group_flag = 0 if group_config is None else group_config.group_sys_flag
        broker_id = 0
        if self._may_read_slave and group_config is not None:
            broker_id = self._suggested(group_config, result)
        if topic_flag or group_flag or broker_id:
            fields = {
                "nextBeginOffset": str(result.next_begin_offset),
                "minOffset": str(result.min_offset),
                "maxOffset": str(result.max_offset),
                "suggestWhichBrokerId": str(broker_id),
                "topicSysFlag": str(topic_flag),
                "groupSysFlag": str(group_flag),
            }
            head = encode_head(pull.answer(template.code, status.name, fields), result.size)
        else:
            head = template.encode(
                pull.opaque,
                pull.serialize_type,
                b"%d" % result.next_begin_offset,
                b"%d" % result.min_offset,
                b"%d" % result.max_offset,
                result.size,
            )
        if result.size:
            pull.channel.write([head, *result.buffers], len(head) + result.size)
        else:
            pull.channel.write(head)

    def _suggested(self, group: SubscriptionGroupConfig, result: GetMessageResult) -> int:
        """The broker id to pull from next.

        Source: PullMessageProcessor.composeResponseHeader.
        """
        if result.suggest_pulling_from_slave:
            return group.which_broker_when_consume_slowly
        return MASTER_ID if self._replication.has_master else group.broker_id

    def _check(self, header: PullMessageRequestHeader, channel: Channel) -> Selector | None:
        """Make the checks that Apache makes before it reads, in its order.

        Raises: RequestRefused: a check fails.
        Source: PullMessageProcessor.processRequest.
        """
        group = header.consumer_group
        topic = header.topic
        if not self._readable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] pulling message is forbidden",
                {"forbiddenType": _BROKER_FORBIDDEN},
            )
        group_config = self._group_table.get(group) or self._groups.find(group)
        if group_config is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group}] does not exist, {FAQ_HELP}",
            )
        if not group_config.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {group}",
                {"forbiddenType": _GROUP_FORBIDDEN},
            )
        topic_config = self._topic_table.get(topic)
        if topic_config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please! {FAQ_HELP}",
            )
        if not topic_config.perm & PERM_READ:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the topic[{topic}] pulling message is forbidden",
                {"forbiddenType": _TOPIC_FORBIDDEN},
            )
        if header.queue_id >= topic_config.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{topic_config.read_queue_nums}] "
                f"consumer:[/{channel.remote_address}]",
            )
        if header.sys_flag & SUBSCRIPTION:
            return self._given(header)
        return self._registered(header, group_config.consume_broadcast_enable)

    def _given(self, header: PullMessageRequestHeader) -> Selector | None:
        """The selector from the subscription in the pull."""
        subscription = header.subscription or ""
        expression_type = header.expression_type
        if not expression_type or expression_type == TAG:
            if subscription == SUB_ALL:  # the usual case
                return None
            if len(subscription) > SUBSCRIPTION_LENGTH_MAX:
                raise RequestRefused(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                    f"the tags have {len(subscription)} characters, "
                    f"the limit is {SUBSCRIPTION_LENGTH_MAX}",
                )
            return tags_codes_of(subscription)
        if self._filters is None:
            raise _not_supported(expression_type)
        found = compile_filter(expression_type, subscription)
        if isinstance(found, str):
            logger.warning(
                "the expression of a pull of %s by group %s is wrong: %s",
                header.topic, header.consumer_group, found,
            )  # fmt: skip
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {found}",
            )
        return found

    def _registered(
        self, header: PullMessageRequestHeader, broadcast_enable: bool
    ) -> Selector | None:
        """The selector from the subscription in the group's heartbeats."""
        info = self._consumers.get_consumer_group_info(header.consumer_group)
        if info is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist{FAQ_HELP}",
            )
        if not broadcast_enable and info.is_broadcasting:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
                {"forbiddenType": _BROADCASTING_DISABLE_FORBIDDEN},
            )
        subscription = info.find_subscription_data(header.topic)
        if subscription is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist{FAQ_HELP}",
            )
        if subscription.sub_version < header.sub_version:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        if not subscription.needs_expression:
            return subscription.tags_codes
        if self._filters is None:
            raise _not_supported(subscription.expression_type)
        data = self._filters.find(header.topic, header.consumer_group)
        if data is None:
            raise RequestRefused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if data.client_version < header.sub_version:
            raise RequestRefused(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                "the consumer's consumer filter data not latest",
            )
        return data.expression


def _code_of(status: GetMessageStatus, queue_offset: int) -> ResponseCode:
    """The answer's code on a master."""
    return _MOVED if queue_offset and status in _MOVED_WHEN_NOT_FIRST else _CODES[status]


def _not_supported(expression_type: str) -> RequestRefused:
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {expression_type}",
    )
