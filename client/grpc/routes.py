"""Routes and assignments: where the queues of a topic are.

To the client, all brokers of a route are at the endpoint that answered, or where it says.

Source: proxy/grpc/v2/route/RouteActivity.java of RocketMQ 5.5.0; Endpoints.java of
rocketmq-clients 5.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from ...common.topic_names import AUTO_CREATE_TOPIC, RETRY_TOPIC_PREFIX
from ...grpc_protocol.enums import Code, Permission
from ...grpc_protocol.fields import set_endpoints, set_resource
from ...remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    MessageQueue,
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    QueueData,
    TopicRouteData,
)
from ...remoting.codec import RemotingCommand
from ...remoting.headers import GetRouteInfoRequestHeader
from ...remoting.headers.base import decode
from ...remoting.hosts import join_address
from ...remoting.response_codes import ResponseCode
from .asks import Ask
from .client_profile import Profile
from .codes import Refused, answer_of, is_ok

MASTER_ID: Final = 0
_READ: Final = (Permission.READ, Permission.READ_WRITE)
_WRITE: Final = (Permission.WRITE, Permission.READ_WRITE)


def query_route(profile: Profile, address: str, command: RemotingCommand) -> Ask:
    """GET_ROUTEINFO_BY_TOPIC becomes QueryRoute."""
    topic = decode(GetRouteInfoRequestHeader, command.ext_fields).topic
    if topic == AUTO_CREATE_TOPIC or topic.startswith(RETRY_TOPIC_PREFIX):
        # Servers create no topics, and pops read retry topics by themselves.
        raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"no route of {topic}")
    request = profile.messages.QueryRouteRequest()
    set_resource(request.topic, topic)
    set_endpoints(request.endpoints, address)
    return Ask("QueryRoute", request, partial(_read_route, profile, address, command, topic))


def _read_route(
    profile: Profile, address: str, command: RemotingCommand, topic: str, answers: Sequence[Any]
) -> RemotingCommand:
    (answer,) = answers
    if not is_ok(answer.status):
        return answer_of(command, answer.status)
    reads: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    addresses: dict[str, str] = {}
    for queue in answer.message_queues:
        name = queue.broker.name
        if queue.broker.id != MASTER_ID:
            continue
        if name not in addresses:
            addresses[name] = address_of(queue.broker.endpoints, address)
            profile.queues[topic, name] = queue
        reads[name] += queue.permission in _READ
        writes[name] += queue.permission in _WRITE
    route = TopicRouteData(
        queue_datas=[
            QueueData(
                broker_name=name,
                read_queue_nums=reads[name],
                write_queue_nums=writes[name],
                perm=(PERM_READ if reads[name] else 0) | (PERM_WRITE if writes[name] else 0),
            )
            for name in addresses
        ],
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs={MASTER_ID: at})
            for name, at in addresses.items()
        ],
    )
    return command.answer(body=route.to_body())


def address_of(endpoints: Any, asked: str) -> str:
    """The address of a broker: the one that was asked, if it is among them, as it is reached."""
    found = [
        join_address(each.host, each.port)
        for each in endpoints.addresses
        if each.host and 0 < each.port <= 0xFFFF
    ]
    return asked if asked in found or not found else found[0]


def query_assignment(profile: Profile, address: str, command: RemotingCommand) -> Ask:
    """QUERY_ASSIGNMENT becomes QueryAssignment."""
    body = QueryAssignmentRequestBody.from_body(command.body)
    request = profile.messages.QueryAssignmentRequest()
    set_resource(request.topic, body.topic)
    set_resource(request.group, body.consumer_group)
    set_endpoints(request.endpoints, address)
    member = profile.consumer(body.consumer_group)
    read = partial(_read_assignments, profile, command, body.topic)
    return Ask("QueryAssignment", request, read, member)


def _read_assignments(
    profile: Profile, command: RemotingCommand, topic: str, answers: Sequence[Any]
) -> RemotingCommand:
    (answer,) = answers
    # The code of a topic without a readable queue, but also of a group that may not read.
    has_none = answer.status.code == Code.FORBIDDEN and "no readable queue" in answer.status.message
    if not is_ok(answer.status) and not has_none:
        return answer_of(command, answer.status)
    assigned = []
    for each in answer.assignments:
        queue = each.message_queue
        profile.queues[topic, queue.broker.name] = queue
        assigned.append(
            MessageQueueAssignment(
                message_queue=MessageQueue(topic, queue.broker.name, max(queue.id, -1)),
                mode=MessageRequestMode.POP,
            )
        )
    body = QueryAssignmentResponseBody(message_queue_assignments=assigned)
    return command.answer(body=body.to_body())
