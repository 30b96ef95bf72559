"""Pull: the parameters of a pull request, kept until it is answered.

It keeps only those parts of the request that the answer needs, so a pull that is held for minutes
keeps neither body nor fields. The steps before and after it are in `broker/pulling/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from ...common.sql92.expression import Expression
from ...remoting.channel import Channel
from ...remoting.codec import NO_EXT_FIELDS, RESPONSE_FLAG, RemotingCommand

Selector = frozenset[int] | Expression
"""The filter of a pull: tags codes, or an expression over the messages' properties."""

HOLD_MS_MAX: Final = 30 * 60 * 1000
"""The longest time for which a pull or pop may be held; RocketMQ accepts any number. Its clients
ask for 15 s, and never for more than their time-outs."""

Key = tuple[str, int]
"""Topic and queue id."""

TagsCodesSince = Callable[[Key, int], tuple[Collection[int] | None, int]]
"""Returns the tags codes of a queue's messages from an offset on, None if they are unknown, and the
queue's end."""

FILTER_TIME_MAX_S: Final = 0.01
"""How long one pull or pop may scan for messages that match its expression, which blocks the loop;
at least one message is read. The 800 of maxFilterMessageSize take 8 ms with a usual expression, a
single hostile message with a hostile one up to 25 ms. RocketMQ has no limit but the 800."""


def unknown_codes(key: Key, queue_offset: int) -> tuple[None, int]:
    return None, queue_offset


class PullTerms(msgspec.Struct, frozen=True, eq=False):
    """The part of a pull that further pulls of the same client repeat.

    Attributes:
      group: consumer group.
      topic: the topic.
      offset_key: of both in the tables of consumer offsets.
      count_max, size_max: messages and bytes of an answer at most.
    """

    group: str
    topic: str
    offset_key: str
    count_max: int
    size_max: int


class Pull(msgspec.Struct, frozen=True, eq=False):
    """One pull. A msgspec.Struct because its construction takes a third of a dataclass's time.

    Attributes:
      channel: the connection of the request, which gets the answer.
      opaque, serialize_type: of the request, for its answer.
      terms: group, topic and limits.
      queue_id, queue_offset: the first message wanted.
      selector: None: all messages are wanted.
    """

    channel: Channel
    opaque: int
    serialize_type: int
    terms: PullTerms
    queue_id: int
    queue_offset: int
    selector: Selector | None

    @property
    def place(self) -> tuple[str, int]:
        """Topic and queue id."""
        return self.terms.topic, self.queue_id

    def moved_to(self, queue_offset: int) -> Pull:
        """The same pull, from another offset on."""
        return Pull(
            self.channel, self.opaque, self.serialize_type, self.terms, self.queue_id,
            queue_offset, self.selector,
        )  # fmt: skip

    def answer(
        self, code: int, remark: str | None, ext_fields: Mapping[str, str] = NO_EXT_FIELDS
    ) -> RemotingCommand:
        """The response to the request, without a body."""
        return RemotingCommand(
            code,
            ext_fields,
            b"",
            remark,
            self.opaque,
            RESPONSE_FLAG,
            serialize_type=self.serialize_type,
        )
