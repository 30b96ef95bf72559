"""Options of the simple consumer, and what all consumers that pop have in common.

Java counterpart: SimpleConsumerBuilder of rocketmq-clients; initMode of a pop.
"""

from __future__ import annotations

from math import inf
from typing import Final

import msgspec

from ...remoting.bodies import ConsumeFromWhere
from ...remoting.pop_requests import INVISIBLE_S_MAX
from ...remoting.receipt import POP_COUNT_MAX
from ..checks.option_check import check_timeout, is_int, is_number
from ..checks.shown import shown
from ..connection.options import ClientOptions
from ..errors import ConfigurationError
from .consumer_options import StartName

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


def check_receive(count: object, wait_s: object) -> None:
    """Check the arguments of `receive`.

    Raises: ConfigurationError: one is out of range, or of a wrong type.
    """
    if not is_int(count) or not 1 <= count <= POP_COUNT_MAX:
        raise ConfigurationError(
            f"max_messages is {shown(count)}: give the largest number of messages, an int of 1 to"
            f" {POP_COUNT_MAX}; a time is receive(wait_s=...)"
        )
    if wait_s != inf:
        check_timeout("wait_s", wait_s)


def check_invisible(name: str, seconds: object, least: float) -> None:
    """Check the seconds for which a message is given to no one else.

    Raises: ConfigurationError: they are out of range, or no number.
    """
    if not is_number(seconds) or not least <= seconds <= INVISIBLE_S_MAX:
        raise ConfigurationError(
            f"{name} is {shown(seconds)}: give {least} to {INVISIBLE_S_MAX} seconds (3 days)"
        )
