"""The checks of a pull before anything is read, with Apache's codes and remarks.

Those that depend only on group, topic and the tables of both are made once for a series of pulls
(`remoting/pull_fields.py`); their outcome is valid while the tables have the same entries. Queue
and filter are checked for each pull.

Source: PullMessageProcessor.processRequest of 5.3.3.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from ...common.java_integers import INT32_MAX
from ...remoting.bodies import PERM_READ, SubscriptionGroupConfig, TopicConfig
from ...remoting.channel import Channel
from ...remoting.errors import RequestRefused
from ...remoting.headers import PullMessageRequestHeader
from ...remoting.pull_sys_flag import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from ...remoting.response_codes import FAQ_HELP, ResponseCode
from ..clients.consumer_manager import ConsumerManager
from ..filters.consumer_filter_manager import ConsumerFilterManager, compile_filter
from ..filters.subscription import SUB_ALL, SUBSCRIPTION_LENGTH_MAX, TAG, tags_codes_of
from ..messages.admission import may_commit_offset
from ..settings.config import BrokerConfig
from ..tables.consumer_offset_manager import key_of
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager
from ..waiting.pull import HOLD_MS_MAX, PullTerms, Selector

logger = logging.getLogger(__name__)

_BROKER_FORBIDDEN: Final = "1"
_GROUP_FORBIDDEN: Final = "2"
_TOPIC_FORBIDDEN: Final = "3"
_BROADCASTING_DISABLE_FORBIDDEN: Final = "4"
_SUBSCRIPTION_FORBIDDEN: Final = "5"
"""The setting that forbids a pull. Source: remoting/protocol/ForbiddenType.java."""


class CheckedPulls(msgspec.Struct, frozen=True, eq=False):
    """Pulls of one group and topic that passed the checks of both.

    Attributes:
      token: of the PullChecks that made them. A series outlives its broker, and must not keep it.
      header: of one of the pulls.
      group, topic: the entries of the tables that were checked.
      terms: for the pulls themselves.
      is_unfiltered: the pulls bring the subscription to all messages.
      commits, suspends: bits of their sysFlag.
      may_commit: whether clients may commit offsets of the group.
      hold_s: how long they may be held.
    """

    token: object
    header: PullMessageRequestHeader
    group: SubscriptionGroupConfig
    topic: TopicConfig
    terms: PullTerms
    is_unfiltered: bool
    commits: bool
    suspends: bool
    may_commit: bool
    hold_s: float


class PullChecks:
    """The checks of one broker.

    Args:
      config: the broker's.
      topics, groups, consumers: the broker's tables.
      filters: the expressions of heartbeats; None: enablePropertyFilter is false.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager | None,
    ) -> None:
        self._config = config
        self._topic_table = topics.topic_config_table
        self._groups = groups
        self._group_table = groups.subscription_group_table
        self._consumer_table = consumers.consumer_table
        self._filters = filters
        self.settings_changed()

    def settings_changed(self) -> None:
        """Use brokerPermission as it is now; pulls that were checked before are checked again."""
        self._readable = bool(self._config.broker_permission & PERM_READ)
        self._token = object()

    def check(self, header: PullMessageRequestHeader, remote_address: str) -> CheckedPulls:
        """Check whether the group may pull from the topic.

        Args:
          header: of one of the pulls.
          remote_address: of the client.

        Raises: RequestRefused: it may not.
        """
        group = header.consumer_group
        topic = header.topic
        if not self._readable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] pulling message is forbidden",
                {"forbiddenType": _BROKER_FORBIDDEN},
            )
        group_config = self._group_table.get(group) or self._groups.find(group, remote_address)
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
        if not self._groups.may_read(group, topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{group}] is forbidden for topic[{topic}]",
                {"forbiddenType": _SUBSCRIPTION_FORBIDDEN},
            )
        sys_flag, size_max = header.sys_flag, header.max_msg_bytes
        if size_max is None or size_max <= 0:
            size_max = INT32_MAX
        return CheckedPulls(
            token=self._token,
            header=header,
            group=group_config,
            topic=topic_config,
            terms=PullTerms(group, topic, key_of(topic, group), header.max_msg_nums, size_max),
            is_unfiltered=bool(sys_flag & SUBSCRIPTION)
            and header.subscription == SUB_ALL
            and (not header.expression_type or header.expression_type == TAG),
            commits=bool(sys_flag & COMMIT_OFFSET),
            suspends=bool(sys_flag & SUSPEND),
            may_commit=may_commit_offset(group),
            hold_s=min(max(header.suspend_timeout_millis, 0), HOLD_MS_MAX) / 1000,
        )

    def is_current(self, pulls: CheckedPulls) -> bool:
        """Whether `check` has made these, and would find the same now."""
        return (
            pulls.token is self._token
            and self._group_table.get(pulls.terms.group) is pulls.group
            and self._topic_table.get(pulls.terms.topic) is pulls.topic
        )

    def selector(self, pulls: CheckedPulls, queue_id: int, channel: Channel) -> Selector | None:
        """Check queue and filter of one of the pulls; return its filter, None: all messages.

        Raises: RequestRefused: there is no such queue, or the subscription is missing or wrong.
        """
        topic = pulls.topic
        if queue_id >= topic.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{pulls.terms.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[/{channel.remote_address}]",
            )
        if pulls.is_unfiltered:
            return None
        header = pulls.header
        if header.sys_flag & SUBSCRIPTION:
            return self._given(header)
        return self._registered(header, pulls.group.consume_broadcast_enable)

    def _given(self, header: PullMessageRequestHeader) -> Selector | None:
        """The selector from the subscription in the pull."""
        subscription = header.subscription or ""
        expression_type = header.expression_type
        if not expression_type or expression_type == TAG:
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
                "the expression of a pull of %(topic)s by group %(group)s is wrong: %(reason)s",
                {"topic": header.topic, "group": header.consumer_group, "reason": found},
            )
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {found}",
            )
        return found

    def _registered(
        self, header: PullMessageRequestHeader, broadcast_enable: bool
    ) -> Selector | None:
        """The selector from the subscription in the group's heartbeats."""
        info = self._consumer_table.get(header.consumer_group)
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
        subscription = info.subscription_table.get(header.topic)
        if subscription is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist{FAQ_HELP}",
            )
        if subscription.sub_version < header.sub_version:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        # Nearly always TAG; the property costs two calls.
        if subscription.expression_type == TAG or not subscription.needs_expression:
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


def _not_supported(expression_type: str) -> RequestRefused:
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR,
        f"The broker does not support consumer to filter message by {expression_type}",
    )
