"""The search for a message by its id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from ...client import (
    Admin,
    BrokerFailure,
    BrokerInfo,
    BrokersError,
    ClientError,
    ConnectError,
    MessageTrace,
    NotFoundError,
    ReceivedMessage,
    RequestTimeoutError,
    RouteNotFoundError,
)
from ...common import message_properties as names
from ...common.topic_names import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_HALF_TOPIC,
    normal_topic,
)
from ...remoting.message_id import OffsetId
from ..message_search.by_id import IdPage, message_at, search_index
from ..message_search.ids import IdKind, MessageId, read_id
from ..message_search.problems import Problem, SearchError
from .facts import LookUp, LookUpResult

WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)
"""Where a message is before it is put into its topic."""


class Found(NamedTuple):
    """What a search found.

    Attributes:
      message: None: see `look_up`.
      brokers: all there are, or none if no name server answered.
    """

    look_up: LookUp
    message: ReceivedMessage | None = None
    brokers: tuple[BrokerInfo, ...] = ()


async def find_message(
    admin: Admin, message_id: str, topic: str | None, trace: MessageTrace | None = None
) -> Found:
    """Search for a message by its id.

    A broker that an id names is asked only if the name servers know it. A delayed message is found
    before it is due. Of an id of a copy, made by a failed delivery, it is the original that is
    found, if that is still there.

    Args:
      message_id: the producer's id, or the broker's.
      topic: for a producer's id; None: the one in `trace`, else all are searched.
      trace: what clients reported of the message.
    """
    wanted = id_of(message_id)
    if wanted is None:
        return Found(LookUp(message_id.strip(), LookUpResult.NO_ID))
    try:
        brokers = (await admin.cluster()).brokers
        if wanted.place is not None:
            found = await _at_place(admin, wanted, wanted.place, brokers)
        else:
            found = await _by_key(admin, wanted.text, topic, trace)
        if found.message is None:
            return found._replace(brokers=brokers)
        return Found(found.look_up, await _home(admin, found.message), brokers)
    except ClientError as error:
        # Errors with a meaning are read where they come from.
        is_silent = isinstance(error, ConnectError | RequestTimeoutError | BrokersError)
        result = LookUpResult.SILENT if is_silent else LookUpResult.REFUSED
        return Found(LookUp(wanted.text, result, topic or "", text=str(error)))


def id_of(text: str) -> MessageId | None:
    """The id that a text is; None: it is none. One that seems to be cut off is looked for, too."""
    try:
        return read_id(text)
    except SearchError as error:
        if error.problem in (Problem.EMPTY, Problem.HAS_SPACES):
            return None
        return MessageId(text.strip(), IdKind.OTHER)


_RESULTS: Final = {
    Problem.OTHER_CLUSTER: LookUpResult.FOREIGN_BROKER,
    Problem.DELETED: LookUpResult.DELETED,
    Problem.BEYOND_LOG: LookUpResult.BEYOND_LOG,
}
"""What a search by a broker's id comes to; all else is NOT_FOUND."""


async def _at_place(
    admin: Admin, wanted: MessageId, place: OffsetId, brokers: tuple[BrokerInfo, ...]
) -> Found:
    look_up = LookUp(
        wanted.text, LookUpResult.FOUND, address=wanted.address, offset=place.physical_offset
    )
    try:
        return Found(look_up, await message_at(admin, wanted, brokers))
    except SearchError as error:
        return Found(
            msgspec.structs.replace(
                look_up,
                result=_RESULTS.get(error.problem, LookUpResult.NOT_FOUND),
                log_begin=_number(error, "begin"),
                log_end=_number(error, "end"),
            )
        )
    except (ConnectError, RequestTimeoutError):
        return Found(msgspec.structs.replace(look_up, result=LookUpResult.SILENT))
    except ClientError as error:
        refused = LookUpResult.REFUSED
        return Found(msgspec.structs.replace(look_up, result=refused, text=str(error)))


def _number(error: SearchError, name: str) -> int | None:
    value = error.data.get(name)
    return value if isinstance(value, int) else None


async def _by_key(
    admin: Admin, message_id: str, topic: str | None, trace: MessageTrace | None
) -> Found:
    if topic is None and trace is not None and trace.sends:
        topic = trace.sends[0].topic
    look_up = LookUp(message_id, LookUpResult.FOUND, topic or "")
    text = ""
    try:
        if topic is None:
            return Found(look_up, await _in_all_topics(admin, message_id))
        return Found(look_up, await admin.message(message_id, topic))
    except RouteNotFoundError:
        result = LookUpResult.NO_TOPIC
    except (NotFoundError, SearchError):
        result = LookUpResult.NOT_FOUND
    except BrokersError as error:
        result, text = LookUpResult.SILENT, str(error)
    for each in WAITING_TOPICS:
        waiting = await _with_key(admin, each, message_id)
        if waiting is not None:
            return Found(look_up, waiting)
    return Found(msgspec.structs.replace(look_up, result=result, text=text))


async def _in_all_topics(admin: Admin, key: str) -> ReceivedMessage:
    """The first stored message with a key. Raises: SearchError: there is none. ClientError."""
    failures: dict[str, BrokerFailure] = {}
    next_topic = ""
    while True:
        page = await _index_step(admin, key, next_topic, failures)
        if page.found:
            return page.found[0]
        failures.update({each.broker_name: each for each in page.failures})
        next_topic = page.next_topic
        if not next_topic:
            what = f"looking for message {key}"
            raise BrokersError(what, failures.values(), len(failures), None)


async def _index_step(
    admin: Admin, key: str, next_topic: str, failures: Mapping[str, BrokerFailure]
) -> IdPage:
    """A step of the search; nothing found in its last one is no error if brokers were silent."""
    try:
        return await search_index(admin, key, next_topic=next_topic)
    except SearchError:
        if failures:
            return IdPage()
        raise


async def _with_key(admin: Admin, topic: str, key: str) -> ReceivedMessage | None:
    """The first message of a topic with this unique key; None: there is none.

    Raises: BrokersError: the brokers that answered have none, and others did not answer.
    """
    try:
        messages = await admin.messages_by_key(topic, key)
    except RouteNotFoundError:
        return None
    except BrokersError as error:
        found = _first(error.partial, key)
        if found is None:
            raise
        return found
    return _first(messages, key)


def _first(messages: Iterable[ReceivedMessage], key: str) -> ReceivedMessage | None:
    return next((each for each in messages if each.message_id == key), None)


async def _home(admin: Admin, found: ReceivedMessage) -> ReceivedMessage:
    """The message in its topic, of one that waits to be put there, or of a copy."""
    key = found.properties.get(names.PROPERTY_UNIQUE_KEY)
    topic = topic_of(admin, found)
    if key is None or topic == found.topic:
        return found
    try:
        return await _with_key(admin, topic, key) or found
    except ClientError:
        return found  # what was found is better than nothing


def topic_of(admin: Admin, message: ReceivedMessage) -> str:
    """The topic that a message was sent to, without namespace, wherever it is now."""
    properties = message.properties
    short = admin.client.without_namespace
    topic = message.topic
    if topic in WAITING_TOPICS:
        topic = short(properties.get(names.PROPERTY_REAL_TOPIC, topic))
    if topic.startswith(DLQ_TOPIC_PREFIX):
        origin = properties.get(names.PROPERTY_DLQ_ORIGIN_TOPIC) or properties.get(
            names.PROPERTY_RETRY_TOPIC, topic
        )
        return short(origin)
    if topic.startswith(RETRY_TOPIC_PREFIX):
        group = properties.get(names.PROPERTY_ORIGIN_GROUP, "")
        return short(properties.get(names.PROPERTY_RETRY_TOPIC) or normal_topic(topic, group))
    return topic


async def trace_of(admin: Admin, message_id: str, trace_topic: str = TRACE_TOPIC) -> MessageTrace:
    """`Admin.message_trace`, empty where nothing was reported. Raises: as it does."""
    try:
        return await admin.message_trace(message_id, trace_topic=trace_topic)
    except NotFoundError:
        return MessageTrace(message_id, (), (), (), ())
