"""The client ids of the members of a consumer group.

Java counterpart: MQClientInstance.findConsumerIdList.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...remoting.bodies import GetConsumerListByGroupResponseBody, MessageQueue
from ...remoting.headers import GetConsumerListByGroupRequestHeader
from ...remoting.request_codes import RequestCode
from ..connection.client import Client
from ..errors import ServerError, reading_answer
from ..tasks.first_answer import FirstAnswer
from .pulling import broker_of


class MemberIds:
    """Asks brokers for the client ids of a group's members.

    Args:
      client: an open client.
      group: name of the group, with namespace.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._first = FirstAnswer[list[str]]()

    async def of(self, queues: Sequence[MessageQueue]) -> list[str]:
        """The client ids, sorted: each broker of the topic of these queues knows all of them.

        Raises: ClientError: no broker answered.
        """
        one_of_each = {self._client.owner(queue): queue for queue in reversed(queues)}
        return await self._first.ask(
            {name: partial(self._ask, one_of_each[name]) for name in sorted(one_of_each)}
        )

    async def _ask(self, queue: MessageQueue) -> list[str]:
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._group)
        try:
            answer = await self._client.request(
                broker_of(self._client, queue, 1), RequestCode.GET_CONSUMER_LIST_BY_GROUP, header
            )
        except ServerError:
            # The broker does not know the group: it is new, or was restarted.
            self._client.heartbeat_soon()
            raise
        with reading_answer(queue.broker_name):
            body = GetConsumerListByGroupResponseBody.from_body(answer.body)
        return sorted(body.consumer_id_list)
