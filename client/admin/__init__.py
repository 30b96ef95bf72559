"""Administration of a cluster: topics, groups, offsets, single messages, clients, brokers."""

from __future__ import annotations

from .admin import Admin
from .asking import BrokerFailure, BrokersError, NotFoundError
from .results import (
    BrokerInfo,
    ClientInfo,
    ClusterView,
    DirectlyConsumed,
    FilterClassInfo,
    GroupClients,
    GroupInfo,
    GroupLag,
    QueueLag,
    QueueOffsets,
    QueueReset,
    QueueState,
    RunningInfo,
    StaticTopicInfo,
    SubscriptionInfo,
    TopicInfo,
    TopicOnBroker,
)
from .traces import (
    MessageTrace,
    TracedConsumption,
    TracedRecall,
    TracedSend,
    TracedTransactionEnd,
)

__all__ = [
    "Admin",
    "BrokerFailure",
    "BrokerInfo",
    "BrokersError",
    "ClientInfo",
    "ClusterView",
    "DirectlyConsumed",
    "FilterClassInfo",
    "GroupClients",
    "GroupInfo",
    "GroupLag",
    "MessageTrace",
    "NotFoundError",
    "QueueLag",
    "QueueOffsets",
    "QueueReset",
    "QueueState",
    "RunningInfo",
    "StaticTopicInfo",
    "SubscriptionInfo",
    "TopicInfo",
    "TopicOnBroker",
    "TracedConsumption",
    "TracedRecall",
    "TracedSend",
    "TracedTransactionEnd",
]
