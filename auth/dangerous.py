"""The requests that a server without accounts serves only to its own machine.

Without accounts everyone who reaches a port may ask for everything. What deletes, changes settings
or runs uploaded code is dangerous: it is served to peers of the server's own machine only, unless
`allowRemoteAdministration=true`. What clients, brokers, slaves and filter servers need of each
other is harmless in this sense and open: sends, pulls, offsets, registrations, the creation of
topics and groups, and everything that only reads. docs/security.md says what that leaves open.

Each code that a server serves is in exactly one of its tables; a test fails when one is in none.

RocketMQ serves all of these to everyone. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ..remoting.request_codes import RequestCode as Code


class Danger(NamedTuple):
    """The requests of one kind of server.

    Attributes:
      server: the kind, for messages.
      dangerous: what each dangerous request does, in words that follow its name.
      own: dangerous ones that a peer may also send from elsewhere about what it registered itself,
        and what they do.
      harmless: all others.
    """

    server: str
    dangerous: Mapping[Code, str]
    own: Mapping[Code, str]
    harmless: frozenset[Code]


ACCOUNTS: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_INFO,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.GET_BROKER_CLUSTER_ACL_CONFIG,
        Code.AUTH_CREATE_USER,
        Code.AUTH_UPDATE_USER,
        Code.AUTH_DELETE_USER,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        Code.AUTH_CREATE_ACL,
        Code.AUTH_UPDATE_ACL,
        Code.AUTH_DELETE_ACL,
        Code.AUTH_GET_ACL,
        Code.AUTH_LIST_ACL,
    }
)
"""Requests about accounts. A server without accounts refuses them all, as RocketMQ's do."""

BROKER: Final = Danger(
    "broker",
    MappingProxyType(
        {
            Code.UPDATE_BROKER_CONFIG: "changes the broker's settings",
            Code.DELETE_TOPIC_IN_BROKER: "deletes a topic with its messages",
            Code.DELETE_SUBSCRIPTIONGROUP: "deletes a consumer group with its offsets",
            Code.INVOKE_BROKER_TO_RESET_OFFSET: "resets the offsets of a consumer group",
            Code.CLONE_GROUP_OFFSET: "overwrites the offsets of a consumer group",
            Code.UPDATE_AND_GET_GROUP_FORBIDDEN: "forbids a consumer group to read a topic",
            Code.CLEAN_EXPIRED_CONSUMEQUEUE: "deletes files of queues",
            Code.CLEAN_UNUSED_TOPIC: "deletes the queues of topics",
            Code.DELETE_EXPIRED_COMMITLOG: "deletes files of messages",
        }
    ),
    MappingProxyType({}),
    frozenset(
        {
            # Producers.
            Code.SEND_MESSAGE,
            Code.SEND_MESSAGE_V2,
            Code.SEND_BATCH_MESSAGE,
            Code.SEND_REPLY_MESSAGE,
            Code.SEND_REPLY_MESSAGE_V2,
            Code.END_TRANSACTION,
            Code.RECALL_MESSAGE,
            # Consumers. UPDATE_CONSUMER_OFFSET is how each of them commits, so it cannot be closed.
            Code.PULL_MESSAGE,
            Code.LITE_PULL_MESSAGE,
            Code.POP_MESSAGE,
            Code.ACK_MESSAGE,
            Code.BATCH_ACK_MESSAGE,
            Code.CHANGE_MESSAGE_INVISIBLETIME,
            Code.PEEK_MESSAGE,
            Code.NOTIFICATION,
            Code.POLLING_INFO,
            Code.CONSUMER_SEND_MSG_BACK,
            Code.QUERY_CONSUMER_OFFSET,
            Code.UPDATE_CONSUMER_OFFSET,
            Code.GET_CONSUMER_LIST_BY_GROUP,
            Code.QUERY_ASSIGNMENT,
            Code.LOCK_BATCH_MQ,
            Code.UNLOCK_BATCH_MQ,
            Code.SEARCH_OFFSET_BY_TIMESTAMP,
            Code.GET_MAX_OFFSET,
            Code.GET_MIN_OFFSET,
            Code.GET_EARLIEST_MSG_STORETIME,
            # Clients of both kinds.
            Code.HEART_BEAT,
            Code.UNREGISTER_CLIENT,
            Code.CHECK_CLIENT_CONFIG,
            Code.QUERY_MESSAGE,
            Code.VIEW_MESSAGE_BY_ID,
            # Topics and groups are made and changed by many clients' own set-up.
            Code.UPDATE_AND_CREATE_TOPIC,
            Code.UPDATE_AND_CREATE_TOPIC_LIST,
            Code.UPDATE_AND_CREATE_STATIC_TOPIC,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            Code.SET_MESSAGE_REQUEST_MODE,
            # Slaves and filter servers.
            Code.GET_ALL_TOPIC_CONFIG,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            Code.GET_ALL_CONSUMER_OFFSET,
            Code.GET_ALL_DELAY_OFFSET,
            Code.EXCHANGE_BROKER_HA_INFO,
            Code.GET_BROKER_EPOCH_CACHE,
            Code.NOTIFY_BROKER_ROLE_CHANGED,  # a hint: the broker asks its controllers
            Code.GET_ALL_MESSAGE_REQUEST_MODE,
            Code.GET_TIMER_CHECK_POINT,
            Code.GET_TIMER_METRICS,
            Code.REGISTER_FILTER_SERVER,
            # Tools that read, or that have something done again without a loss.
            Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
            Code.CONSUME_MESSAGE_DIRECTLY,
            Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
            Code.GET_ALL_PRODUCER_INFO,
            Code.GET_BROKER_CONFIG,
            Code.GET_BROKER_CONSUME_STATS,
            Code.GET_BROKER_HA_STATUS,
            Code.GET_BROKER_RUNTIME_INFO,
            Code.GET_CONSUMER_CONNECTION_LIST,
            Code.GET_CONSUMER_RUNNING_INFO,
            Code.GET_CONSUME_STATS,
            Code.GET_PRODUCER_CONNECTION_LIST,
            Code.GET_SUBSCRIPTIONGROUP_CONFIG,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            Code.GET_TOPIC_CONFIG,
            Code.GET_TOPIC_STATS_INFO,
            Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            Code.POP_ROLLBACK,
            Code.QUERY_CONSUME_QUEUE,
            Code.QUERY_CONSUME_TIME_SPAN,
            Code.QUERY_CORRECTION_OFFSET,
            Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
            Code.QUERY_TOPICS_BY_CONSUMER,
            Code.QUERY_TOPIC_CONSUME_BY_WHO,
            Code.RESUME_CHECK_HALF_MESSAGE,
            Code.VIEW_BROKER_STATS_DATA,
            *ACCOUNTS,
        }
    ),
)

NAME_SERVER: Final = Danger(
    "name server",
    MappingProxyType(
        {
            Code.UPDATE_NAMESRV_CONFIG: "changes the name server's settings",
            Code.PUT_KV_CONFIG: "changes the KV configuration",
            Code.DELETE_KV_CONFIG: "changes the KV configuration",
            Code.WIPE_WRITE_PERM_OF_BROKER: "stops all sends to a broker",
            Code.ADD_WRITE_PERM_OF_BROKER: "opens a broker to sends",
            Code.DELETE_TOPIC_IN_NAMESRV: "deletes the route of a topic",
        }
    ),
    MappingProxyType({Code.UNREGISTER_BROKER: "removes a broker that another machine registered"}),
    frozenset(
        {
            # Brokers.
            Code.REGISTER_BROKER,
            Code.REGISTER_TOPIC_IN_NAMESRV,
            Code.BROKER_HEARTBEAT,
            Code.QUERY_DATA_VERSION,
            Code.GET_BROKER_MEMBER_GROUP,
            # Clients, and tools that read.
            Code.GET_ROUTEINFO_BY_TOPIC,
            Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
            Code.GET_BROKER_CLUSTER_INFO,
            Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
            Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            Code.GET_KVLIST_BY_NAMESPACE,
            Code.GET_KV_CONFIG,
            Code.GET_NAMESRV_CONFIG,
            Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            Code.GET_TOPICS_BY_CLUSTER,
            Code.GET_UNIT_TOPIC_LIST,
            *ACCOUNTS,
        }
    ),
)

CONTROLLER: Final = Danger(
    "controller",
    MappingProxyType(
        {
            Code.UPDATE_CONTROLLER_CONFIG: "changes the controller's settings",
            Code.CLEAN_BROKER_DATA: "makes the controller forget brokers",
        }
    ),
    MappingProxyType(
        {Code.CONTROLLER_ELECT_MASTER: "makes a broker of the sender's choice the master"}
    ),
    frozenset(
        {
            # Brokers.
            Code.BROKER_HEARTBEAT,
            Code.CONTROLLER_ALTER_SYNC_STATE_SET,
            Code.CONTROLLER_REGISTER_BROKER,
            Code.CONTROLLER_GET_REPLICA_INFO,
            Code.CONTROLLER_GET_METADATA_INFO,
            Code.CONTROLLER_GET_NEXT_BROKER_ID,
            Code.CONTROLLER_APPLY_BROKER_ID,
            # Tools that read.
            Code.CONTROLLER_GET_SYNC_STATE_DATA,
            Code.GET_CONTROLLER_CONFIG,
            *ACCOUNTS,
        }
    ),
)

FILTER_SERVER: Final = Danger(
    "filter server",
    MappingProxyType(
        {
            Code.REGISTER_MESSAGE_FILTER_CLASS: "uploads code that this machine runs",
            Code.REMOVE_MESSAGE_FILTER_CLASS: "removes the filter of a consumer group",
        }
    ),
    MappingProxyType({}),
    frozenset({Code.PULL_MESSAGE, Code.LIST_MESSAGE_FILTER_CLASSES}),
)
