"""The keys of pop consumption in broker.conf: RocketMQ's names in snake_case, its types.

Pure. Java counterpart: common/BrokerConfig.java of 5.5.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...common.config import setting
from ...remoting.bodies import MessageRequestMode

REVIVE_QUEUES_MAX: Final = 998
"""reviveQueueNum at most: receipts name the queue, and 999 in them stands for a pop in order."""

PERCENT: Final = 100


@dataclass
class PopConfig:
    """Keys of pop consumption. Without slots, as it is one of several bases.

    Attributes:
      enable_pop_buffer_merge: whether check points and acknowledgements wait in memory, so that a
        quick acknowledgement leaves no record. RocketMQ: false.
      pop_ck_stay_buffer_time: how long a check point may wait there.
      pop_ck_stay_buffer_time_out: how long before its messages become visible it leaves.
      pop_ck_max_buffer_size: check points that wait, at most; further ones are stored at once.
      pop_ck_offset_max_queue_size: the same for one queue of one group.
      revive_queue_num: queues of the revive topic.
      skip_when_ck_re_put_reach_max_times: whether a message is given up that could not be revived
        after 17 attempts.
      pop_revive_skip_if_group_absent: whether messages of a deleted group are not revived.
      pop_from_retry_probability, pop_from_retry_probability_for_priority: percent of the pops that
        read the retry topic first; the second is for topics of priority messages.
      priority_order_asc: whether queue 0 of a topic of priority messages has the lowest priority.
      enable_retry_topic_v2: whether retry topics are named `%RETRY%group+topic`, not
        `%RETRY%group_topic`.
      retrieve_message_from_pop_retry_topic_v1: with V2, whether those of V1 are read, too.
      use_separate_retry_queue: whether a new retry topic has as many queues as its topic, not one.
      pop_response_return_actual_retry_topic: whether messages of a retry topic keep its name in the
        answer to a pop.
      pop_polling_size, max_pop_polling_size: pops of one topic, group and queue that wait, and all.
      pop_polling_map_size: topics, groups and queues with waiting pops. RocketMQ remembers others
        for popPollingMapExpireTimeSeconds.
      pop_long_polling_force_notify_interval: each that many'th message wakes a pop although its
        filter does not match.
      enable_notify_after_pop_order_lock_release: whether the end of a pop in order wakes another.
      init_pop_offset_by_check_msg_in_mem: a group that begins at the end (initMode 1) begins at the
        first message if all messages of the queue are in memory.
      enable_pop_message_threshold, pop_inflight_message_threshold: whether a queue is not popped by
        a group while it has more unacknowledged messages of it.
      use_message_filter_for_notification, max_message_filter_num_for_notification: whether 200054
        filters by the expression, and up to how many waiting messages.
      server_load_balancer_enable: whether the broker assigns queues to consumers (400).
      load_balance_poll_name_server_interval: how old routes for that may be.
      default_message_request_mode, default_pop_share_queue_num: the mode of groups for which no
        administrator set one.
      subscription_expired_timeout: how long a group without heartbeats has the subscription of its
        last pop.
      enable_pop_metrics: whether there are metrics of pop consumption.
    """

    enable_pop_buffer_merge: bool = setting(True, live=True)
    pop_ck_stay_buffer_time: int = setting(10_000, minimum=1, live=True)
    pop_ck_stay_buffer_time_out: int = setting(3_000, minimum=1, live=True)
    pop_ck_max_buffer_size: int = setting(200_000, minimum=0, live=True)
    pop_ck_offset_max_queue_size: int = setting(20_000, minimum=0, live=True)
    revive_queue_num: int = setting(8, minimum=1, maximum=REVIVE_QUEUES_MAX)
    skip_when_ck_re_put_reach_max_times: bool = setting(
        False, live=True, key="skipWhenCKRePutReachMaxTimes"
    )
    pop_revive_skip_if_group_absent: bool = setting(True, live=True)
    pop_from_retry_probability: int = setting(20, minimum=0, maximum=PERCENT, live=True)
    pop_from_retry_probability_for_priority: int = setting(0, minimum=0, maximum=PERCENT, live=True)
    priority_order_asc: bool = setting(True, live=True)
    enable_retry_topic_v2: bool = setting(False, live=True, key="enableRetryTopicV2")
    retrieve_message_from_pop_retry_topic_v1: bool = setting(
        True, live=True, key="retrieveMessageFromPopRetryTopicV1"
    )
    use_separate_retry_queue: bool = setting(False, live=True)
    pop_response_return_actual_retry_topic: bool = setting(False, live=True)
    pop_polling_size: int = setting(1_024, minimum=1, live=True)
    max_pop_polling_size: int = setting(100_000, minimum=1, live=True)
    pop_polling_map_size: int = setting(100_000, minimum=1, live=True)
    pop_long_polling_force_notify_interval: int = setting(800, minimum=1, live=True)
    enable_notify_after_pop_order_lock_release: bool = setting(True, live=True)
    init_pop_offset_by_check_msg_in_mem: bool = setting(True, live=True)
    enable_pop_message_threshold: bool = setting(False, live=True)
    pop_inflight_message_threshold: int = setting(10_000, minimum=0, live=True)
    use_message_filter_for_notification: bool = setting(True, live=True)
    max_message_filter_num_for_notification: int = setting(64, minimum=0, maximum=1_024, live=True)
    server_load_balancer_enable: bool = setting(True, live=True)
    load_balance_poll_name_server_interval: int = setting(30_000, minimum=1_000, live=True)
    default_message_request_mode: MessageRequestMode = setting(  # noqa: RUF009 - a field
        MessageRequestMode.PULL, live=True
    )
    default_pop_share_queue_num: int = setting(-1, minimum=-1, live=True)
    subscription_expired_timeout: int = setting(600_000, minimum=1, live=True)
    enable_pop_metrics: bool = setting(True, live=True)
