"""Types of the numeric members of request bodies, each with its range in `numbers`.

Reading a body accepts every number of Java's type, because files and answers have the same classes;
`out_of_range` then finds numbers that a request must not have.
"""

from __future__ import annotations

from typing import Annotated

from .. import number_fields as numbers

BrokerId = Annotated[int, numbers.INT64.meta, numbers.BROKER_ID]
DelayMs = Annotated[int, numbers.INT64.meta, numbers.DELAY_MS]
Epoch = Annotated[int, numbers.INT32.meta, numbers.EPOCH]
Factor = Annotated[int, numbers.INT64.meta, numbers.FACTOR]
GroupSysFlag = Annotated[int, numbers.INT32.meta, numbers.GROUP_SYS_FLAG]
GroupTries = Annotated[int, numbers.INT32.meta, numbers.GROUP_TRIES]
Hash = Annotated[int, numbers.INT32.meta, numbers.HASH]
MappingInt = Annotated[int, numbers.INT32.meta, numbers.MAPPING_INT]
MappingLong = Annotated[int, numbers.INT64.meta, numbers.MAPPING_LONG]
Minutes = Annotated[int, numbers.INT32.meta, numbers.MINUTES]
Perm = Annotated[int, numbers.INT32.meta, numbers.PERM]
PopShare = Annotated[int, numbers.INT32.meta, numbers.POP_SHARE]
QueueCount = Annotated[int, numbers.INT32.meta, numbers.QUEUE_COUNT]
QueueId = Annotated[int, numbers.INT32.meta, numbers.QUEUE_ID]
ReadQueueCount = Annotated[int, numbers.INT32.meta, numbers.READ_QUEUE_COUNT]
ReplicaId = Annotated[int, numbers.INT64.meta, numbers.REPLICA_ID]
RouteFlag = Annotated[int, numbers.INT32.meta, numbers.ROUTE_FLAG]
RoutePerm = Annotated[int, numbers.INT32.meta, numbers.ROUTE_PERM]
TopicSysFlag = Annotated[int, numbers.INT32.meta, numbers.TOPIC_SYS_FLAG]
Version = Annotated[int, numbers.INT64.meta, numbers.VERSION]
