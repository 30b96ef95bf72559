"""Options of the simple consumer, and what all consumers that pop have in common.

Java counterpart: SimpleConsumerBuilder of rocketmq-clients; initMode of a pop.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ..remoting.bodies import ConsumeFromWhere
from .consumer_options import StartName
from .errors import ConfigurationError
from .options import ClientOptions

RECEIVE_COUNT: Final = 16
"""Messages of one `receive`; brokers allow 32."""
INVISIBLE_S: Final = 60.0
"""How long a received message is given to no one else. RocketMQ: popInvisibleTime 60,000."""
WAIT_S: Final = 15.0
"""How long `receive` waits for a message. RocketMQ: brokerSuspendMaxTimeMillis 15,000."""


class SimpleConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of a simple consumer, in addition to ClientOptions.

    Keys:
      is_orderly: receive the messages of each queue in order: the broker gives no message of a
        queue while an earlier one is not acknowledged. Default False.
      consume_from_where: where a group that never consumed begins: "last" (the default: the broker
        then begins at the last message there is) or "first", or the member of ConsumeFromWhere.
      trace: report each consumption to the trace topic, for `Admin.message_trace`, mqadmin and the
        Dashboard: True for RMQ_SYS_TRACE_TOPIC, or the name of another topic; default False.
    """

    is_orderly: bool
    consume_from_where: ConsumeFromWhere | StartName
    trace: bool | str


class SimpleConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of SimpleConsumerOptions without those of ClientOptions."""

    is_orderly: bool = False
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    trace: bool | str = False


def pop_init_mode(where: ConsumeFromWhere) -> int:
    """Where a group that never consumed begins, as a pop says it; 0: the first message, 1: the end.

    Raises: ConfigurationError: a time, which a pop cannot say.
    """
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        return 1
    raise ConfigurationError(
        f"consume_from_where is {where.name}: a consumer that pops begins at the first message or"
        " at the last one. Create the group's offsets at a time before, by `trocket offset reset`"
    )
