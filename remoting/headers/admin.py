"""Headers for the administration of topics and consumer groups."""

from __future__ import annotations

from .base import Header, Int32, RpcRequestHeader, TopicRequestHeader
from .fields import PagePlace, PageSize, PhysicalOffset, QueueCount, Setting


class CreateTopicRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of UPDATE_AND_CREATE_TOPIC (17).

    Attributes:
      default_topic: the pattern of its settings (TBW102); brokers ignore it here.
      read_queue_nums: number of queues to read from.
      write_queue_nums: number of queues to write to.
      perm: bits 4 read, 2 write, 1 inherit.
      topic_filter_type: "SINGLE_TAG" or "MULTI_TAG".
      topic_sys_flag: bits 1 unit, 2 unit subscription; None: 0.
      order: messages of this topic are ordered.
      attributes: changes as "+name=value,-name" (5.x).
      force: change a static topic too (5.x).

    The broker replaces a number that would do harm by the nearest one (`broker.settable_numbers`).
    """

    topic: str
    default_topic: str
    read_queue_nums: Setting
    write_queue_nums: Setting
    perm: Setting
    topic_filter_type: str
    topic_sys_flag: Setting | None = None
    order: bool
    attributes: str | None = None
    force: bool | None = None


class CreateStaticTopicRequestHeader(CreateTopicRequestHeader, frozen=True, kw_only=True):
    """Request of UPDATE_AND_CREATE_STATIC_TOPIC (513); the mapping is in the body.

    Attributes:
      read_queue_nums: 0 on a broker of the cluster that has no queue of the topic.
    """

    read_queue_nums: QueueCount
    write_queue_nums: QueueCount


class CreateTopicListRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of UPDATE_AND_CREATE_TOPIC_LIST (18); the topics are in the body."""


class DeleteTopicRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of DELETE_TOPIC_IN_BROKER (215)."""

    topic: str


class GetTopicConfigRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """Request of GET_TOPIC_CONFIG (351)."""

    topic: str


class GetAllTopicConfigRequestHeader(Header, frozen=True, kw_only=True):
    """Request of GET_ALL_TOPIC_CONFIG (21); without fields (4.x): the whole table.

    Attributes:
      topic_seq: number of topics to skip, those of earlier pages.
      data_version: DataVersion of the earlier pages as JSON; "" or None: none.
      max_topic_num: number of topics at most.
    """

    topic_seq: PagePlace | None = None
    data_version: str | None = None
    max_topic_num: PageSize | None = None


class GetAllTopicConfigResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to a paged 21: number of all topics."""

    total_topic_num: Int32 | None = None


class GetAllConsumerOffsetRequestHeader(Header, frozen=True, kw_only=True):
    """Request of GET_ALL_CONSUMER_OFFSET (43); without fields, as RocketMQ's: the whole table.

    Attributes:
      after_topic_group: not in RocketMQ. The last key `topic@group` of the previous page; "" or
        None: none.
      max_offset_num: not in RocketMQ. Number of offsets at most; the last key may exceed it.
    """

    after_topic_group: str | None = None
    max_offset_num: PageSize | None = None


class GetAllConsumerOffsetResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to 43: not in RocketMQ, the page's last key; None: it is the last page."""

    last_topic_group: str | None = None


class ExchangeHAInfoHeader(Header, frozen=True, kw_only=True):
    """EXCHANGE_BROKER_HA_INFO (906): request of a slave without fields, and its master's answer.

    Source: ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader of RocketMQ 5.5.0.

    Attributes:
      master_ha_address: "host:port" of the master's HA port; in a request, of the new master.
      master_address: "host:port" of the master for requests.
      master_flush_offset: physical offset up to which the master's log is on its device.
    """

    master_ha_address: str | None = None
    master_address: str | None = None
    master_flush_offset: PhysicalOffset | None = None


class GetAllSubscriptionGroupRequestHeader(Header, frozen=True, kw_only=True):
    """Request of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201); without fields (4.x): the whole table.

    Attributes:
      group_seq: number of groups to skip, those of earlier pages.
      data_version: DataVersion of the earlier pages as JSON; "" or None: none.
      max_group_num: number of groups at most.
    """

    group_seq: PagePlace | None = None
    data_version: str | None = None
    max_group_num: PageSize | None = None


class GetAllSubscriptionGroupResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to a paged 201: number of all groups."""

    total_group_num: Int32 | None = None


class GetSubscriptionGroupConfigRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of GET_SUBSCRIPTIONGROUP_CONFIG (352)."""

    group: str


class DeleteSubscriptionGroupRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Request of DELETE_SUBSCRIPTIONGROUP (207).

    Attributes:
      clean_offset: delete the group's offsets, too (5.x); None: no.
      remove_offset: the same in 4.9; None: no.
    """

    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool | None = None


class GetBrokerConfigResponseHeader(Header, frozen=True, kw_only=True):
    """Answer to GET_BROKER_CONFIG (26): DataVersion of the configuration as JSON."""

    version: str
