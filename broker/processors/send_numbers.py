"""Numbers of a send's header, which the send's path reads without a typed header. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...common.message_properties import find_property
from ...remoting.errors import RequestRefused
from ...remoting.headers import read_number
from ...remoting.numbers import (
    MESSAGE_SYS_FLAG,
    QUEUE_ID_OR_ANY,
    RECONSUME_TIMES,
    TIME_MS,
    USER_FLAG,
)
from ...remoting.response_codes import ResponseCode
from ...remoting.sys_flag import TRANSACTION_PREPARED_TYPE

QUEUE_IDS: Final = {str(queue_id): queue_id for queue_id in range(-1, 1024)}
"""The queue ids of nearly all sends by their texts: quicker than `int`, and as strict as Java."""
BORN_DIGITS: Final = 13
"""Of a time in ms since 1970 between the years 2001 and 2286."""


def read_numbers(
    fields: Mapping[str, str], names: tuple[str, ...]
) -> tuple[int, int, int, int, int]:
    """The queue id, born time, flag, sysFlag and number of tries of a send.

    Args:
      fields: the send's header.
      names: of topic, queue id, sysFlag, born time, flag, properties and tries on the wire.
    Raises: KeyError: a field is missing. RequestRefused: a number is none, or outside of its
      range, or the send would be stored where no consumer ever sees it.
    """
    _, n_queue, n_sys_flag, n_born, n_flag, n_properties, n_reconsume = names
    sys_flag = read_number(n_sys_flag, MESSAGE_SYS_FLAG, fields[n_sys_flag])
    refuse_hidden(sys_flag, fields.get(n_properties, "").encode("utf-8", "replace"))
    return (
        read_number(n_queue, QUEUE_ID_OR_ANY, fields[n_queue]),
        read_number(n_born, TIME_MS, fields[n_born]),
        read_number(n_flag, USER_FLAG, fields[n_flag]),
        sys_flag,
        read_number(n_reconsume, RECONSUME_TIMES, fields.get(n_reconsume) or "0"),
    )


def refuse_hidden(sys_flag: int, properties: bytes) -> None:
    """Refuse a send whose sysFlag says that it is half of a transaction, or rolled back, but whose
    properties do not: no consumer would see it, and no transaction would end it.

    Raises: RequestRefused: MESSAGE_ILLEGAL. RocketMQ stores and acknowledges it.
    """
    if sys_flag & TRANSACTION_PREPARED_TYPE and find_property(properties, b"TRAN_MSG") != b"true":
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the sysFlag {sys_flag} hides the message from consumers: it has a transaction's bit, "
            "but the message has no property TRAN_MSG=true",
        )
