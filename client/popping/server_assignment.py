"""The brokers' assignment of queues to the members of a group, and how each is consumed.

Java counterpart: MQClientInstance.queryAssignment, RebalanceImpl.getRebalanceResultFromBroker.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ...remoting.bodies import MessageModel, MessageQueue
from ...remoting.bodies.pop import (
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from ...remoting.errors import RemoteProtocolError
from ...remoting.request_codes import RequestCode
from ..connection.client import Client
from ..core.routes import subscribe_queues
from ..errors import ConfigurationError, ServerError, is_not_supported, reading_answer
from ..tasks.first_answer import FirstAnswer


class ServerAssignment(NamedTuple):
    """What a member of a group gets of one topic.

    Attributes:
      popped: queues to pop from; a queue id of -1 means all queues of the broker.
      pulled: queues to pull from.
    """

    popped: list[MessageQueue]
    pulled: list[MessageQueue]


class AssignmentQuestion:
    """Asks the brokers for a member's queues: each broker of a topic knows the whole assignment.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      strategy_name: "AVG" or "AVG_BY_CIRCLE".
    """

    def __init__(self, client: Client, group: str, strategy_name: str) -> None:
        self._client = client
        self._group = group
        self._strategy_name = strategy_name
        self._first = FirstAnswer[ServerAssignment | None]()

    async def ask(self, topic: str) -> ServerAssignment | None:
        """This member's queues of a topic.

        Args:
          topic: the topic, with namespace.

        Returns: the queues; None: the broker does not know yet, so the member keeps what it has.
        Raises:
          RouteNotFoundError: no name server knows the topic.
          ConfigurationError: the broker is older than RocketMQ 5.0.
          BadAnswerError: the answer is malformed, or assigns queues of another topic.
          ClientError: no broker of the topic could be asked.
        """
        body = QueryAssignmentRequestBody(
            topic=topic,
            consumer_group=self._group,
            client_id=self._client.client_id,
            strategy_name=self._strategy_name,
            message_model=MessageModel.CLUSTERING,
        ).to_body()
        route = await self._client.route(topic, wait_s=0)
        addresses = {
            name: self._client.reading_address(name)
            for name in map(self._client.owner, subscribe_queues(topic, route))
        }
        servers = {
            name: partial(self._ask_at, address, topic, body)
            for name, address in addresses.items()
            if address is not None
        }
        if not servers:
            return ServerAssignment([], [])
        return await self._first.ask(servers)

    async def _ask_at(self, address: str, topic: str, body: bytes) -> ServerAssignment | None:
        try:
            answer = await self._client.request(address, RequestCode.QUERY_ASSIGNMENT, body=body)
        except ServerError as error:
            if is_not_supported(error):
                raise ConfigurationError(
                    f"the broker at {address} does not assign queues ({error.remark.strip()})."
                    ' Brokers older than RocketMQ 5.0 do not: use mode="pull", which is the default'
                ) from error
            raise
        with reading_answer(address):
            return _read(QueryAssignmentResponseBody.from_body(answer.body), topic)


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
