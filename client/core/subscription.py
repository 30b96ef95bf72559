"""Subscriptions of consumers: messages selected by tags, SQL or a filter class.

Java counterpart: MessageSelector, FilterAPI, ExpressionType, and the tag check of
PullAPIWrapper.processPullResult of RocketMQ 5.3.3; classes as in 4.2.0. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from zlib import crc32

from ...common.java_hash import java_hash_code
from ...remoting.bodies import SubscriptionData

SUB_ALL: Final = "*"
"""The expression that matches all messages. Source: SubscriptionData.SUB_ALL."""
TAG: Final = "TAG"
SQL92: Final = "SQL92"
"""The kinds of expression. Source: ExpressionType."""

_UNUSUAL: Final = re.compile(r"[|,;&<>=()]|\s+")
"""What tags do not have: between two of them it was meant to separate them."""
_SEPARATORS: Final = re.compile(r"(?:\s+or\s+|[|,;&\s])+", re.IGNORECASE)
_CONDITION: Final = re.compile(
    r"[<>=()]|\s(?:and|in|is|between|not|like|contains)\s", re.IGNORECASE
)
"""What an SQL92 condition has."""

_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Selects messages by their tag.

    Attributes:
      expression: one tag or several, separated by `||`; spaces around them are ignored. "*" or ""
        selects all messages.

    Source: MessageSelector.byTag.
    """

    expression: str = SUB_ALL


@dataclass(frozen=True, slots=True)
class Sql:
    """Selects messages by their properties. The broker must have `enablePropertyFilter`.

    Attributes:
      expression: condition in SQL92, such as "price > 10 AND region = 'eu'".

    Source: MessageSelector.bySql.
    """

    expression: str


FilterLanguage: TypeAlias = Literal["java", "python"]
"""The language of a filter class's source."""

FILTER_LANGUAGES: Final[tuple[FilterLanguage, ...]] = ("java", "python")

FILTER_SOURCE_SIZE_MAX: Final = 64 * 1024
"""Largest source of a filter class in bytes: the limit of trocket's filter servers."""

FILTER_CLASS_NAME_LENGTH_MAX: Final = 255
"""Largest length of a full class name: that of a file name, of which it becomes a part."""

_CLASS_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class FilterClass:
    """Selects messages by a class that the broker's filter servers run.

    Attributes:
      class_name: full name of the class, such as "org.shop.KeepFifth".
      source: source code of the class, which push consumers upload to all filter servers of the
        topic. None if the filter servers have the class already: from their configuration, their
        repository, or `trocket filter put`.
      language: language of the source, "java" or "python".
    """

    class_name: str
    source: str | None = field(default=None, repr=False)
    language: FilterLanguage = "java"

    @property
    def source_bytes(self) -> bytes:
        """The source, encoded as UTF-8; empty if there is none."""
        return (self.source or "").encode()


def filter_class_crc(source: bytes) -> int:
    """The checksum by which filter servers recognise a source that they already have.

    Source: RocketMQ 4.2.0 UtilAll.crc32.
    """
    return crc32(source) & 0x7FFFFFFF


def check_filter_class(filter_class: FilterClass) -> None:
    """Check that filter servers would accept a class.

    Raises: ValueError: its name is not that of a class, its source is empty or larger than
      `FILTER_SOURCE_SIZE_MAX`, or its language is not one of `FILTER_LANGUAGES`.
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
"""A selection of messages; a `str` means `Tag(...)`."""


def check_subscriptions(subscriptions: object) -> None:
    """Check the types of a consumer's subscriptions: topic to selector.

    Raises: ValueError: it is not a mapping, or a topic or a selector has a wrong type.
    """
    if not isinstance(subscriptions, Mapping):
        raise ValueError(
            f"the subscriptions are {subscriptions!r}: give a dict of topics and selectors, such as"
            f" {_all_of(subscriptions)} for all messages of a topic"
        )
    if not subscriptions:
        raise ValueError("there are no subscriptions: give at least one topic")
    for topic, selector in subscriptions.items():
        if not isinstance(topic, str):
            raise ValueError(f"the subscriptions have the topic {topic!r}: give its name as str")
        check_selector(topic, selector)


def _all_of(topics: object) -> str:
    """The subscriptions to write for all messages of some topics."""
    names = [topics] if isinstance(topics, str) else topics
    if not isinstance(names, list | tuple | set | frozenset):
        names = []
    known = [name for name in names if isinstance(name, str)]
    return repr(dict.fromkeys(known or ["TopicA"], SUB_ALL))


def check_selector(topic: str, selector: object) -> None:
    """Check the type of a selector.

    Raises: ValueError: it is no selector.
    """
    if not isinstance(selector, str | Tag | Sql | FilterClass):
        hint = ""
        if isinstance(selector, list | tuple | set | frozenset):
            hint = f"; write {' || '.join(map(str, selector))!r}"
        elif callable(selector):
            hint = f"; write {{{topic!r}: '*'}}, and give the handler to run"
        elif selector is None:
            hint = f"; write {{{topic!r}: '*'}}"
        raise ValueError(
            f"the subscription of {topic} is {selector!r}: give '*' for all messages, tags such as"
            f" 'A || B', Tag, Sql or FilterClass{hint}"
        )
    expression = selector.expression if isinstance(selector, Tag | Sql) else ""
    if not isinstance(expression, str):
        raise ValueError(f"the subscription of {topic} is {selector!r}: its expression is a str")


def _tags_of(expression: str) -> list[str]:
    """The tags between the bars, also empty ones."""
    return [tag.strip(_JAVA_BLANKS) for tag in expression.split("||")]


def check_tags_text(topic: str, text: str) -> None:
    """Check that a string is tags as they are usually written; `Tag` takes what RocketMQ takes.

    Java's client accepts all texts, and then often receives no message.

    Raises: ValueError: a tag has blanks inside or a character that separates or compares, there is
      nothing on one side of a bar, or `*` is not alone.
    """
    tags = _tags_of(text)
    named = [tag for tag in tags if tag not in ("", SUB_ALL)]
    what = f"the expression {text!r} for topic {topic}"
    if text in ("", SUB_ALL):
        return
    if SUB_ALL in tags:
        more = f", or {' || '.join(named)!r} for some" if named else ""
        raise ValueError(f"{what} has more than *: write '*' for all messages{more}")
    wrong = next((found for tag in named if (found := _UNUSUAL.search(tag))), None)
    if wrong is None:
        if "" in tags and named:
            raise ValueError(f"{what} has nothing on one side of ||: write {' || '.join(named)!r}")
        return
    if _CONDITION.search(text):
        hint = f"for a condition write Sql({text!r})"
    else:
        separated = " || ".join(filter(None, _SEPARATORS.split(text))) or "TagA || TagB"
        hint = f"for several tags write {separated!r}, for one that is called so Tag({text!r})"
    raise ValueError(f"{what} has {wrong[0]!r} in a tag: {hint}")


def read_subscription(
    topic: str, selector: MessageSelector | FilterClass, sub_version: int
) -> SubscriptionData:
    """`build_subscription` for what a program gives a consumer.

    Raises: ValueError: as `build_subscription` and `check_tags_text`.
    """
    if isinstance(selector, str):
        check_tags_text(topic, selector)
    return build_subscription(topic, selector, sub_version=sub_version)


def build_subscription(
    topic: str, selector: MessageSelector | FilterClass = SUB_ALL, *, sub_version: int = 0
) -> SubscriptionData:
    """Build the subscription for heartbeats and pulls.

    Args:
      topic: name of the topic, with namespace.
      selector: which messages to receive.
      sub_version: time of the subscription, in milliseconds since 1970; brokers keep the latest one
        of a group.

    Raises: ValueError: there is no tag between the bars, the SQL expression is empty, or as
      `check_selector` and `check_filter_class`.
    Source: FilterAPI.build; 4.2.0 DefaultMQPushConsumerImpl.subscribe for classes.
    """
    check_selector(topic, selector)
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
    tags = set(_tags_of(expression)) - {""}
    if not tags:
        # Java's client accepts " || ", and never receives a message.
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
