"""Subscriptions: a client's filter expressions as brokers know them."""

from __future__ import annotations

from typing import Any, Final

from ..common.java_hash import java_hash_code
from ..grpc_protocol.enums import Code, FilterType
from ..remoting.bodies import SubscriptionData
from .refused import Refused

SQL92: Final = "SQL92"
_ALL: Final = "*"


def subscription_of(topic: str, expression: Any, version: int = 0) -> SubscriptionData:
    """A subscription.

    Args:
      expression: a message FilterExpression.
      version: when it was made, ms since 1970.
    Raises: Refused: ILLEGAL_FILTER_EXPRESSION.
    Source: FilterAPI.build.
    """
    text = expression.expression
    if expression.type == FilterType.SQL:
        if not text.strip():
            raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "Expression can't be null! SQL92")
        return SubscriptionData(
            topic=topic, sub_string=text, expression_type=SQL92, sub_version=version
        )
    if text in ("", _ALL):
        return SubscriptionData(topic=topic, sub_string=_ALL, sub_version=version)
    tags = {tag.strip() for tag in text.split("||")} - {""}
    if not tags:
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, "subString split error")
    return SubscriptionData(
        topic=topic,
        sub_string=text,
        tags_set=tags,
        code_set={java_hash_code(tag) for tag in tags},
        sub_version=version,
    )
