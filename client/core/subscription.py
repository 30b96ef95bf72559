"""A consumer's subscription to a topic: tags, SQL or a class, in the form that brokers read.

Java counterpart: MessageSelector, FilterAPI, ExpressionType, and the tag check of
PullAPIWrapper.processPullResult of RocketMQ 5.3.3; classes as in 4.2.0. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from zlib import crc32

from ...common.java_hash import java_hash_code
from ...remoting.bodies import SubscriptionData

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


FilterLanguage: TypeAlias = Literal["java", "python"]
"""What the source of a filter class is written in."""

FILTER_LANGUAGES: Final[tuple[FilterLanguage, ...]] = ("java", "python")

FILTER_SOURCE_SIZE_MAX: Final = 64 * 1024
"""Bytes of a filter class's source: what our filter servers take. RocketMQ sets no limit."""

FILTER_CLASS_NAME_LENGTH_MAX: Final = 255
"""Characters of a class's full name: that many a file's name may have, which it becomes part of."""

_CLASS_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class FilterClass:
    """Messages by a class that the broker's filter servers run.

    Attributes:
      class_name: in full, such as "org.shop.KeepFifth".
      source: of the class; push consumers upload it to every filter server of the topic. None: the
        filter servers have the class already: named or an expression in their configuration, from
        their repository, or by `trocket filter put`.
      language: of the source.
    """

    class_name: str
    source: str | None = field(default=None, repr=False)
    language: FilterLanguage = "java"

    @property
    def source_bytes(self) -> bytes:
        """The source as it is uploaded; empty when there is none."""
        return (self.source or "").encode()


def filter_class_crc(source: bytes) -> int:
    """By what filter servers tell whether they have this source already.

    Source: RocketMQ 4.2.0 UtilAll.crc32.
    """
    return crc32(source) & 0x7FFFFFFF


def check_filter_class(filter_class: FilterClass) -> None:
    """Refuse a class that no filter server would take.

    Raises: ValueError: its name is no class's, its source is empty or larger than
      `FILTER_SOURCE_SIZE_MAX`, or its language is none of `FILTER_LANGUAGES`.
    """
    name = filter_class.class_name
    if len(name) > FILTER_CLASS_NAME_LENGTH_MAX or _CLASS_NAME.fullmatch(name) is None:
        shown = name[:FILTER_CLASS_NAME_LENGTH_MAX]
        raise ValueError(
            f"{shown!r} is not the full name of a class, such as org.shop.KeepFifth, of at most"
            f" {FILTER_CLASS_NAME_LENGTH_MAX} characters"
        )
    if filter_class.language not in FILTER_LANGUAGES:
        raise ValueError(
            f"the filter class {name} is in {filter_class.language!r}; filter servers run"
            f" {' and '.join(FILTER_LANGUAGES)}"
        )
    if filter_class.source is None:
        return
    size = len(filter_class.source_bytes)
    if not 0 < size <= FILTER_SOURCE_SIZE_MAX:
        raise ValueError(
            f"the source of the filter class {name} has {size} bytes; it has 1 to"
            f" {FILTER_SOURCE_SIZE_MAX}"
        )


MessageSelector: TypeAlias = str | Tag | Sql
"""A text means `Tag(text)`."""


def build_subscription(
    topic: str, selector: MessageSelector | FilterClass = SUB_ALL, *, sub_version: int = 0
) -> SubscriptionData:
    """The subscription as heartbeats and pulls carry it.

    Args:
      topic: with its namespace.
      selector: which messages.
      sub_version: when it was made, ms since 1970: a broker keeps the greatest one of a group.
    Raises: ValueError: no tag between the bars, an empty SQL expression, or as
      `check_filter_class`.
    Source: FilterAPI.build; 4.2.0 DefaultMQPushConsumerImpl.subscribe for classes.
    """
    if isinstance(selector, FilterClass):
        check_filter_class(selector)
        return SubscriptionData(
            topic=topic,
            sub_string=selector.class_name,
            sub_version=sub_version,
            class_filter_mode=True,
        )
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
