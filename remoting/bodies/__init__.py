"""Typed bodies of requests, answers and a broker's JSON files.

`Class.from_body(bytes)` reads one, `.to_body()` writes it. See base.py for the rules.
"""

from __future__ import annotations

from .base import (
    Body,
)
from .connection import (
    Connection,
    ConsumerConnection,
    GroupList,
    ProducerConnection,
)
from .data_version import (
    DataVersion,
)
from .group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from .ha import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)
from .heartbeat import (
    CheckClientRequestBody,
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from .queue import (
    GetConsumerListByGroupResponseBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    UnlockBatchRequestBody,
)
from .queue_mapping import (
    GLOBAL_SCOPE,
    UNDECIDED,
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    TopicQueueMappingSerializeWrapper,
    fault_of_items,
    item_after,
    item_at,
    shared_queue,
)
from .ranges import (
    out_of_range,
)
from .registration import (
    INFLATED_SIZE_MAX,
    REGISTER_BROKER_BODY,
    RegisterBrokerBody,
)
from .route import (
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroupResponseBody,
    QueueData,
    TopicRouteData,
)
from .statistics import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from .table import (
    ConsumerOffsetSerializeWrapper,
    KVTable,
)
from .topic import (
    PERM_INHERIT,
    PERM_PRIORITY,
    PERM_READ,
    PERM_WRITE,
    CreateTopicListRequestBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
)

__all__ = [
    "GLOBAL_SCOPE",
    "INFLATED_SIZE_MAX",
    "PERM_INHERIT",
    "PERM_PRIORITY",
    "PERM_READ",
    "PERM_WRITE",
    "REGISTER_BROKER_BODY",
    "UNDECIDED",
    "Body",
    "BrokerData",
    "BrokerMemberGroup",
    "BrokerStatsData",
    "BrokerStatsItem",
    "CheckClientRequestBody",
    "ClusterInfo",
    "Connection",
    "ConsumeFromWhere",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerOffsetSerializeWrapper",
    "CreateTopicListRequestBody",
    "CustomizedRetryPolicy",
    "DataVersion",
    "ExponentialRetryPolicy",
    "GetBrokerMemberGroupResponseBody",
    "GetConsumerListByGroupResponseBody",
    "GroupList",
    "GroupRetryPolicy",
    "GroupRetryPolicyType",
    "HAClientRuntimeInfo",
    "HAConnectionRuntimeInfo",
    "HARuntimeInfo",
    "HeartbeatData",
    "KVTable",
    "LockBatchRequestBody",
    "LockBatchResponseBody",
    "LogicQueueMappingItem",
    "MessageModel",
    "MessageQueue",
    "OffsetWrapper",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTableInfo",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueryCorrectionOffsetBody",
    "QuerySubscriptionResponseBody",
    "QueueData",
    "QueueTimeSpan",
    "RegisterBrokerBody",
    "SimpleSubscriptionData",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupList",
    "SubscriptionGroupWrapper",
    "TopicConfig",
    "TopicConfigAndQueueMapping",
    "TopicConfigSerializeWrapper",
    "TopicFilterType",
    "TopicList",
    "TopicOffset",
    "TopicQueueMappingDetail",
    "TopicQueueMappingInfo",
    "TopicQueueMappingSerializeWrapper",
    "TopicRouteData",
    "TopicStatsTable",
    "UnlockBatchRequestBody",
    "fault_of_items",
    "item_after",
    "item_at",
    "out_of_range",
    "shared_queue",
]
