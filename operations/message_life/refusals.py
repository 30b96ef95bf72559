"""Refusals: subscriptions that do not want a message, and their reasons. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from ...client import SubscriptionInfo
from ...common.java_hash import java_hash_code
from ...common.sql92.errors import FilterSyntaxError
from ...common.sql92.expression import compile_expression
from .facts import MessageFacts

_ALL: Final = frozenset({"*", ""})


class RefusalReason(StrEnum):
    """Why a subscription does not want a message."""

    TAG = "TAG"
    """It wants other tags."""
    COLLISION = "COLLISION"
    """It wants other tags, one of which has the hash code of the message's: the broker delivers the
    message, and the client drops it."""
    FALSE = "FALSE"
    """A term of its SQL92 expression is false."""
    UNKNOWN = "UNKNOWN"
    """A property that a term reads is missing."""
    ERROR = "ERROR"
    """A property cannot be compared as a term demands."""
    BAD_EXPRESSION = "BAD_EXPRESSION"
    """Its expression cannot be compiled."""


class Refusal(msgspec.Struct, frozen=True, rename="camel"):
    """A subscription that does not want the message.

    Attributes:
      expression, expression_type: as in SubscriptionInfo.
      term: the part of an SQL92 expression that is not true; "": for tags.
    """

    client_id: str
    expression: str
    expression_type: str
    reason: RefusalReason
    term: str = ""


def refusal_of(
    client_id: str, subscription: SubscriptionInfo, message: MessageFacts
) -> Refusal | None:
    """Why a subscription does not want a message; None: it does, or a class filter decides."""
    kind = subscription.expression_type
    if kind == "SQL92":
        return _refused_by_sql(client_id, subscription, message)
    tags = tags_of(subscription)
    if kind != "TAG" or tags is None or message.tags in tags:
        return None
    reason = RefusalReason.COLLISION if _colliding(message.tags, tags) else RefusalReason.TAG
    return Refusal(client_id, subscription.expression, kind, reason)


def tags_of(subscription: SubscriptionInfo) -> frozenset[str] | None:
    """The tags that a subscription wants; None: it does not go by tags.

    Source: FilterAPI.buildSubscriptionData of RocketMQ 5.5.0.
    """
    if subscription.expression_type != "TAG" or subscription.expression.strip() in _ALL:
        return None
    tags = (each.strip() for each in subscription.expression.split("||"))
    return frozenset(each for each in tags if each) or None


def collisions(
    message: MessageFacts, subscriptions: Iterable[SubscriptionInfo | None]
) -> tuple[str, ...]:
    """Tags that are subscribed to, and have the hash code of the message's other tag, sorted."""
    tags = frozenset[str]().union(*(tags_of(each) or () for each in subscriptions if each))
    return _colliding(message.tags, tags)


def _colliding(tag: str | None, tags: Iterable[str]) -> tuple[str, ...]:
    if not tag:
        return ()
    code = java_hash_code(tag)
    return tuple(sorted(each for each in tags if each != tag and java_hash_code(each) == code))


def _refused_by_sql(
    client_id: str, subscription: SubscriptionInfo, message: MessageFacts
) -> Refusal | None:
    text = subscription.expression
    try:
        if compile_expression(text).matches(message.properties):
            return None
        # Imported late, as it imports lark.
        from ...common.sql92.terms import failed_term

        failed = failed_term(text, message.properties)
    except FilterSyntaxError:
        reason = RefusalReason.BAD_EXPRESSION
        return Refusal(client_id, text, subscription.expression_type, reason)
    if failed is None:
        return None
    reason = RefusalReason(failed.result.value)
    return Refusal(client_id, text, subscription.expression_type, reason, failed.text)
