"""ConsumerFilterData: one group's SQL92 filter for one topic, and the file `consumerFilter.json`.

Java counterpart: broker/filter/ConsumerFilterData.java and what ConsumerFilterManager.java encodes
and decodes of 5.3.3; the file is the same in 4.9.7 and 5.5.0. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ...common.sql92.expression import Expression
from ...disk.json_config import parse
from ..tables.config_text import Json, Written, pretty

SQL92: Final = "SQL92"
"""The only type of expression besides tags. Source: common/filter/ExpressionType.java."""


@dataclass(frozen=True, slots=True)
class ConsumerFilterData:
    """The filter of one group for one topic; immutable.

    Attributes:
      group, topic: the subscription's.
      text: the expression as the user wrote it.
      client_version: the `sub_version` of the subscription that it belongs to.
      expression: compiled; None: the text does not compile.
      positions: its bits in the bit maps of messages.
      born_ms: every message that is stored later was evaluated with it, if it has a bit map.
      dead_ms: when its group left, at least born_ms; 0: the group is connected. A dead filter is
        still evaluated, so that born_ms stays true when its group returns.
    """

    group: str
    topic: str
    text: str
    client_version: int
    expression: Expression | None
    positions: tuple[int, ...] = ()
    born_ms: int = 0
    dead_ms: int = 0

    @property
    def is_dead(self) -> bool:
        """Whether no client of the group subscribes to it. Source: ConsumerFilterData.isDead."""
        return self.dead_ms != 0


class StoredBloomData(msgspec.Struct, rename="camel", frozen=True):
    """`bloomFilterData` of the file. Source: BloomFilterData.java."""

    bit_num: int = 0
    bit_pos: list[int] | None = None


class StoredFilter(msgspec.Struct, rename="camel", frozen=True):
    """One filter in the file; its `dead` is left out because it follows from the two times."""

    consumer_group: str
    topic: str
    expression: str | None = None
    expression_type: str | None = None
    born_time: int = 0
    dead_time: int = 0
    client_version: int = 0
    bloom_filter_data: StoredBloomData | None = None


class _StoredTopic(msgspec.Struct, rename="camel", frozen=True):
    group_filter_data: dict[str, StoredFilter | None] = {}


class _StoredTable(msgspec.Struct, rename="camel", frozen=True):
    filter_data_by_topic: dict[str, _StoredTopic | None] = {}


def decode_filters(text: bytes) -> list[StoredFilter]:
    """The filters of a file, in its order.

    Raises: ValueError: the text is not a table of filters.
    """
    try:
        table = msgspec.convert(parse(text), _StoredTable)
    except (ValueError, msgspec.ValidationError) as error:
        raise ValueError(f"not a table of consumer filters: {error}") from error
    return [
        data
        for topic in table.filter_data_by_topic.values()
        if topic is not None
        for data in topic.group_filter_data.values()
        if data is not None
    ]


def encode_filters(topics: Mapping[str, Iterable[ConsumerFilterData]], bit_count: int) -> bytes:
    """The text of the file.

    Args:
      topics: the filters that could be compiled, by topic.
      bit_count: of the bit maps.
    """
    table: dict[str, Json] = {
        topic: {"groupFilterData": {data.group: _tree(data, bit_count) for data in filters},
                "topic": topic}
        for topic, filters in topics.items()
    }  # fmt: skip
    return pretty({"filterDataByTopic": table})


def filter_text(data: ConsumerFilterData | None, bit_count: int) -> str:
    """A filter as RocketMQ shows it to administrators: an entry of the file, "null" if it is None.

    Args:
      bit_count: of the bit maps.
    """
    return "null" if data is None else pretty(_tree(data, bit_count)).decode()


def _tree(data: ConsumerFilterData, bit_count: int) -> dict[str, Json]:
    positions: Any = Written((f"[{','.join(map(str, data.positions))}]".encode(),))
    return {
        "bloomFilterData": {"bitNum": bit_count, "bitPos": positions},
        "bornTime": data.born_ms,
        "clientVersion": data.client_version,
        "consumerGroup": data.group,
        "dead": data.is_dead,
        "deadTime": data.dead_ms,
        "expression": data.text,
        "expressionType": SQL92,
        "topic": data.topic,
    }
