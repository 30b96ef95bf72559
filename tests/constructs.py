"""The project's layouts as declarations of construct: slow, whole and independent parsers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import construct

from trocket.remoting import record_schema
from trocket.remoting.schema import Format, Layout

_NUMBERS: Final = {
    "b": construct.Int8sb,
    "B": construct.Int8ub,
    "h": construct.Int16sb,
    "H": construct.Int16ub,
    "i": construct.Int32sb,
    "I": construct.Int32ub,
    "q": construct.Int64sb,
}


class _Chosen(construct.Construct):  # type: ignore[misc]
    """A field whose format depends on the values of earlier ones."""

    def __init__(self, choose: Callable[[Any], str]) -> None:
        super().__init__()
        self._choose = choose

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        return _field(self._choose(context))._parsereport(stream, context, path)

    def _build(self, value: Any, stream: Any, context: Any, path: str) -> Any:
        return _field(self._choose(context))._build(value, stream, context, path)

    def _sizeof(self, context: Any, path: str) -> int:
        return int(_field(self._choose(context))._sizeof(context, path))


def _field(format_: Format) -> construct.Construct:
    if not isinstance(format_, str):
        return _Chosen(format_)
    size = re.fullmatch(r"(\d+)s", format_)
    return construct.Bytes(int(size[1])) if size else _NUMBERS[format_]


def as_construct(layout: Layout) -> construct.Struct:
    """The declaration that construct parses and builds."""
    return construct.Struct(*(name / _field(kind) for name, kind in layout.fields.items()))


RECORD: Final = as_construct(record_schema.RECORD)
BATCH_ENTRY: Final = as_construct(record_schema.BATCH_ENTRY)

_PIECE: Final = construct.Prefixed(construct.Int32ub, construct.GreedyBytes)
REGISTER_BROKER_BODY: Final = construct.Struct(
    "data_version" / _PIECE,  # JSON
    "topic_configs" / construct.PrefixedArray(construct.Int32ub, _PIECE),  # TopicConfig.to_text
    "filter_servers" / _PIECE,  # JSON
    # 5.x only; JSON.
    "mappings" / construct.Optional(construct.PrefixedArray(construct.Int32ub, _PIECE)),
)
"""The pieces inside the zlib stream of a registration.

Source: RocketMQ 5.3.3 remoting/protocol/body/RegisterBrokerBody.java; recordings."""
