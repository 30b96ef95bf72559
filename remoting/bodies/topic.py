"""Settings of topics, tables of them, and lists of their names."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from enum import StrEnum
from typing import Any, Final

import msgspec

from .. import fastjson
from ..errors import RemoteProtocolError
from .base import Body, members_of, object_of
from .data_version import DataVersion
from .fields import Perm, QueueCount, ReadQueueCount, TopicSysFlag

PERM_PRIORITY: Final = 8
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
"""Bits of `perm`. INHERIT: new topics may be created with this one as the pattern.

Source: RocketMQ 5.5.0 PermName.
"""


class TopicFilterType(StrEnum):
    """The number of tags that a message may have; neither RocketMQ nor this broker uses it."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicConfig(Body):
    """The settings of a topic on one broker.

    Attributes:
      topic_name: its name; "" only in a body without it.
      read_queue_nums: number of queues to read from.
      write_queue_nums: number of queues to write to.
      perm: bits PERM_READ, PERM_WRITE, PERM_INHERIT.
      topic_filter_type: unused.
      topic_sys_flag: bits 1 unit, 2 unit subscription.
      order: its messages are ordered.
      attributes: such as "message.type": "FIFO" (5.x).
    Source: RocketMQ 5.5.0 TopicConfig.
    """

    topic_name: str = ""
    read_queue_nums: ReadQueueCount = 16
    write_queue_nums: QueueCount = 16
    perm: Perm = PERM_READ | PERM_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: TopicSysFlag = 0
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)

    def to_text(self, *, with_attributes: bool = True) -> str:
        """The line of a compressed registration: `name read write perm type [attributes]`.

        Args:
          with_attributes: as 5.x; false: as 4.x.
        """
        line = (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type}"
        )
        return f"{line} {fastjson.dumps(self.attributes).decode()}" if with_attributes else line

    @classmethod
    def from_text(cls, line: str) -> TopicConfig:
        """Read such a line, which has neither topic_sys_flag nor order.

        Raises: RemoteProtocolError: it has fewer than five words, or a word has a wrong form.
        """
        words = line.split(" ", 5)
        if len(words) < 5:
            raise RemoteProtocolError(f"not a topic's settings: {line[:64]!r}")
        tree: dict[str, object] = dict(zip(_WORDS_OF_TEXT, words, strict=False))
        if len(words) == 6 and words[5]:
            tree["attributes"] = fastjson.loads(words[5])
        return cls.from_tree(tree)


STEP_SIZE: Final = 64 * 1024
"""Bytes up to which a table is read in one step, some 0.3 ms."""
TOPICS_PER_STEP: Final = 1_000
"""Topics of a table that are converted per step, some 3 ms."""

_TABLE: Final = "topicConfigTable"

_WORDS_OF_TEXT: Final = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")


class TopicConfigSerializeWrapper(Body):
    """All topics of a broker: config/topics.json, answer 21, and a part of a registration.

    The members about static topics are of 5.x, where Java has them in a subclass; None: not
    written. Their tables are passed through without parsing.

    Attributes:
      topic_config_table: name to settings.
      mapping_data_version: version of the mapping tables, or None.
      topic_queue_mapping_info_map: the queues of static topics on this broker, or None.
      topic_queue_mapping_detail_map: the same with the history of each queue, or None.
    Source: RocketMQ 5.5.0 TopicConfigSerializeWrapper, TopicConfigAndMappingSerializeWrapper.
    """

    topic_config_table: dict[str, TopicConfig] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_info_map: dict[str, Any] | None = None
    topic_queue_mapping_detail_map: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse an unparsed mapping that is nested too deep to be written again."""
        fastjson.check_depth(self.topic_queue_mapping_info_map)
        fastjson.check_depth(self.topic_queue_mapping_detail_map)

    @classmethod
    def from_body_in_steps(cls, body: bytes) -> Generator[None, None, TopicConfigSerializeWrapper]:
        """As `Body.from_body_in_steps`, with TOPICS_PER_STEP topics a step: 8 MiB take 40 ms."""
        if len(body) <= STEP_SIZE:
            return cls.from_body(body)
        fastjson.check_size(body)
        yield
        members = members_of(body)
        table = None
        if members is not None and _TABLE in members:
            yield
            # The table is nearly all of the body; the rest is small and read at once.
            table = members_of(bytes(members.pop(_TABLE)))
        if members is None or table is None:
            return (yield from super().from_body_in_steps(body))
        wrapper = yield from super().from_body_in_steps(object_of(members))
        topics = iter(table.items())
        while part := dict(itertools.islice(topics, TOPICS_PER_STEP)):
            yield
            wrapper.topic_config_table.update(_read_topics(part))
        return wrapper

    @classmethod
    def from_tree_in_steps(cls, tree: object) -> Generator[None, None, TopicConfigSerializeWrapper]:
        """As `Body.from_tree_in_steps`, with TOPICS_PER_STEP topics a step."""
        table = tree.get(_TABLE) if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or not isinstance(table, dict):
            return cls.from_tree(tree)
        wrapper = cls.from_tree({**tree, _TABLE: {}})
        topics = iter(table.items())
        while part := dict(itertools.islice(topics, TOPICS_PER_STEP)):
            some = cls.from_tree({_TABLE: part})
            wrapper.topic_config_table.update(some.topic_config_table)
            yield
        return wrapper


def _read_topics(table: dict[str, msgspec.Raw]) -> dict[str, TopicConfig]:
    """Read some topics of a table. Raises: RemoteProtocolError: one is not a topic's settings."""
    text = b"[%b]" % b",".join(table.values())
    try:
        topics = msgspec.json.decode(text, type=list[TopicConfig])
    except msgspec.MsgspecError:
        whole = b'{"%b":%b}' % (_TABLE.encode(), object_of(table))
        return TopicConfigSerializeWrapper.from_body(whole).topic_config_table
    return dict(zip(table, topics, strict=True))


class CreateTopicListRequestBody(Body):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST (18)."""

    topic_config_list: list[TopicConfig] = msgspec.field(default_factory=list)


class TopicList(Body):
    """Names of topics: answers 206, 224, 304, 305, 311 to 313.

    Attributes:
      topic_list: the names, each once.
      broker_addr: "host:port" of some broker; answer 304 only.
    """

    topic_list: list[str] = msgspec.field(default_factory=list)
    broker_addr: str | None = None
