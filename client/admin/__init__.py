"""Administration of a cluster: topics, groups, offsets, single messages, clients, brokers."""

from __future__ import annotations

from .admin import Admin
from .asking import BrokerFailure, BrokersError, NotFoundError
from .broker_stats import BrokerStats, Rates
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
    SubscriptionInfo,
    TopicInfo,
    TopicOnBroker,
)
from .statistics import (
    BrokerConsumeStats,
    GroupProgress,
    Growth,
    MessageTrack,
    ProducerInfo,
    QueueProgress,
    QueueSpan,
    QueueUnit,
    StatsSnapshot,
    TopicStats,
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
    "BrokerConsumeStats",
    "BrokerFailure",
    "BrokerInfo",
    "BrokerStats",
    "BrokersError",
    "ClientInfo",
    "ClusterView",
    "DirectlyConsumed",
    "FilterClassInfo",
    "GroupClients",
    "GroupInfo",
    "GroupLag",
    "GroupProgress",
    "Growth",
    "MessageTrace",
    "MessageTrack",
    "NotFoundError",
    "ProducerInfo",
    "QueueLag",
    "QueueOffsets",
    "QueueProgress",
    "QueueReset",
    "QueueSpan",
    "QueueState",
    "QueueUnit",
    "Rates",
    "RunningInfo",
    "StatsSnapshot",
    "SubscriptionInfo",
    "TopicInfo",
    "TopicOnBroker",
    "TopicStats",
    "TracedConsumption",
    "TracedRecall",
    "TracedSend",
    "TracedTransactionEnd",
]
