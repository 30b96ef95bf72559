"""Settings of consumer groups, and tables of them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .base import Body, Int32
from .data_version import DataVersion
from .fields import (
    BrokerId,
    DelayMs,
    Factor,
    GroupSysFlag,
    GroupTries,
    Minutes,
    QueueCount,
    Version,
)

_S = 1000
_MINUTE = 60 * _S
_HOUR = 60 * _MINUTE


class GroupRetryPolicyType(StrEnum):
    """The policy of a GroupRetryPolicy that is in effect."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(Body):
    """Delays that grow by a factor: the first and the longest in ms."""

    initial: DelayMs = 5 * _S
    max: DelayMs = 2 * _HOUR
    multiplier: Factor = 2


class CustomizedRetryPolicy(Body):
    """Delays one by one, in ms."""

    next: list[DelayMs] = msgspec.field(
        default_factory=lambda: (
            [1 * _S, 5 * _S, 10 * _S, 30 * _S]
            + [minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)]
            + [1 * _HOUR, 2 * _HOUR]
        )
    )


class GroupRetryPolicy(Body):
    """The delay before a message is consumed again (pop consumers)."""

    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body):
    """A subscription in the settings of a group (5.x).

    Attributes:
      expression_type: "TAG" or "SQL92".
      version: of the subscription, ms since 1970.
    """

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Version = 0


class SubscriptionGroupConfig(Body):
    """The settings of a consumer group on one broker.

    Attributes:
      group_name: its name; "" only in a body without it.
      consume_enable: it may consume.
      consume_from_min_enable: it may begin at the oldest message.
      consume_broadcast_enable: it may broadcast.
      consume_message_orderly: it consumes in order (5.x).
      retry_queue_nums: queues of its retry topic.
      retry_max_times: retries of a message.
      group_retry_policy: delays of pop consumers (5.x).
      broker_id: the broker of a name that it reads from.
      which_broker_when_consume_slowly: the broker id it is sent to when it lags.
      notify_consumer_ids_changed_enable: its members are notified when members join or leave.
      group_sys_flag: bits for units (5.x).
      consume_timeout_minute: how long a push consumer may take for a message (5.x).
      subscription_data_set: subscriptions fixed by its settings (5.x), or None.
      attributes: further settings by name (5.x).
    Source: RocketMQ 5.5.0 SubscriptionGroupConfig.
    """

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: QueueCount = 1
    retry_max_times: GroupTries = 16
    group_retry_policy: GroupRetryPolicy = msgspec.field(default_factory=GroupRetryPolicy)
    broker_id: BrokerId = 0
    which_broker_when_consume_slowly: BrokerId = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: GroupSysFlag = 0
    consume_timeout_minute: Minutes = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class SubscriptionGroupWrapper(Body):
    """All groups of a broker: config/subscriptionGroup.json and answer 201.

    Attributes:
      subscription_group_table: name to settings.
      forbidden_table: group to topic to bits of what it may not do (5.x).
    """

    subscription_group_table: dict[str, SubscriptionGroupConfig] = msgspec.field(
        default_factory=dict
    )
    forbidden_table: dict[str, dict[str, Int32]] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class SubscriptionGroupList(Body):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: list[SubscriptionGroupConfig] = msgspec.field(default_factory=list)


class GroupForbidden(Body):
    """Answer to UPDATE_AND_GET_GROUP_FORBIDDEN (353): whether a group may read a topic.

    Source: RocketMQ 5.5.0 GroupForbidden.
    """

    topic: str = ""
    group: str = ""
    readable: bool = True
