"""Types of the numeric fields of request headers, each with its range in `numbers`.

`decode` refuses a number out of its range; the check is part of msgspec's conversion.
"""

from __future__ import annotations

from typing import Annotated

from .. import number_fields as numbers

AskedQueueId = Annotated[int, numbers.ASKED_QUEUE_ID.meta, numbers.ASKED_QUEUE_ID]
BrokerId = Annotated[int, numbers.BROKER_ID.meta, numbers.BROKER_ID]
ByteCount = Annotated[int, numbers.BYTE_COUNT.meta, numbers.BYTE_COUNT]
ControllerInt = Annotated[int, numbers.CONTROLLER_INT.meta, numbers.CONTROLLER_INT]
ControllerLong = Annotated[int, numbers.CONTROLLER_LONG.meta, numbers.CONTROLLER_LONG]
CommittedOffset = Annotated[int, numbers.COMMITTED_OFFSET.meta, numbers.COMMITTED_OFFSET]
Crc32 = Annotated[int, numbers.CRC32.meta, numbers.CRC32]
DelayLevel = Annotated[int, numbers.DELAY_LEVEL.meta, numbers.DELAY_LEVEL]
Epoch = Annotated[int, numbers.EPOCH.meta, numbers.EPOCH]
HeartbeatBrokerId = Annotated[int, numbers.HEARTBEAT_BROKER_ID.meta, numbers.HEARTBEAT_BROKER_ID]
InitMode = Annotated[int, numbers.INIT_MODE.meta, numbers.INIT_MODE]
InvisibleMs = Annotated[int, numbers.INVISIBLE_MS.meta, numbers.INVISIBLE_MS]
MessageCount = Annotated[int, numbers.MESSAGE_COUNT.meta, numbers.MESSAGE_COUNT]
MessageSysFlag = Annotated[int, numbers.MESSAGE_SYS_FLAG.meta, numbers.MESSAGE_SYS_FLAG]
PagePlace = Annotated[int, numbers.PAGE_PLACE.meta, numbers.PAGE_PLACE]
PageSize = Annotated[int, numbers.PAGE_SIZE.meta, numbers.PAGE_SIZE]
PhysicalOffset = Annotated[int, numbers.PHYSICAL_OFFSET.meta, numbers.PHYSICAL_OFFSET]
PopTimeMs = Annotated[int, numbers.POP_TIME_MS.meta, numbers.POP_TIME_MS]
PullOffset = Annotated[int, numbers.PULL_OFFSET.meta, numbers.PULL_OFFSET]
PullSysFlag = Annotated[int, numbers.PULL_SYS_FLAG.meta, numbers.PULL_SYS_FLAG]
QueueCount = Annotated[int, numbers.QUEUE_COUNT.meta, numbers.QUEUE_COUNT]
QueueId = Annotated[int, numbers.QUEUE_ID.meta, numbers.QUEUE_ID]
QueueIdOrAny = Annotated[int, numbers.QUEUE_ID_OR_ANY.meta, numbers.QUEUE_ID_OR_ANY]
QueueOffset = Annotated[int, numbers.QUEUE_OFFSET.meta, numbers.QUEUE_OFFSET]
ReconsumeTimes = Annotated[int, numbers.RECONSUME_TIMES.meta, numbers.RECONSUME_TIMES]
ReconsumeTimesMax = Annotated[int, numbers.RECONSUME_TIMES_MAX.meta, numbers.RECONSUME_TIMES_MAX]
ReplicaId = Annotated[int, numbers.REPLICA_ID.meta, numbers.REPLICA_ID]
ReplicaIdOrNone = Annotated[int, numbers.REPLICA_ID_OR_NONE.meta, numbers.REPLICA_ID_OR_NONE]
RequestSource = Annotated[int, numbers.REQUEST_SOURCE.meta, numbers.REQUEST_SOURCE]
SearchedTimeMs = Annotated[int, numbers.SEARCHED_TIME_MS.meta, numbers.SEARCHED_TIME_MS]
Setting = Annotated[int, numbers.SETTING.meta, numbers.SETTING]
TableOffset = Annotated[int, numbers.TABLE_OFFSET.meta, numbers.TABLE_OFFSET]
TimeoutMs = Annotated[int, numbers.TIMEOUT_MS.meta, numbers.TIMEOUT_MS]
TimeMs = Annotated[int, numbers.TIME_MS.meta, numbers.TIME_MS]
TransactionState = Annotated[int, numbers.TRANSACTION_STATE.meta, numbers.TRANSACTION_STATE]
UserFlag = Annotated[int, numbers.USER_FLAG.meta, numbers.USER_FLAG]
Version = Annotated[int, numbers.VERSION.meta, numbers.VERSION]
WantedQueueCount = Annotated[int, numbers.WANTED_QUEUE_COUNT.meta, numbers.WANTED_QUEUE_COUNT]
