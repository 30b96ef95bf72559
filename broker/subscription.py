"""What a group wants of a topic, in the form that a pull needs.

Java counterpart: remoting/protocol/heartbeat/SubscriptionData.java of 5.3.3, as the broker keeps
it. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..remoting.bodies import SubscriptionData

SUB_ALL: Final = "*"
"""The expression that wants every message."""
TAG: Final = "TAG"


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression names tags; else it is SQL92.

    Source: common/filter/ExpressionType.java.
    """
    return not expression_type or expression_type == TAG


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription of a group; never changed.

    Attributes:
      topic: the topic.
      sub_string: the expression as the user wrote it.
      expression_type: `TAG` or `SQL92`.
      sub_version: ms since 1970 when the client made it; the highest one of a group counts.
      code_set: hash codes of the tags, each a Java int.
      class_filter_mode: sub_string names a class, by which a filter server decides; the broker
        itself lets every message pass.
      tags_codes: what the store's `get_message` takes: the codes that match; None: all match.
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
        """What a heartbeat or a pull said.

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
        """As an administrator sees it."""
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
        """Whether it filters by tags."""
        return is_tag_type(self.expression_type)

    @property
    def needs_expression(self) -> bool:
        """Whether the broker filters by its expression, which is not tags."""
        return not self.class_filter_mode and not self.is_tag_type
