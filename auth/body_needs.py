"""Needs of requests that name their topics and groups in the body.

Each function reads the body as the request's processor does. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..remoting.bodies import (
    BatchAckMessageRequestBody,
    CheckClientRequestBody,
    CreateTopicListRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicQueueMappingDetail,
)
from ..remoting.codec import RemotingCommand
from .model import Action
from .needs import Context, Places, group_of, topic_contexts, topic_of

_SUB: Final = (Action.SUB,)
_CREATE: Final = (Action.CREATE,)


def heartbeat(request: RemotingCommand, places: Places) -> Iterator[Context]:
    """HEART_BEAT 34: Sub on each consumer's group and topics."""
    for consumer in HeartbeatData.from_request(request.body).consumer_data_set:
        group = consumer.group_name
        yield Context(group_of(group), _SUB)
        for subscription in consumer.subscription_data_set:
            yield from topic_contexts(subscription.topic, group, _SUB, _SUB, places)


def checked_client(request: RemotingCommand, places: Places) -> Iterator[Context]:
    """CHECK_CLIENT_CONFIG 46: Sub on the consumer's group and topic."""
    body = CheckClientRequestBody.from_request(request.body)
    yield Context(group_of(body.group), _SUB)
    if body.subscription_data is not None:
        yield from topic_contexts(body.subscription_data.topic, body.group, _SUB, _SUB, places)


def locked_queues(request: RemotingCommand, places: Places) -> Iterator[Context]:
    """LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42: Sub on the group and the queues' topics."""
    body = LockBatchRequestBody.from_request(request.body)
    yield Context(group_of(body.consumer_group), _SUB)
    for topic in dict.fromkeys(queue.topic for queue in body.mq_set):
        yield from topic_contexts(topic, body.consumer_group, _SUB, _SUB, places)


def created_topics(request: RemotingCommand, places: Places) -> Iterator[Context]:
    """UPDATE_AND_CREATE_TOPIC_LIST 18: Create on each topic."""
    for topic in CreateTopicListRequestBody.from_request(request.body).topic_config_list:
        yield from topic_contexts(topic.topic_name, "", _CREATE, _CREATE, places)


def mapped_topic(request: RemotingCommand, _: Places) -> Iterator[Context]:
    """UPDATE_AND_CREATE_STATIC_TOPIC 513: Create on the mapping's topic."""
    yield Context(topic_of(TopicQueueMappingDetail.from_request(request.body).topic or ""), _CREATE)


def created_group(request: RemotingCommand, _: Places) -> Iterator[Context]:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP 200: Create on the group."""
    yield Context(group_of(SubscriptionGroupConfig.from_request(request.body).group_name), _CREATE)


def created_groups(request: RemotingCommand, _: Places) -> Iterator[Context]:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST 225: Create on each group."""
    for group in SubscriptionGroupList.from_request(request.body).group_config_list:
        yield Context(group_of(group.group_name), _CREATE)


def acknowledged(request: RemotingCommand, places: Places) -> Iterator[Context]:
    """BATCH_ACK_MESSAGE 200151: Sub on each group and topic."""
    for ack in BatchAckMessageRequestBody.from_request(request.body).acks or ():
        yield Context(group_of(ack.group), _SUB)
        yield from topic_contexts(ack.topic, ack.group, _SUB, _SUB, places)


def assigned_topic(request: RemotingCommand, places: Places) -> Iterator[Context]:
    """QUERY_ASSIGNMENT 400: Sub on the group and the topic."""
    body = QueryAssignmentRequestBody.from_request(request.body)
    yield Context(group_of(body.consumer_group), _SUB)
    yield from topic_contexts(body.topic, body.consumer_group, _SUB, _SUB, places)


def changed_mode(request: RemotingCommand, places: Places) -> Iterator[Context]:
    """SET_MESSAGE_REQUEST_MODE 401: Update on the group and the topic."""
    body = SetMessageRequestModeRequestBody.from_request(request.body)
    update = (Action.UPDATE,)
    yield Context(group_of(body.consumer_group), update)
    yield from topic_contexts(body.topic, body.consumer_group, update, update, places)
