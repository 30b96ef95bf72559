"""Messages with a key, by the index of the brokers: one request for each of them."""

from __future__ import annotations

import msgspec

from ...client.admin.admin import Admin
from ...client.admin.asking import BrokerFailure, Brokers
from ...client.admin.messages import COUNT, TIME_MAX, MessageVerbs
from ...client.admin.topics import TopicVerbs
from ...client.errors import RouteNotFoundError
from ...client.messages.message import ReceivedMessage
from .criteria import Criteria, Mask, check, predicate, unmasked
from .deadlines import within
from .problems import Problem, SearchError
from .search import LIMITS, Limits


class KeyPage(msgspec.Struct, frozen=True, kw_only=True):
    """What the index has for a key.

    Attributes:
      found: in order, masked; those that meet the other criteria too.
      scanned: messages that the index gave.
      full: brokers that gave as many as they give at once, so that there may be older ones: a
        `search` with the key and `end_ms` finds them.
      failures: brokers that gave no answer; their messages are missing.
    """

    found: tuple[ReceivedMessage, ...]
    scanned: int
    full: tuple[str, ...]
    failures: tuple[BrokerFailure, ...]


def message_verbs(admin: Admin) -> MessageVerbs:
    """The verbs about messages, with those that `Admin` does not forward."""
    brokers = Brokers(admin.client)
    return MessageVerbs(brokers, TopicVerbs(brokers))


async def search_by_key(
    admin: Admin, criteria: Criteria, *, limits: Limits = LIMITS, mask: Mask = unmasked
) -> KeyPage:
    """The newest messages with a key: the index gives 64 of each broker at most.

    Args:
      criteria: with a key; all of them hold together.
      limits: `broker_s` only.

    Raises: SearchError: what is looked for cannot be. ClientError: no name server answers.
    """
    check(criteria)
    if not criteria.key:
        raise SearchError(Problem.EMPTY)
    matches = predicate(criteria)
    end_ms = TIME_MAX if criteria.end_ms is None else criteria.end_ms
    verbs = message_verbs(admin)

    async def ask() -> None:
        await admin.client.route(full, is_fresh=True)

    full = admin.client.with_namespace(criteria.topic)
    try:
        await within(limits.broker_s, "a route", "the name server", ask)
        answers = await verbs.look_up(
            full,
            criteria.key,
            COUNT,
            criteria.begin_ms or 0,
            end_ms,
            timeout_s=limits.broker_s,
        )
    except RouteNotFoundError as error:
        raise SearchError(Problem.NO_TOPIC, topic=criteria.topic) from error
    given = [message for found in answers.values.values() for message in found]
    masked = [mask(message) for message in given]
    found = [message for message in masked if matches(message) and _is_of(message, criteria)]
    found.sort(
        key=lambda each: (each.store_timestamp_ms, each.physical_offset),
        reverse=criteria.is_newest_first,
    )
    return KeyPage(
        found=tuple(found),
        scanned=len(given),
        full=tuple(name for name, each in sorted(answers.values.items()) if len(each) >= COUNT),
        failures=tuple(
            BrokerFailure(name, error) for name, error in sorted(answers.errors.items())
        ),
    )


def _is_of(message: ReceivedMessage, criteria: Criteria) -> bool:
    """Whether a message is in the queues that are searched."""
    queue = message.queue
    if criteria.broker_name not in ("", queue.broker_name):
        return False
    if criteria.queue_id not in (None, queue.queue_id):
        return False
    offset = criteria.offset
    if offset is None:
        return True
    return (
        message.queue_offset <= offset
        if criteria.is_newest_first
        else message.queue_offset >= offset
    )
