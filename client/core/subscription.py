"""What a consumer wants of a topic: tags or SQL, in the form that brokers read.

Java counterpart: MessageSelector, FilterAPI, ExpressionType, and the tag check of
PullAPIWrapper.processPullResult of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from ...remoting.bodies import SubscriptionData
from ...remoting.java_hash import java_hash_code

SUB_ALL: Final = "*"
"""The expression that wants every message. Source: SubscriptionData.SUB_ALL."""
TAG: Final = "TAG"
SQL92: Final = "SQL92"
"""The kinds of expression. Source: ExpressionType."""

_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What String.trim takes off."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Messages by their tag.

    Attributes:
      expression: tags with `||` between them, blanks around each do not count; "*" or "": all.
    Source: MessageSelector.byTag.
    """

    expression: str = SUB_ALL


@dataclass(frozen=True, slots=True)
class Sql:
    """Messages by their properties; the broker evaluates it (`enablePropertyFilter`).

    Attributes:
      expression: SQL92, such as "price > 10 AND region = 'eu'".
    Source: MessageSelector.bySql.
    """

    expression: str


MessageSelector: TypeAlias = str | Tag | Sql
"""A text means `Tag(text)`."""


def build_subscription(
    topic: str, selector: MessageSelector = SUB_ALL, *, sub_version: int = 0
) -> SubscriptionData:
    """The subscription as heartbeats and pulls carry it.

    Args:
      topic: with its namespace.
      selector: which messages.
      sub_version: when it was made, ms since 1970: a broker keeps the greatest one of a group.
    Raises: ValueError: no tag between the bars, or an empty SQL expression.
    Source: FilterAPI.build.
    """
    if isinstance(selector, Sql):
        if not selector.expression.strip():
            raise ValueError(
                f"the SQL expression for topic {topic} is empty: write a condition, or use '*' for"
                " all messages"
            )
        return SubscriptionData(
            topic=topic,
            sub_string=selector.expression,
            expression_type=SQL92,
            sub_version=sub_version,
        )
    expression = selector.expression if isinstance(selector, Tag) else selector
    if expression in ("", SUB_ALL):
        return SubscriptionData(topic=topic, sub_string=SUB_ALL, sub_version=sub_version)
    tags = {tag.strip(_JAVA_BLANKS) for tag in expression.split("||")} - {""}
    if not tags:
        # Java's client takes " || ", and then never gets a message.
        raise ValueError(
            f"the expression {expression!r} for topic {topic} names no tag: write 'TagA || TagB',"
            " or '*' for all messages"
        )
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set={java_hash_code(tag) for tag in tags},
        sub_version=sub_version,
    )


def matches(subscription: SubscriptionData, tags: str | None) -> bool:
    """Whether a message that a broker delivered is one that was asked for.

    A broker compares the tags' hash codes only, and two tags may share one; so the client compares
    the texts. SQL and "*" have no tags, and whatever came is taken.

    Args:
      tags: the message's TAGS property, or None.
    """
    wanted = subscription.tags_set
    if not wanted or subscription.class_filter_mode:
        return True
    return tags in wanted
