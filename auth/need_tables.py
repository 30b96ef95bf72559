"""The needs of every request code, by the kind of server.

A code that is in no table is denied to all but super users. Codes that RocketMQ checks need the
same here. Of those that it leaves open, what reads needs Get (lists: List) and what changes needs
Update or Create.

Source: RocketMQ 5.5.0 auth/…/DefaultAuthorizationContextBuilder.java; the annotations of the
request headers. docs/quirks.md has the differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..remoting.codec import RemotingCommand
from ..remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    ViewMessageRequestHeader,
    decode,
)
from ..remoting.message_id import decode_offset_id
from ..remoting.request_codes import RequestCode
from . import body_needs as bodies
from .model import Action, ResourceType
from .needs import (
    InBody,
    Need,
    OnAll,
    OnCluster,
    OnGroup,
    OnMessage,
    OnTopic,
    is_half_topic,
    is_reply_topic,
)

_PUB = (Action.PUB,)
_SUB = (Action.SUB,)
_GET = (Action.GET,)
_UPDATE = (Action.UPDATE,)
_CREATE = (Action.CREATE,)
_DELETE = (Action.DELETE,)
_SUB_OR_GET = (Action.SUB, Action.GET)
_SUB_OR_UPDATE = (Action.SUB, Action.UPDATE)
_LIST_OR_GET = (Action.LIST, Action.GET)


def _half_message(request: RemotingCommand) -> int:
    return decode(EndTransactionRequestHeader, request.ext_fields).commit_log_offset


def _sent_back(request: RemotingCommand) -> int:
    return decode(ConsumerSendMsgBackRequestHeader, request.ext_fields).offset


def _viewed(request: RemotingCommand) -> int:
    return decode(ViewMessageRequestHeader, request.ext_fields).offset


def _by_id(request: RemotingCommand) -> int:
    return decode_offset_id(request.ext_fields.get("msgId", "")).physical_offset


_NO_HALF: Final = "Find prepared transaction message failed"

ANY_USER: Final[Need] = ()
"""Enough is a user that proves its name."""

CLUSTER_GET: Final[Need] = (OnCluster(_GET),)
CLUSTER_UPDATE: Final[Need] = (OnCluster(_UPDATE),)
_ALL_TOPICS: Final[Need] = (OnAll(ResourceType.TOPIC, _LIST_OR_GET),)
_TOPIC_GET: Final[Need] = (OnTopic("topic", _GET),)
_TOPIC_PUB: Final[Need] = (OnTopic("topic", _PUB, _SUB, group_field="producerGroup"),)
_LETTERS_PUB: Final[Need] = (OnTopic("b", _PUB, _SUB, group_field="a"),)
_CONSUMER: Final = OnTopic("topic", _SUB, group_field="consumerGroup")
_CONSUMED: Final[Need] = (_CONSUMER, OnGroup("consumerGroup", _SUB))
_POPPED: Final[Need] = (OnGroup("consumerGroup", _SUB), _CONSUMER)
"""As `_CONSUMED`; of two missing rights Apache's broker names that on the group."""

NEEDS_OF_BROKER: Final[Mapping[int, Need]] = {
    # Messages.
    RequestCode.SEND_MESSAGE: _TOPIC_PUB,
    RequestCode.SEND_MESSAGE_V2: _LETTERS_PUB,
    RequestCode.SEND_BATCH_MESSAGE: _LETTERS_PUB,
    RequestCode.SEND_REPLY_MESSAGE: (OnTopic("topic", _PUB, is_open=is_reply_topic),),
    RequestCode.SEND_REPLY_MESSAGE_V2: (OnTopic("b", _PUB, is_open=is_reply_topic),),
    RequestCode.RECALL_MESSAGE: _TOPIC_PUB,
    RequestCode.END_TRANSACTION: (
        OnTopic("topic", _PUB, is_optional=True, is_open=is_half_topic),
        OnMessage(_half_message, _PUB, _NO_HALF),
    ),
    RequestCode.PULL_MESSAGE: _CONSUMED,
    RequestCode.LITE_PULL_MESSAGE: _CONSUMED,
    RequestCode.CONSUMER_SEND_MSG_BACK: (
        OnGroup("group", _SUB),
        OnMessage(_sent_back, _SUB, "look message by offset failed, {offset}"),
    ),
    RequestCode.QUERY_MESSAGE: (OnTopic("topic", _SUB_OR_GET),),
    RequestCode.VIEW_MESSAGE_BY_ID: (
        OnTopic("topic", _GET, is_optional=True),
        OnMessage(_viewed, _GET, "can not find message by the offset, {offset}"),
    ),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: (
        OnTopic("topic", _UPDATE, is_optional=True),
        OnMessage(_by_id, _UPDATE, _NO_HALF),
    ),
    # Consumers.
    RequestCode.HEART_BEAT: (InBody(bodies.heartbeat),),
    RequestCode.UNREGISTER_CLIENT: (OnGroup("consumerGroup", _SUB, is_optional=True),),
    RequestCode.CHECK_CLIENT_CONFIG: (InBody(bodies.checked_client),),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (OnGroup("consumerGroup", _SUB_OR_GET),),
    RequestCode.QUERY_CONSUMER_OFFSET: (
        OnTopic("topic", _SUB_OR_GET, group_field="consumerGroup"),
        OnGroup("consumerGroup", _SUB_OR_GET),
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: (
        OnTopic("topic", _SUB_OR_UPDATE, group_field="consumerGroup"),
        OnGroup("consumerGroup", _SUB_OR_UPDATE),
    ),
    RequestCode.LOCK_BATCH_MQ: (InBody(bodies.locked_queues),),
    RequestCode.UNLOCK_BATCH_MQ: (InBody(bodies.locked_queues),),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _TOPIC_GET,
    RequestCode.GET_MAX_OFFSET: _TOPIC_GET,
    RequestCode.GET_MIN_OFFSET: _TOPIC_GET,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _TOPIC_GET,
    # Pop.
    RequestCode.POP_MESSAGE: _POPPED,
    RequestCode.ACK_MESSAGE: _POPPED,
    RequestCode.PEEK_MESSAGE: _CONSUMED,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _POPPED,
    RequestCode.NOTIFICATION: _POPPED,
    RequestCode.POLLING_INFO: (
        OnGroup("consumerGroup", _GET),
        OnTopic("topic", _GET, group_field="consumerGroup"),
    ),
    RequestCode.BATCH_ACK_MESSAGE: (InBody(bodies.acknowledged),),
    RequestCode.POP_ROLLBACK: CLUSTER_UPDATE,
    RequestCode.QUERY_ASSIGNMENT: (InBody(bodies.assigned_topic),),
    RequestCode.SET_MESSAGE_REQUEST_MODE: (InBody(bodies.changed_mode),),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: CLUSTER_GET,
    # Topics.
    RequestCode.UPDATE_AND_CREATE_TOPIC: (OnTopic("topic", _CREATE),),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (InBody(bodies.created_topics),),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: (
        OnTopic("topic", _CREATE),
        InBody(bodies.mapped_topic),
    ),
    RequestCode.DELETE_TOPIC_IN_BROKER: (OnTopic("topic", _DELETE),),
    RequestCode.GET_ALL_TOPIC_CONFIG: _ALL_TOPICS,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _ALL_TOPICS,
    RequestCode.GET_TOPIC_CONFIG: _TOPIC_GET,
    RequestCode.GET_TOPIC_STATS_INFO: _TOPIC_GET,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _TOPIC_GET,
    # Groups.
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (InBody(bodies.created_group),),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (InBody(bodies.created_groups),),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (OnGroup("groupName", _DELETE),),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (OnAll(ResourceType.GROUP, _LIST_OR_GET),),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (OnGroup("group", _GET),),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (OnGroup("consumerGroup", _GET),),
    RequestCode.GET_CONSUMER_RUNNING_INFO: (OnGroup("consumerGroup", _GET),),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: (OnGroup("group", _GET),),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: (
        OnGroup("group", _GET),
        OnTopic("topic", _GET, group_field="group", is_optional=True),
    ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: (
        OnTopic("topic", _GET, group_field="group"),
        OnGroup("group", _GET),
    ),
    RequestCode.GET_CONSUME_STATS: (
        OnGroup("consumerGroup", _GET),
        OnTopic("topic", _GET, group_field="consumerGroup", is_optional=True),
        OnTopic("topicList", _GET, group_field="consumerGroup", is_optional=True, separator=";"),
    ),
    RequestCode.QUERY_CORRECTION_OFFSET: (
        OnGroup("compareGroup", _GET),
        OnTopic("topic", _GET),
        OnGroup("filterGroups", _GET, is_optional=True, separator=","),
    ),
    RequestCode.QUERY_CONSUME_QUEUE: (
        OnTopic("topic", _GET, group_field="consumerGroup"),
        OnGroup("consumerGroup", _GET, is_optional=True),
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (
        OnGroup("group", _UPDATE),
        OnTopic("topic", _UPDATE, group_field="group"),
    ),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (
        OnTopic("topic", _GET, group_field="group"),
        OnGroup("group", _GET),
    ),
    RequestCode.CLONE_GROUP_OFFSET: (
        OnGroup("srcGroup", _GET),
        OnGroup("destGroup", _UPDATE),
        OnTopic("topic", _UPDATE, is_optional=True),
    ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (
        OnGroup("consumerGroup", _SUB),
        OnTopic("topic", _SUB, group_field="consumerGroup", is_optional=True),
        OnMessage(_by_id, _SUB, "there is no message at {offset}"),
    ),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: (
        OnGroup("group", _UPDATE),
        OnTopic("topic", _UPDATE, group_field="group"),
    ),
    # The broker.
    RequestCode.UPDATE_BROKER_CONFIG: CLUSTER_UPDATE,
    RequestCode.GET_BROKER_CONFIG: CLUSTER_GET,
    RequestCode.GET_BROKER_RUNTIME_INFO: CLUSTER_GET,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: CLUSTER_GET,
    RequestCode.GET_ALL_PRODUCER_INFO: CLUSTER_GET,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: CLUSTER_UPDATE,
    RequestCode.CLEAN_UNUSED_TOPIC: CLUSTER_UPDATE,
    RequestCode.DELETE_EXPIRED_COMMITLOG: CLUSTER_UPDATE,
    RequestCode.VIEW_BROKER_STATS_DATA: CLUSTER_GET,
    RequestCode.GET_BROKER_CONSUME_STATS: CLUSTER_GET,
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: (OnTopic("topic", _GET, is_optional=True),),
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: CLUSTER_GET,
    RequestCode.REGISTER_FILTER_SERVER: CLUSTER_UPDATE,
    RequestCode.GET_BROKER_HA_STATUS: CLUSTER_GET,
    RequestCode.GET_BROKER_EPOCH_CACHE: CLUSTER_GET,
    # Slaves and controllers, which sign as the inner client, a super user.
    RequestCode.EXCHANGE_BROKER_HA_INFO: CLUSTER_GET,
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: CLUSTER_UPDATE,
    RequestCode.GET_ALL_CONSUMER_OFFSET: CLUSTER_GET,
    RequestCode.GET_ALL_DELAY_OFFSET: CLUSTER_GET,
    RequestCode.GET_TIMER_CHECK_POINT: CLUSTER_GET,
    RequestCode.GET_TIMER_METRICS: CLUSTER_GET,
    # Accounts of both generations.
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: CLUSTER_UPDATE,
    RequestCode.DELETE_ACL_CONFIG: CLUSTER_UPDATE,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: CLUSTER_GET,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: CLUSTER_UPDATE,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: CLUSTER_UPDATE,  # the answer has secrets
    RequestCode.AUTH_CREATE_USER: CLUSTER_UPDATE,
    RequestCode.AUTH_UPDATE_USER: CLUSTER_UPDATE,
    RequestCode.AUTH_DELETE_USER: CLUSTER_UPDATE,
    RequestCode.AUTH_GET_USER: CLUSTER_GET,
    RequestCode.AUTH_LIST_USER: CLUSTER_GET,
    RequestCode.AUTH_CREATE_ACL: CLUSTER_UPDATE,
    RequestCode.AUTH_UPDATE_ACL: CLUSTER_UPDATE,
    RequestCode.AUTH_DELETE_ACL: CLUSTER_UPDATE,
    RequestCode.AUTH_GET_ACL: CLUSTER_GET,
    RequestCode.AUTH_LIST_ACL: CLUSTER_GET,
}
"""By request code."""

_ACCOUNTS: Final = {code: need for code, need in NEEDS_OF_BROKER.items() if 3001 <= code <= 3010}

NEEDS_OF_NAMESRV: Final[Mapping[int, Need]] = {
    RequestCode.PUT_KV_CONFIG: CLUSTER_UPDATE,
    RequestCode.GET_KV_CONFIG: CLUSTER_GET,
    RequestCode.DELETE_KV_CONFIG: CLUSTER_UPDATE,
    RequestCode.GET_KVLIST_BY_NAMESPACE: CLUSTER_GET,
    RequestCode.REGISTER_BROKER: CLUSTER_UPDATE,
    RequestCode.UNREGISTER_BROKER: CLUSTER_UPDATE,
    RequestCode.BROKER_HEARTBEAT: CLUSTER_UPDATE,
    RequestCode.QUERY_DATA_VERSION: CLUSTER_GET,
    RequestCode.GET_BROKER_MEMBER_GROUP: CLUSTER_GET,
    RequestCode.GET_BROKER_CLUSTER_INFO: CLUSTER_GET,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (
        OnTopic("topic", (Action.PUB, Action.SUB, Action.GET), _SUB_OR_GET),
    ),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: CLUSTER_UPDATE,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: CLUSTER_UPDATE,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _ALL_TOPICS,
    RequestCode.GET_TOPICS_BY_CLUSTER: _ALL_TOPICS,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _ALL_TOPICS,
    RequestCode.GET_UNIT_TOPIC_LIST: _ALL_TOPICS,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _ALL_TOPICS,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _ALL_TOPICS,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: CLUSTER_UPDATE,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: CLUSTER_UPDATE,
    RequestCode.UPDATE_NAMESRV_CONFIG: CLUSTER_UPDATE,
    RequestCode.GET_NAMESRV_CONFIG: CLUSTER_GET,
    **_ACCOUNTS,
}

NEEDS_OF_CONTROLLER: Final[Mapping[int, Need]] = {
    RequestCode.BROKER_HEARTBEAT: CLUSTER_UPDATE,
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: CLUSTER_UPDATE,
    RequestCode.CONTROLLER_ELECT_MASTER: CLUSTER_UPDATE,
    RequestCode.CONTROLLER_REGISTER_BROKER: CLUSTER_UPDATE,
    RequestCode.CONTROLLER_GET_REPLICA_INFO: CLUSTER_GET,
    RequestCode.CONTROLLER_GET_METADATA_INFO: CLUSTER_GET,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: CLUSTER_GET,
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: CLUSTER_GET,
    RequestCode.CONTROLLER_APPLY_BROKER_ID: CLUSTER_UPDATE,
    RequestCode.UPDATE_CONTROLLER_CONFIG: CLUSTER_UPDATE,
    RequestCode.GET_CONTROLLER_CONFIG: CLUSTER_GET,
    RequestCode.CLEAN_BROKER_DATA: CLUSTER_UPDATE,
    **_ACCOUNTS,
}

NEEDS_OF_FILTERSRV: Final[Mapping[int, Need]] = {
    RequestCode.PULL_MESSAGE: _CONSUMED,
    RequestCode.REGISTER_MESSAGE_FILTER_CLASS: (
        OnTopic("topic", _SUB),
        OnGroup("consumerGroup", _SUB),
    ),
    RequestCode.LIST_MESSAGE_FILTER_CLASSES: CLUSTER_GET,
    RequestCode.REMOVE_MESSAGE_FILTER_CLASS: CLUSTER_UPDATE,
}
