"""Facts about a message, before anything is concluded from them: frozen values.

Names are without the client's namespace, times in ms since 1970, offsets in messages, those of the
commit log in bytes. None: it is not known.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from ...client import InvisibleMessage, MessageTrace, SubscriptionInfo


class LookUpResult(StrEnum):
    """How the search for a message ended."""

    FOUND = "FOUND"
    NO_ID = "NO_ID"
    """The text is not the id of a message."""
    NOT_FOUND = "NOT_FOUND"
    """No broker that answered has a message with this id."""
    FOREIGN_BROKER = "FOREIGN_BROKER"
    """The id names a broker that the name servers do not know."""
    DELETED = "DELETED"
    """The id points before the first byte of its broker's log."""
    BEYOND_LOG = "BEYOND_LOG"
    """The id points behind the last byte of its broker's log."""
    NO_TOPIC = "NO_TOPIC"
    """There is no topic of the name that was given."""
    SILENT = "SILENT"
    """Brokers that may have it, or the name servers, did not answer."""
    REFUSED = "REFUSED"
    """A broker answered with an error, such as that the client may not read the topic."""


class LookUp(msgspec.Struct, frozen=True, rename="camel"):
    """The search for a message.

    Attributes:
      message_id: as it was asked for, without blanks around it.
      topic: the topic that was searched; "": all, or the id says where.
      address: `host:port` of the broker that the id names; "": it names none.
      offset: where the id points in this broker's log.
      log_begin, log_end: the range of this log.
      text: the error's, in English; "": there is none.
    """

    message_id: str
    result: LookUpResult
    topic: str = ""
    address: str = ""
    offset: int | None = None
    log_begin: int | None = None
    log_end: int | None = None
    text: str = ""


class SlaveFacts(msgspec.Struct, frozen=True, rename="camel"):
    """How far a slave of the message's broker is: the end of its log."""

    broker_id: int
    address: str
    log_end: int | None


class Retention(msgspec.Struct, frozen=True, rename="camel"):
    """The settings by which a broker deletes files of its log.

    Attributes:
      file_size: bytes of a file (mappedFileSizeCommitLog).
      reserved_hours: how long a file is kept after its last change (fileReservedTime).
      delete_hours: hours of the broker's day at which it deletes (deleteWhen), such as "04".
    """

    file_size: int
    reserved_hours: int
    delete_hours: str


class MessageFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A message and its place.

    Attributes:
      message_id: the producer's id, or the broker's where it has none.
      unique_key: the producer's id; "": none, so copies of the message cannot be looked for.
      offset_message_id: the broker's id.
      topic: the topic that it was sent to.
      stored_topic: where it is now: `topic`, or a topic of RocketMQ's for delayed and half
        messages.
      queue_offset: in `stored_topic`.
      physical_offset, size: its record in the commit log.
      tags: None: it has none.
      due_ms: when it is to be put into its topic; None: it is there, or it is a half message.
      is_half: it waits for the end of its transaction.
      is_intact: its body has the CRC that is stored with it.
      log_begin, log_end: the range of its broker's log.
      queue_begin, queue_end: the range of its queue.
      unit_offset: where the unit of its queue at its offset points, in bytes; -1: there is none.
      unit_code: the tag code of this unit.
      is_indexed: it is found by its unique key, or by its first key.
      slaves: of its broker, by id.
      retention: its broker's settings.
    """

    message_id: str
    unique_key: str
    offset_message_id: str
    topic: str
    stored_topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    tags: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    reconsume_times: int = 0
    due_ms: int | None = None
    is_half: bool = False
    is_intact: bool | None = None
    log_begin: int | None = None
    log_end: int | None = None
    queue_begin: int | None = None
    queue_end: int | None = None
    unit_offset: int | None = None
    unit_code: int | None = None
    is_indexed: bool | None = None
    slaves: tuple[SlaveFacts, ...] = ()
    retention: Retention | None = None

    @property
    def is_in_topic(self) -> bool:
        """Whether it was put into the topic that it was sent to."""
        return self.stored_topic == self.topic


class MemberFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A connected member of a group, as it says itself.

    Attributes:
      subscription: to the message's topic; None: it has none, or it did not say.
      is_silent: it did not answer.
      has_queue: it holds the message's queue now.
      started_ms: when it started, by its clock.
    """

    client_id: str
    subscription: SubscriptionInfo | None
    is_silent: bool = False
    has_queue: bool = False
    started_ms: int | None = None


class CopyKind(StrEnum):
    """Why there is a copy of a message."""

    RETRY = "RETRY"
    """In the group's retry topic."""
    SCHEDULED = "SCHEDULED"
    """Waiting for its time, to be put into the group's retry topic."""
    DEAD_LETTER = "DEAD_LETTER"


class CopyFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A copy of a message that a failed delivery made.

    Attributes:
      topic: where it is.
      attempt: of the delivery that follows, the first one being 1; of a dead letter: how many
        deliveries there were.
      due_ms: when it is put into the retry topic; None: it is there, or the time is unknown.
      committed: the group's offset in its queue; None: none, or unknown.
    """

    kind: CopyKind
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    store_ms: int
    attempt: int
    due_ms: int | None = None
    committed: int | None = None


class GroupFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A group, as far as it has to do with the message.

    Attributes:
      has_offset: it committed in the message's queue; None: unknown.
      committed: its offset there.
      rate: messages of all topics that it reads per second, on the message's broker.
      behind_queues: its queues on this broker in which messages wait; its rate is shared by them.
      is_online: a member is connected; None: unknown.
      members: the connected ones, sorted by id.
      subscription: to the topic, as the broker has it for the whole group: the latest heartbeat's.
      message_model, consume_type: as in GroupClients.
      copies: of the message, the newest last; None: not looked for.
      pops: of the message and its copies, not acknowledged; None: not looked for.
    """

    group: str
    has_offset: bool | None = None
    committed: int | None = None
    rate: float | None = None
    behind_queues: int = 0
    is_online: bool | None = None
    members: tuple[MemberFacts, ...] = ()
    subscription: SubscriptionInfo | None = None
    message_model: str = ""
    consume_type: str = ""
    copies: tuple[CopyFacts, ...] | None = None
    pops: tuple[InvisibleMessage, ...] | None = None


class GapReason(StrEnum):
    """Why a part of a life is not known."""

    SILENT = "SILENT"
    """No answer in time."""
    REFUSED = "REFUSED"
    """The broker answered with an error."""
    NOT_SUPPORTED = "NOT_SUPPORTED"
    """A broker of 4.x does not serve the request."""
    LIMITED = "LIMITED"
    """More than is read at once."""
    NO_KEY = "NO_KEY"
    """The message has no unique key, by which its copies are looked for."""
    STOPPED = "STOPPED"
    """The broker is stopped, and only its files are read."""


class Gap(msgspec.Struct, frozen=True, rename="camel"):
    """Something that was asked for and is not known.

    Attributes:
      what: a name, such as "trace" or "members".
      of: the group or the broker that it is about; "": the message.
      text: the error's, in English; "": there is none.
    """

    what: str
    of: str
    reason: GapReason
    text: str = ""


class LifeFacts(msgspec.Struct, frozen=True, rename="camel"):
    """Everything that was learnt.

    Attributes:
      now_ms: the client's clock when it was collected.
      message: None: it was not found.
      trace: what clients reported; None: nothing.
      groups: sorted by name.
      other_groups: those of which only the offset was asked for, since they are many, sorted.
      gaps: what is not known.
    """

    now_ms: int
    look_up: LookUp
    message: MessageFacts | None = None
    trace: MessageTrace | None = None
    groups: tuple[GroupFacts, ...] = ()
    other_groups: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
