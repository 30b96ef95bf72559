"""Needs: how a request's header and body tell what it must be allowed to do.

A need is data: parts, each of which reads a request's header or body and gives contexts (a resource
and the actions of which one is enough). All contexts of a request must be allowed. `need_tables.py`
has the needs of all codes.

A header's field is read as the processors' typed headers read it, by its wire name. A missing name
becomes "", which only rules for all resources of its type match.

Retried messages belong to their group: for a topic `%RETRY%g` the need is one for the group g. The
retry topic of a pop consumer, `%RETRY%g+t` or `%RETRY%g_t`, needs the group and the topic. Since
`g_t` may be a group as well, and `%RETRY%a_b_c` the topic of several pairs, a name that can be
divided in several ways needs the rights of each that the server knows (`owners_of`).

Java counterpart: RocketMQ 5.5.0 auth/…/DefaultAuthorizationContextBuilder.java and the annotations
RocketMQAction and RocketMQResource of remoting/protocol/header. docs/quirks.md has the differences:
codes that RocketMQ leaves open. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ..common.topic_names import RETRY_TOPIC_PREFIX, TRANS_HALF_TOPIC
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .model import Action, Resource, ResourcePattern, ResourceType

REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
"""After the cluster's name: the topic of replies. Source: MixAll.REPLY_TOPIC_POSTFIX."""


def never(_: str, __: str) -> bool:
    """A right is needed for every topic."""
    return False


def is_reply_topic(topic: str, cluster: str) -> bool:
    """Whether it is the topic that clients name in every reply; with RocketMQ no reply needs a
    right, whatever its topic, although the broker may store it there."""
    return topic == cluster + REPLY_TOPIC_SUFFIX


def is_half_topic(topic: str, _: str) -> bool:
    """Whether it is the topic of half messages: clients of 5.x name it where they end a
    transaction that the broker asked about. The message itself tells for which topic it is."""
    return topic == TRANS_HALF_TOPIC


class Context(NamedTuple):
    """A resource of a request, and the actions of which one is enough."""

    resource: Resource
    actions: tuple[Action, ...]


class Places(NamedTuple):
    """What a server tells the needs.

    Attributes:
      topic_at: gives the topic of the message at an offset of the log; None if there is no message.
        That of a half or a delayed message is the topic that it is for.
      has_group: whether there is a consumer group of that name. A server that does not know says
        yes: then a name that may be a group's needs the right to that group.
      has_topic: whether there is a topic of that name.
    """

    cluster: str
    topic_at: Callable[[int], str | None] = lambda offset: None
    has_group: Callable[[str], bool] = lambda group: True
    has_topic: Callable[[str], bool] = lambda topic: False


class Part(Protocol):
    """One part of a need."""

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The header's fields on which the contexts depend; None: on more than these."""

    def contexts(self, request: RemotingCommand, places: Places) -> Iterable[Context]:
        """The contexts of a request. Raises: RemoteProtocolError, RequestRefused: no such body."""


def topic_of(name: str) -> Resource:
    """A topic of a request."""
    return Resource(ResourceType.TOPIC, name)


def group_of(name: str) -> Resource:
    """A group of a request."""
    return Resource(ResourceType.GROUP, name)


class Owner(NamedTuple):
    """Whose messages a retry topic has.

    Attributes:
      topic: that the group pops; "": the topic has all retried messages of the group.
    """

    group: str
    topic: str = ""


def owners_of(name: str, group: str, places: Places) -> list[Owner]:
    """All to whom the messages of the retry topic `%RETRY%name` may belong.

    The groups that exist tell how a name is divided; the group that a request names does not,
    because the sender chooses it.

    Args:
      name: of the retry topic, without its prefix.
      group: the group that the request names; "": none.
    """
    of_group, plus, of_topic = name.partition("+")  # no group's and no topic's name has one
    if plus:
        return [Owner(of_group, of_topic)]
    is_group = places.has_group(name)
    if group and name.startswith(f"{group}_"):
        found = [Owner(group, name[len(group) + 1 :])]
        if is_group:
            found.append(Owner(name))
    else:
        found = [Owner(name)]
        if is_group:
            return found
    pieces = name.split("_")
    for count in range(1, len(pieces)):
        other = Owner("_".join(pieces[:count]), "_".join(pieces[count:]))
        is_known = places.has_topic(other.topic) and places.has_group(other.group)
        if is_known and other not in found:
            found.append(other)
    return found


def is_divisible(topic: str) -> bool:
    """Whether it depends on the groups that exist to whom a topic belongs."""
    return topic.startswith(RETRY_TOPIC_PREFIX) and "_" in topic and "+" not in topic


def topic_contexts(
    topic: str,
    group: str,
    actions: tuple[Action, ...],
    retry_actions: tuple[Action, ...],
    places: Places,
) -> Iterator[Context]:
    """The contexts of a topic, which may be a retry topic.

    Args:
      group: the group that the request names; "": none.
      actions: for a topic.
      retry_actions: for the group of a retry topic.
    """
    if not topic.startswith(RETRY_TOPIC_PREFIX):
        yield Context(topic_of(topic), actions)
        return
    for owner in owners_of(topic[len(RETRY_TOPIC_PREFIX) :], group, places):
        yield Context(group_of(owner.group), retry_actions)
        if owner.topic:
            yield Context(topic_of(owner.topic), retry_actions)


@dataclass(frozen=True, slots=True)
class OnCluster:
    """The server's cluster."""

    actions: tuple[Action, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        return ()

    def contexts(self, request: RemotingCommand, places: Places) -> Iterable[Context]:
        return (Context(Resource(ResourceType.CLUSTER, places.cluster), self.actions),)


@dataclass(frozen=True, slots=True)
class OnAll:
    """All resources of a type, as lists of them need it."""

    type: ResourceType
    actions: tuple[Action, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        return ()

    def contexts(self, request: RemotingCommand, places: Places) -> Iterable[Context]:
        return (Context(Resource(self.type, "", ResourcePattern.ANY), self.actions),)


@dataclass(frozen=True, slots=True)
class OnTopic:
    """The topic that a field names.

    Attributes:
      field: its wire name.
      retry_actions: for the group of a retry topic; (): as `actions`.
      group_field: names the request's group; "" if there is none.
      is_optional: whether the field may be missing; then there is no context.
      separator: between several topics; "": there is one.
      is_open: tells by a topic and the server's cluster whether no right is needed.
    """

    field: str
    actions: tuple[Action, ...]
    retry_actions: tuple[Action, ...] = ()
    group_field: str = ""
    is_optional: bool = False
    separator: str = ""
    is_open: Callable[[str, str], bool] = never

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field, self.group_field) if self.group_field else (self.field,)

    def contexts(self, request: RemotingCommand, places: Places) -> Iterable[Context]:
        fields = request.ext_fields
        group = fields.get(self.group_field, "") if self.group_field else ""
        for topic in _names(fields, self.field, self.separator, is_optional=self.is_optional):
            if self.is_open(topic, places.cluster):
                continue
            yield from topic_contexts(
                topic, group, self.actions, self.retry_actions or self.actions, places
            )


@dataclass(frozen=True, slots=True)
class OnGroup:
    """The group that a field names; see `OnTopic`."""

    field: str
    actions: tuple[Action, ...]
    is_optional: bool = False
    separator: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    def contexts(self, request: RemotingCommand, places: Places) -> Iterable[Context]:
        names = _names(request.ext_fields, self.field, self.separator, is_optional=self.is_optional)
        return [Context(group_of(name), self.actions) for name in names]


@dataclass(frozen=True, slots=True)
class OnMessage:
    """The topic of the stored message that a request names.

    RocketMQ trusts the request's own word for the topic, or asks for nothing. Where there is no
    message, and where the user lacks the right, the answer is the same: otherwise anyone could find
    out where messages of which topics are.

    Attributes:
      offset_of: gives the message's offset in the log, read as the processor reads it; it may raise
        RequestRefused, RemoteProtocolError, LocalProtocolError, ValueError.
      missing: the processor's remark where no message is; `{offset}` stands for the offset.
    """

    offset_of: Callable[[RemotingCommand], int]
    actions: tuple[Action, ...]
    missing: str

    @property
    def fields(self) -> None:
        return None

    def contexts(self, request: RemotingCommand, places: Places) -> Iterable[Context]:
        """Raises also: RequestRefused: there is no message."""
        topic = places.topic_at(self.offset_of(request))
        if topic is None:
            raise self.refusal(request)
        return topic_contexts(topic, "", self.actions, self.actions, places)

    def refusal(self, request: RemotingCommand) -> RequestRefused:
        """The answer where there is no message that the user may know of."""
        text = self.missing.format(offset=self.offset_of(request))
        return RequestRefused(ResponseCode.SYSTEM_ERROR, text)


@dataclass(frozen=True, slots=True)
class InBody:
    """What a function finds in the body."""

    find: Callable[[RemotingCommand, Places], Iterable[Context]]

    @property
    def fields(self) -> None:
        return None

    def contexts(self, request: RemotingCommand, places: Places) -> Iterable[Context]:
        return self.find(request, places)


Need = tuple[Part, ...]
"""Parts whose contexts must all be allowed; (): any user that proves its name."""


def _names(
    fields: Mapping[str, str], field: str, separator: str, *, is_optional: bool
) -> Iterable[str]:
    value = fields.get(field)
    if is_optional and (value is None or not value.strip()):
        return ()
    if value is None:
        return ("",)
    return [name for name in value.split(separator) if name.strip()] if separator else (value,)
