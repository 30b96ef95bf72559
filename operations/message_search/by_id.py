"""A message by its id alone, without its topic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import anyio
import msgspec

from ...client.admin.admin import Admin
from ...client.admin.asking import BrokerFailure, NotFoundError, ask_all
from ...client.admin.messages import MessageVerbs
from ...client.admin.results import BrokerInfo, ClusterView
from ...client.errors import (
    AccessDeniedError,
    BadAnswerError,
    BusyError,
    ClientError,
    RouteNotFoundError,
    ServerError,
)
from ...client.messages.message import ReceivedMessage
from .by_key import message_verbs
from .criteria import Mask, unmasked
from .deadlines import within
from .ids import MessageId, read_id
from .problems import Problem, SearchError
from .search import LIMITS, Limits

TOPICS_AT_ONCE: Final = 32
"""Topics of which the index is asked at the same time; a message that is found ends the search."""


class IdPage(msgspec.Struct, frozen=True, kw_only=True):
    """What was found for an id.

    Attributes:
      found: masked, the first stored one first; several if retries have the id, too.
      searched: topics whose index was asked, in this step and the steps before.
      topics: topics there are.
      next_topic: where the next step goes on; "": all were searched, or it was found.
      failures: brokers that gave no answer.
    """

    found: tuple[ReceivedMessage, ...] = ()
    searched: int = 0
    topics: int = 0
    next_topic: str = ""
    failures: tuple[BrokerFailure, ...] = ()


async def search_by_id(
    admin: Admin,
    text: str,
    *,
    next_topic: str = "",
    limits: Limits = LIMITS,
    mask: Mask = unmasked,
) -> IdPage:
    """One step of a search by id.

    A broker's id says where the message is; a broker that is not of the cluster is not asked, as
    any address can be written into an id. A producer's id is looked for in the index of all
    topics, RocketMQ's own and those of retries last.

    Args:
      text: the id, with spaces around it perhaps.
      next_topic: of the step before; "": the first one.
      limits: `step_s` and `broker_s`.

    Raises: SearchError: the id cannot be right, or is of no message. ClientError: no name server
      answers, or not the broker that the id names.
    """
    message_id = read_id(text)
    if message_id.place is None:
        return await search_index(
            admin, message_id.text, next_topic=next_topic, limits=limits, mask=mask
        )
    view: ClusterView = await within(
        limits.broker_s, "the brokers", "the name server", lambda: admin.cluster()
    )
    message = await message_at(admin, message_id, view.brokers, limits=limits)
    return IdPage(found=(mask(message),))


async def message_at(
    admin: Admin,
    message_id: MessageId,
    brokers: Iterable[BrokerInfo],
    *,
    limits: Limits = LIMITS,
) -> ReceivedMessage:
    """The message at the place that a broker's id names.

    Args:
      message_id: with a place.
      brokers: all there are; no other one is asked.
      limits: `broker_s`.

    Raises: SearchError: the broker is another cluster's, or no message begins there. ClientError:
      the broker does not answer.
    """
    broker_s, address = limits.broker_s, message_id.address
    names = [each.name for each in brokers if address in each.addresses.values()]
    if not names or message_id.place is None:
        raise SearchError(Problem.OTHER_CLUSTER, address=address)
    try:
        return await within(broker_s, "a message", address, lambda: admin.message(message_id.text))
    except (NotFoundError, BadAnswerError, ServerError) as error:
        # Apache's brokers take any four bytes at the place for a record's size: they answer with
        # what follows, or with the name of a Java exception.
        if isinstance(error, AccessDeniedError | BusyError):
            raise
        offset = message_id.place.physical_offset
        raise await _why_not_there(admin, names[0], address, offset, broker_s) from error


async def _why_not_there(
    admin: Admin, broker: str, address: str, offset: int, broker_s: float
) -> SearchError:
    try:
        info = await within(
            broker_s,
            "its runtime information",
            broker,
            lambda: admin.broker_runtime_info(address),
        )
        begin, end = int(info["commitLogMinOffset"]), int(info["commitLogMaxOffset"])
    except (ServerError, BadAnswerError, KeyError, ValueError):
        # The broker said that there is no message, and does not say why. One that does not answer
        # is a failure like any other, which the caller gets.
        return SearchError(Problem.NO_MESSAGE_THERE, broker=broker, offset=offset)
    if offset < begin:
        return SearchError(Problem.DELETED, broker=broker, offset=offset, begin=begin)
    if offset >= end:
        return SearchError(Problem.BEYOND_LOG, broker=broker, offset=offset, end=end)
    return SearchError(Problem.NO_MESSAGE_THERE, broker=broker, offset=offset)


async def search_index(
    admin: Admin,
    key: str,
    *,
    next_topic: str = "",
    limits: Limits = LIMITS,
    mask: Mask = unmasked,
) -> IdPage:
    """One step of a search for a producer's id in the index of all topics.

    Args:
      key: the id.
      next_topic, limits: as in `search_by_id`.

    Raises: SearchError: no message has the id. ClientError: no name server answers.
    """
    topics: list[str] = await within(
        limits.broker_s, "the topics", "the name server", lambda: _all_topics(admin)
    )
    begin = topics.index(next_topic) if next_topic in topics else 0
    verbs = message_verbs(admin)
    errors: dict[str, ClientError] = {}
    found: list[ReceivedMessage] = []
    at = begin
    with anyio.move_on_after(limits.step_s):
        while at < len(topics) and not found:
            some = topics[at : at + TOPICS_AT_ONCE]
            found = await _ask_topics(verbs, admin, some, key, errors, limits.broker_s)
            at += len(some)
    failures = tuple(BrokerFailure(name, errors[name]) for name in sorted(errors))
    if not found and at >= len(topics) and not failures:
        raise SearchError(Problem.UNKNOWN_ID, topics=len(topics))
    found.sort(key=lambda each: (each.store_timestamp_ms, each.physical_offset))
    return IdPage(
        found=tuple(mask(each) for each in found),
        searched=min(at, len(topics)),
        topics=len(topics),
        next_topic="" if found or at >= len(topics) else topics[at],
        failures=failures,
    )


async def _all_topics(admin: Admin) -> list[str]:
    """The topics of programs, then all others."""
    first = await admin.topics()
    known = set(first)
    return first + [each for each in await admin.topics(is_all=True) if each not in known]


async def _ask_topics(
    verbs: MessageVerbs,
    admin: Admin,
    topics: list[str],
    key: str,
    errors: dict[str, ClientError],
    broker_s: float,
) -> list[ReceivedMessage]:
    """The messages that some topics have for an id; errors are added to those of before."""

    async def ask(topic: str) -> list[ReceivedMessage]:
        full = admin.client.with_namespace(topic)
        try:
            answers = await verbs.look_up(full, key, is_id=True, failed=errors, timeout_s=broker_s)
        except RouteNotFoundError:
            return []  # deleted meanwhile
        for name, error in answers.errors.items():
            errors.setdefault(name, error)
        return [message for found in answers.values.values() for message in found]

    def call(topic: str) -> Callable[[], Awaitable[list[ReceivedMessage]]]:
        return lambda: within(2 * broker_s, "the index", topic, lambda: ask(topic))

    answers = await ask_all({topic: call(topic) for topic in topics})
    for topic, error in answers.errors.items():
        errors.setdefault(topic, error)
    return [message for found in answers.values.values() for message in found]
