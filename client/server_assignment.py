"""The brokers' assignment of queues to the members of a group, and how each is consumed.

Java counterpart: MQClientInstance.queryAssignment, RebalanceImpl.getRebalanceResultFromBroker.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import anyio.lowlevel

from ..remoting.bodies import MessageModel, MessageQueue
from ..remoting.bodies.pop import (
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from ..remoting.errors import RemoteProtocolError
from ..remoting.request_codes import RequestCode
from .client import Client
from .core.routes import subscribe_queues
from .errors import (
    ClientError,
    ConfigurationError,
    ConnectError,
    RequestTimeoutError,
    ServerError,
    is_not_supported,
    reading_answer,
)

logger = logging.getLogger(__name__)


class ServerAssignment(NamedTuple):
    """What a member of a group gets of one topic.

    Attributes:
      popped: queues to pop from; a queue id of -1 means all queues of the broker.
      pulled: queues to pull from.
    """

    popped: list[MessageQueue]
    pulled: list[MessageQueue]


async def query_assignment(
    client: Client, group: str, topic: str, strategy_name: str
) -> ServerAssignment | None:
    """Ask a broker of the topic for this member's queues.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      topic: the topic, with namespace.
      strategy_name: "AVG" or "AVG_BY_CIRCLE".

    Returns: the queues; None: the broker does not know yet, so the member keeps what it has.
    Raises:
      RouteNotFoundError: no name server knows the topic.
      ConfigurationError: the broker is older than RocketMQ 5.0.
      BadAnswerError: the answer is malformed, or assigns queues of another topic.
      ClientError: no broker of the topic could be asked.
    """
    body = QueryAssignmentRequestBody(
        topic=topic,
        consumer_group=group,
        client_id=client.client_id,
        strategy_name=strategy_name,
        message_model=MessageModel.CLUSTERING,
    ).to_body()
    route = await client.route(topic)
    names = dict.fromkeys(client.owner(queue) for queue in subscribe_queues(topic, route))
    failure: ClientError | None = None
    for name in names:
        address = client.reading_address(name)
        if address is None:
            continue
        try:
            answer = await client.request(address, RequestCode.QUERY_ASSIGNMENT, body=body)
        except (ConnectError, RequestTimeoutError) as error:
            await anyio.lowlevel.checkpoint_if_cancelled()
            failure = error
            continue
        except ServerError as error:
            if is_not_supported(error):
                raise ConfigurationError(
                    f"the broker at {address} does not assign queues ({error.remark.strip()})."
                    ' Brokers older than RocketMQ 5.0 do not: use mode="pull", which is the default'
                ) from error
            raise
        with reading_answer(address):
            return _read(QueryAssignmentResponseBody.from_body(answer.body), topic)
    if failure is not None:
        raise failure
    return ServerAssignment([], [])


def _read(body: QueryAssignmentResponseBody, topic: str) -> ServerAssignment | None:
    assignments = body.message_queue_assignments
    if assignments is None:
        return None
    for each in assignments:
        if each.message_queue.topic != topic:
            raise RemoteProtocolError(
                f"the answer assigns {each.message_queue}, and {topic} was asked for"
            )
    popped, pulled = (
        sorted({each.message_queue for each in assignments if each.mode is mode})
        for mode in (MessageRequestMode.POP, MessageRequestMode.PULL)
    )
    return ServerAssignment(popped, pulled)
