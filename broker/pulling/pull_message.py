"""PullMessageProcessor: PULL_MESSAGE 11, with long polling, the tag and the SQL92 filter.

The package's docstring shows the steps of a pull, with the type of each.

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

from ...auth.standing import Rights, asker_of
from ...common.message_properties import find_property
from ...common.sql92.expression import Expression
from ...common.topic_names import RETRY_TOPIC_PREFIX
from ...disk.errors import StoreError
from ...remoting.answer_template import AnswerTemplate
from ...remoting.bodies import SubscriptionGroupConfig
from ...remoting.channel import JOIN_PIECE_SIZE, Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand, encode, encode_head
from ...remoting.errors import RequestRefused
from ...remoting.headers import PullMessageRequestHeader, decode
from ...remoting.pull_fields import PullFields
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ...store.queues.new_tags import tags_codes_since
from ...store.reading.message_reader import GetMessageResult
from ...store.reading.record_filter import RecordFilter
from ...store.status import GetMessageStatus
from ..clients.consumer_manager import ConsumerManager
from ..filters.consumer_filter_manager import ConsumerFilterManager
from ..filters.filter_bit_maps import FilterBitMaps
from ..messages.admission import own_offsets
from ..settings.config import MASTER_ID, BrokerConfig
from ..static_topics.static_topic import StaticTopicProcessor
from ..stats.broker_stats_manager import BrokerStatsManager
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager
from ..waiting.pull import FILTER_TIME_MAX_S, HOLD_MS_MAX, Pull
from ..waiting.pull_request_hold import HeldPull, PullRequestHoldService
from .pull_checks import CheckedPulls, PullChecks
from .pull_runs import HasMaster, PullRunProcessor
from .pull_wakes import DirectWakes

logger = logging.getLogger(__name__)


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
      static: rewrites pulls from static topics.
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
        replication: HasMaster,
        stats: BrokerStatsManager,
        static: StaticTopicProcessor,
    ) -> None:
        self._config, self._static = config, static
        self._filters, self._bit_maps = filters, bit_maps
        self._store, self._stats = store, stats
        self._ends_at = store.reader.ends_at
        self._topic_table = topics.topic_config_table
        self._group_table = groups.subscription_group_table
        self._offsets = offsets
        self._resets = offsets.reset_offset_table
        self._now_s = now_s
        self._checks = PullChecks(
            config, topics=topics, groups=groups, consumers=consumers, filters=filters
        )
        self._replication = replication
        self._keeps_offsets = store.is_slave and not store.config.offset_check_in_slave
        self._elapsed_s = store.clock.monotonic_s
        self._found = _TEMPLATES[_FOUND, ResponseCode.SUCCESS]
        self.hold_service = PullRequestHoldService(
            self._resume,
            config=config,
            tags_codes_since=partial(tags_codes_since, store.queue_store.queues),
            elapsed_s=store.clock.monotonic_s,
        )
        self.runs: PullRunProcessor | None = None
        recent = store.reader.recent
        self.wakes: DirectWakes | None = None
        self._rights: Rights | None = None
        if recent is not None:
            self.runs = PullRunProcessor(
                recent.native,
                config,
                store.queue_store.queues,
                checks=self._checks,
                offsets=offsets,
                hold_service=self.hold_service,
                replication=replication,
                count_misses=stats.count_misses,
                now_s=now_s,
            )
            self.wakes = DirectWakes(
                recent,
                store,
                self.hold_service.queues,
                topics=self._topic_table,
                groups=self._group_table,
                found=self._found,
                count_get=stats.count_get,
            )
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.PULL_MESSAGE: self.pull_message,
            RequestCode.LITE_PULL_MESSAGE: self.lite_pull_message,
        }
        self.settings_changed()

    def settings_changed(self) -> None:
        """Use brokerPermission and the keys of pulls as they are now."""
        self._checks.settings_changed()
        self.hold_service.settings_changed()
        if self.runs is not None:
            self.runs.settings_changed()
        # Pulls that are answered directly are never sent to a slave, nor asked for again.
        is_checked = self._config.slave_read_enable or self._rights is not None
        wakes = None if is_checked or self.wakes is None else self.wakes.wake
        self.hold_service.wake_directly = wakes

    def follow(self, rights: Rights) -> None:
        """Answer held pulls only while their users may pull."""
        self._rights = rights
        self.settings_changed()

    def lite_pull_message(self, request: RemotingCommand, channel: Channel) -> Deferred | None:
        """Serve a pull of a lite pull consumer; see `pull_message`.

        Raises: RequestRefused: see `pull_message`; or litePullMessageEnable is false.
        """
        if not self._config.lite_pull_message_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] for lite pull consumer is forbidden",
            )
        return self.pull_message(request, channel)

    def pull_message(self, request: RemotingCommand, channel: Channel) -> Deferred | None:
        """Serve a pull; the answer is written to the channel, now or later.

        Returns: the answer to a pull from a static topic; None for all others.
        Raises: RequestRefused: with Apache's codes and remarks; SYSTEM_ERROR: the first message is
          damaged or cannot be read.
        """
        given = request.ext_fields
        # Nearly always an earlier pull of the series was decoded and checked.
        pulls = given.series.derived if isinstance(given, PullFields) else None
        if not isinstance(pulls, CheckedPulls) or not self._checks.is_current(pulls):
            fields = given.as_dict() if isinstance(given, PullFields) else given
            header = decode(PullMessageRequestHeader, fields)
            pulls = self._checks.check(header, channel.remote_address)
            if header.topic in self._static.topics and header.logical is not False:
                request.ext_fields = fields
                return self._static.pull(request, header, channel, self.pull_message)
            if isinstance(given, PullFields):
                given.series.derived = pulls
        numbers = given if isinstance(given, PullFields) else pulls.header
        queue_id, queue_offset = numbers.queue_id, numbers.queue_offset
        committed = numbers.commit_offset
        selector = self._checks.selector(pulls, queue_id, channel)
        terms = pulls.terms
        commits = pulls.commits and committed >= 0
        if commits and not pulls.may_commit:
            raise RequestRefused(ResponseCode.NO_PERMISSION, own_offsets(terms.group))
        pull = Pull(
            channel, request.opaque, request.serialize_type, terms, queue_id, queue_offset, selector
        )
        if self._resets and self._answer_reset(pull):
            return None
        result, began_s = None, 0.0
        if pulls.suspends and self._ends_at(terms.topic, queue_id, queue_offset):
            # Nearly always: the consumer has kept up. The end is known without a read.
            next_offset = end = queue_offset
        else:
            began_s = self._elapsed_s()
            result = self._get_or_refuse(pull)
            next_offset, end = result.next_begin_offset, result.max_offset
        # Where the group pulls from, for the lag that is shown; not what it has consumed.
        self._offsets.commit_pull_by_key(
            terms.offset_key, queue_id, next_offset if next_offset <= end else end
        )
        if commits:
            if committed <= end:
                self._offsets.commit_by_key(terms.offset_key, queue_id, committed)
            else:
                self._commit_past_end(pull, committed, end)
        if (
            pulls.suspends
            and (result is None or self._may_wait(result.status, queue_offset))
            and not self._replication.has_master
        ):
            hold_s = pulls.hold_s
            if not self._config.long_polling_enable:
                hold_s = min(max(self._config.short_polling_time_mills, 0), HOLD_MS_MAX) / 1000
            held = HeldPull(pull, self._now_s() + hold_s)
            if self.hold_service.hold(held):
                if self._rights is not None:
                    self.hold_service.askers[held] = asker_of(request, terms.topic, terms.group)
                self._stats.count_misses(1)
                return None
        if result is None:  # it was not held: it gets the answer of a pull that timed out
            began_s = self._elapsed_s()
            result = self._get_or_refuse(pull)
        self._answer(pull, result, began_s)
        return None

    def _answer_reset(self, pull: Pull) -> bool:
        """Send a pull to the offset that an administrator has set; return whether there is one.

        What the pull commits is from before and is ignored.
        Source: PullMessageProcessor.processRequest, GetMessageStatus.OFFSET_RESET.
        """
        terms, queue_id = pull.terms, pull.queue_id
        offset = self._offsets.take_reset_offset(terms.offset_key, queue_id)
        if offset is None:
            return False
        fields = {
            "nextBeginOffset": str(offset),
            "minOffset": str(max(self._store.min_offset(terms.topic, queue_id), 0)),
            "maxOffset": str(self._store.max_offset(terms.topic, queue_id)),
            "suggestWhichBrokerId": "0",
        }
        pull.channel.write(encode(pull.answer(_MOVED, "OFFSET_RESET", fields)))
        return True

    def _get_or_refuse(self, pull: Pull) -> GetMessageResult:
        """Read for a pull that has just come. Raises: RequestRefused: it cannot be read."""
        try:
            return self._get(pull)
        except StoreError as error:
            # The consumer retries; the error's text says what an operator should do.
            logger.error(
                "%(peer)s: a pull of %(place)s failed: %(error)s",
                {"peer": pull.channel.remote_address, "place": pull.place, "error": error},
            )
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error

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
        terms = pull.terms
        return self._store.get_message(
            terms.topic,
            pull.queue_id,
            pull.queue_offset,
            terms.count_max,
            terms.size_max,
            tags_codes,
            record_filter,
        )

    def _commit_past_end(self, pull: Pull, offset: int, end: int) -> None:
        """Commit an offset past the queue's end if that can be right; the pull is served anyway."""
        group, topic, queue_id = pull.terms.group, pull.terms.topic, pull.queue_id
        is_slave = self._store.is_slave
        if not self._offsets.commit_within(group, topic, queue_id, offset, end, is_slave=is_slave):
            logger.debug(
                "the offset %(offset)d of group %(group)s is not committed: %(topic)s queue "
                "%(queue_id)d ends at %(end)d",
                {
                    "offset": offset,
                    "group": group,
                    "topic": topic,
                    "queue_id": queue_id,
                    "end": end,
                },
            )

    def _resume(self, held: HeldPull, over: bool) -> bool:
        """Try a held pull again; return whether it was answered."""
        pull = held.pull
        if self._rights is not None and self._answer_revoked(self._rights, held):
            return True
        if self._resets and self._answer_reset(pull):
            return True
        began_s = self._elapsed_s()
        try:
            result = self._get(pull)
        except StoreError as error:
            logger.error(
                "%(peer)s: a held pull of %(place)s failed: %(error)s",
                {"peer": pull.channel, "place": pull.place, "error": error},
            )
            pull.channel.write(encode(pull.answer(ResponseCode.SYSTEM_ERROR, str(error))))
            return True
        except Exception as error:
            logger.exception(
                "%(peer)s: a held pull of %(place)s failed",
                {"peer": pull.channel, "place": pull.place},
            )
            remark = f"{type(error).__name__}: {error}"
            pull.channel.write(encode(pull.answer(ResponseCode.SYSTEM_ERROR, remark)))
            return True
        if not over and result.status is not _FOUND:
            is_at_end = result.next_begin_offset >= result.max_offset
            if result.status is GetMessageStatus.NO_MATCHED_MESSAGE and is_at_end:
                # Everything so far was compared, so the next try starts at the new message.
                held.move_to(result.next_begin_offset)
                return False
            if self._may_wait(result.status, pull.queue_offset):
                return False
        self._answer(pull, result, began_s)
        return True

    def _answer_revoked(self, rights: Rights, held: HeldPull) -> bool:
        """Refuse a held pull whose user has lost its rights meanwhile; return whether it has."""
        pull = held.pull
        asker = self.hold_service.askers.get(held)
        refusal = None if asker is None else rights.revoked(asker, pull.channel)
        if refusal is None:
            return False
        pull.channel.write(encode(pull.answer(refusal.code, refusal.remark)))
        return True

    def _record_filter(self, pull: Pull, expression: Expression) -> RecordFilter:
        """The filter that the store applies to each record of a pull by an expression."""
        now_s, topic = self._now_s, pull.terms.topic
        end_s = now_s() + FILTER_TIME_MAX_S
        if self._config.filter_support_retry and topic.startswith(RETRY_TOPIC_PREFIX):
            return RecordFilter(partial(self._matches_origin, topic), lambda: now_s() > end_s)
        can_skip = self._bit_maps.skip_test(topic, pull.terms.group, expression)
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
        """Whether a new message may satisfy a pull, because it found nothing."""
        if status is _FOUND:
            return False
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

    def _answer(self, pull: Pull, result: GetMessageResult, began_s: float) -> None:
        """Answer a pull that began to be read at `began_s` of the monotonic clock."""
        topic, group, status = pull.terms.topic, pull.terms.group, result.status
        if status is _FOUND:  # nearly always
            template = self._found
            key = pull.terms.offset_key
            self._stats.count_get(key, result.count, result.size)
            self._stats.note_get(key, pull.queue_id, self._elapsed_s() - began_s)
        else:
            self._stats.count_misses(1)
            template = _TEMPLATES[status, self._code_of(status, pull.queue_offset)]
            if template.code == _MOVED:
                logger.warning(
                    "PULL_OFFSET_MOVED: %(peer)s of group %(group)s pulled %(topic)s from "
                    "offset %(queue_offset)d, which does not exist, and is sent to "
                    "%(next_begin_offset)d (%(status)s)",
                    {
                        "peer": pull.channel.remote_address,
                        "group": group,
                        "topic": topic,
                        "queue_offset": pull.queue_offset,
                        "next_begin_offset": result.next_begin_offset,
                        "status": status.name,
                    },
                )
        topic_config = self._topic_table.get(topic)
        group_config = self._group_table.get(group)
        topic_flag = 0 if topic_config is None else topic_config.topic_sys_flag
        group_flag = 0 if group_config is None else group_config.group_sys_flag
        broker_id = 0
        if self._config.slave_read_enable and group_config is not None:
            broker_id = self._suggested(group_config, result)
        # The templates have zeros in these three fields.
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
        size, buffers = result.size, result.buffers
        if len(buffers) == 1 and size < JOIN_PIECE_SIZE:
            pull.channel.write(head + buffers[0])
        elif size:
            pull.channel.write([head, *buffers], len(head) + size)
        else:
            pull.channel.write(head)

    def _suggested(self, group: SubscriptionGroupConfig, result: GetMessageResult) -> int:
        """The broker id to pull from next.

        Source: PullMessageProcessor.composeResponseHeader.
        """
        if result.suggest_pulling_from_slave:
            return group.which_broker_when_consume_slowly
        return MASTER_ID if self._replication.has_master else group.broker_id


def _code_of(status: GetMessageStatus, queue_offset: int) -> ResponseCode:
    """The answer's code on a master."""
    return _MOVED if queue_offset and status in _MOVED_WHEN_NOT_FIRST else _CODES[status]
