"""Message queues, their locks, and the clients that share them."""

from __future__ import annotations

import msgspec

from .base import Body
from .fields import QueueId


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on the brokers of one name; sorted as Java sorts it."""

    topic: str
    broker_name: str
    queue_id: QueueId


class LockBatchRequestBody(Body):
    """Body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).

    Attributes:
      client_id: the member of the group that locks or unlocks.
      only_this_broker: do not involve the broker's replicas (5.x).
    """

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = msgspec.field(default_factory=list)


class UnlockBatchRequestBody(LockBatchRequestBody):
    """Body of UNLOCK_BATCH_MQ (42); the same members."""


class LockBatchResponseBody(Body):
    """Answer to 41: the queues the client holds now; wire `lockOKMQSet`."""

    lock_ok_mq_set: list[MessageQueue] = msgspec.field(default_factory=list, name="lockOKMQSet")


class GetConsumerListByGroupResponseBody(Body):
    """Answer to GET_CONSUMER_LIST_BY_GROUP (38): client ids."""

    consumer_id_list: list[str] = msgspec.field(default_factory=list)
