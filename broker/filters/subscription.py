"""Subscription: a group's filter for a topic, in the form that pulls use.

Java counterpart: remoting/protocol/heartbeat/SubscriptionData.java of 5.3.3. Pure.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from ...common.java_hash import java_hash_code
from ...common.sized_cache import sized_cache
from ...remoting.bodies import SubscriptionData

SUB_ALL: Final = "*"
"""The expression that matches every message."""
TAG: Final = "TAG"

SUBSCRIPTION_LENGTH_MAX: Final = 32_767
"""Characters of one subscription by tags, the limit of a message's properties, so that thousands of
tags fit. A longer one is refused, because each pull with it would cost the broker 0.3 us of CPU per
character. RocketMQ has no limit but the frame's."""

SUBSCRIPTION_CODES_MAX: Final = SUBSCRIPTION_LENGTH_MAX // len("a||") + 1
"""Tags of one subscription of the greatest length."""

TAGS_CODES_CACHE_SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes of cached tags codes, enough for some 10,000 usual subscriptions."""

_CODE_SIZE: Final = 32
_SUBSCRIPTION_SIZE: Final = 600 + sys.getsizeof(set())
"""Bytes of one int, and of a `Subscription` with an empty set and its entries in the tables."""


def _tags_codes_size(expression: str, codes: frozenset[int] | None) -> int:
    size = 200 + len(expression)
    return size if codes is None else size + sys.getsizeof(codes) + _CODE_SIZE * len(codes)


@sized_cache(size_max=TAGS_CODES_CACHE_SIZE_MAX, size_of=_tags_codes_size)
def tags_codes_of(expression: str) -> frozenset[int] | None:
    """The hash codes of a tag expression such as `TagA || TagB`; None: all messages.

    Args:
      expression: at most SUBSCRIPTION_LENGTH_MAX characters.
    Source: remoting/protocol/filter/FilterAPI.java buildSubscriptionData.
    """
    if expression in ("", SUB_ALL):
        return None
    tags = [tag.strip() for tag in expression.split("||")]
    return frozenset(java_hash_code(tag) for tag in tags if tag) or None


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression names tags; else it is SQL92.

    Source: common/filter/ExpressionType.java.
    """
    return not expression_type or expression_type == TAG


def refuse_subscription(data: SubscriptionData) -> str | None:
    """The reason why a heartbeat's subscription by tags is too large; None: it is not."""
    if is_tag_type(data.expression_type) and len(data.sub_string) > SUBSCRIPTION_LENGTH_MAX:
        return f"{len(data.sub_string)} characters, the limit is {SUBSCRIPTION_LENGTH_MAX}"
    if len(data.code_set) > SUBSCRIPTION_CODES_MAX:
        return f"{len(data.code_set)} tags, the limit is {SUBSCRIPTION_CODES_MAX}"
    return None


def subscription_size(data: SubscriptionData) -> int:
    """Approximate size of a heartbeat's subscription in the broker's memory, in bytes."""
    size = _SUBSCRIPTION_SIZE + len(data.topic) + len(data.sub_string)
    if data.code_set:
        size += sys.getsizeof(data.code_set) + _CODE_SIZE * len(data.code_set)
    return size


class Subscription(msgspec.Struct, frozen=True):
    """One subscription of a group; immutable.

    Attributes:
      sub_string: the expression as the user wrote it.
      expression_type: `TAG` or `SQL92`.
      sub_version: ms since 1970 when the client created it; the highest one of a group is used.
      code_set: hash codes of the tags, each a Java int.
      class_filter_mode: sub_string names a class that a filter server applies; the broker does not
        filter.
      tags_codes: argument of the store's `get_message`: the codes that match; None: all match.
    """

    topic: str
    sub_string: str
    expression_type: str
    sub_version: int
    code_set: frozenset[int]
    class_filter_mode: bool
    tags_codes: frozenset[int] | None

    @classmethod
    def from_data(cls, data: SubscriptionData) -> Subscription:
        """Convert a heartbeat's or a pull's subscription.

        Source: for tags_codes: broker/filter/ExpressionMessageFilter.isMatchedByConsumeQueue.
        """
        code_set = frozenset(data.code_set)
        return cls(
            topic=data.topic,
            sub_string=data.sub_string,
            expression_type=data.expression_type or TAG,
            sub_version=data.sub_version,
            code_set=code_set,
            class_filter_mode=data.class_filter_mode,
            tags_codes=None if data.class_filter_mode or data.sub_string == SUB_ALL else code_set,
        )

    def to_data(self) -> SubscriptionData:
        """Convert to the body that administrators get."""
        tags = self.sub_string.split("||") if self.tags_codes is not None else []
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.sub_string,
            tags_set={tag.strip() for tag in tags if tag.strip()} if self.is_tag_type else set(),
            code_set=set(self.code_set),
            sub_version=self.sub_version,
            expression_type=self.expression_type,
            class_filter_mode=self.class_filter_mode,
        )

    @property
    def is_tag_type(self) -> bool:
        return is_tag_type(self.expression_type)

    @property
    def needs_expression(self) -> bool:
        """Whether the broker filters by its expression, because it is not by tags."""
        return not self.class_filter_mode and not self.is_tag_type
