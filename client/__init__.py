"""The client: producers, consumers and administration, under trio and asyncio.

`trocket.blocking` has the same for programs with threads.
"""

from __future__ import annotations

from ..remoting.bodies import ConsumeFromWhere, MessageModel, MessageQueue
from ..remoting.compression import CompressionType
from .admin import (
    Admin,
    BrokerFailure,
    BrokerInfo,
    BrokersError,
    ClientInfo,
    ClusterView,
    DirectlyConsumed,
    FilterClassInfo,
    GroupClients,
    GroupInfo,
    GroupLag,
    MessageTrace,
    NotFoundError,
    QueueLag,
    QueueOffsets,
    QueueReset,
    QueueState,
    RunningInfo,
    StaticTopicInfo,
    SubscriptionInfo,
    TopicInfo,
    TopicOnBroker,
    TracedConsumption,
    TracedRecall,
    TracedSend,
    TracedTransactionEnd,
)
from .client import Client
from .connection_log import ConnectionChange, ConnectionEvent
from .consumer_options import ConsumerOptions
from .core.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from .core.queue_requests import PullStatus
from .core.signature import Credentials
from .core.subscription import FilterClass, MessageSelector, Sql, Tag
from .core.trace_records import ConsumeOutcome, TracedType
from .delivery import Delivery
from .errors import (
    AccessDeniedError,
    Attempt,
    BadAnswerError,
    BusyError,
    ClientError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    ForkedError,
    HandlerTimeoutError,
    MessageRefusedError,
    ReplyTimeoutError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendError,
    ServerError,
    UndeliveredError,
    WrongLoopError,
)
from .interceptor import Interceptor
from .message import Message, ReceivedMessage, SendResult, SendStatus
from .options import ClientOptions, Dial
from .producer import Producer, Selector
from .pull_consumer import PullConsumer, PullConsumerOptions, Pulled
from .push_consumer import Handler, PushConsumer
from .push_options import PushConsumerOptions, RebalanceListener, RetryLater
from .pushed_message import PushedMessage
from .replying import Replier, replying
from .send_options import ProducerOptions
from .transaction import Transaction, TransactionResult, TransactionState
from .transaction_producer import Check, LocalTransaction, TransactionProducer

__all__ = [
    "AccessDeniedError",
    "Admin",
    "AllocateMachineRoomNearby",
    "AllocateMessageQueueAveragely",
    "AllocateMessageQueueAveragelyByCircle",
    "AllocateMessageQueueByConfig",
    "AllocateMessageQueueByMachineRoom",
    "AllocateMessageQueueConsistentHash",
    "AllocateMessageQueueStrategy",
    "Attempt",
    "BadAnswerError",
    "BrokerFailure",
    "BrokerInfo",
    "BrokersError",
    "BusyError",
    "Check",
    "Client",
    "ClientError",
    "ClientInfo",
    "ClientOptions",
    "ClosedError",
    "ClusterView",
    "CompressionType",
    "ConfigurationError",
    "ConnectError",
    "ConnectionChange",
    "ConnectionEvent",
    "ConsumeFromWhere",
    "ConsumeOutcome",
    "ConsumerOptions",
    "Credentials",
    "Delivery",
    "Dial",
    "DirectlyConsumed",
    "FilterClass",
    "FilterClassInfo",
    "ForkedError",
    "GroupClients",
    "GroupInfo",
    "GroupLag",
    "Handler",
    "HandlerTimeoutError",
    "Interceptor",
    "LocalTransaction",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessageRefusedError",
    "MessageSelector",
    "MessageTrace",
    "NotFoundError",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullConsumerOptions",
    "PullStatus",
    "Pulled",
    "PushConsumer",
    "PushConsumerOptions",
    "PushedMessage",
    "QueueLag",
    "QueueOffsets",
    "QueueReset",
    "QueueState",
    "RebalanceListener",
    "ReceivedMessage",
    "Replier",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "RetryLater",
    "RouteNotFoundError",
    "RunningInfo",
    "Selector",
    "SendError",
    "SendResult",
    "SendStatus",
    "ServerError",
    "Sql",
    "StaticTopicInfo",
    "SubscriptionInfo",
    "Tag",
    "TopicInfo",
    "TopicOnBroker",
    "TracedConsumption",
    "TracedRecall",
    "TracedSend",
    "TracedTransactionEnd",
    "TracedType",
    "Transaction",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "UndeliveredError",
    "WrongLoopError",
    "replying",
]
