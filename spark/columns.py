"""The columns of each table, and a user's schema checked against them. Pure.

Types are Spark's DDL; every column may be null. A user's schema selects columns and their order,
which is the only projection of Spark's Python sources: other columns are not decoded.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

from .errors import OptionError, nearest

PROPERTIES_MAP: Final = "map<string,string>"


class PropertiesAs(enum.Enum):
    """The type of the column `properties`."""

    MAP = "map"
    STRING = "string"
    """The text as in the record, for jobs of the rocketmq-spark connector."""


MESSAGE: Final[Mapping[str, str]] = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "body": "binary",
    "keys": "string",
    "tags": "string",
    "uniqKey": "string",
    "properties": PROPERTIES_MAP,
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "storeHost": "string",
    "msgId": "string",
    "reconsumeTimes": "int",
    "sysFlag": "int",
    "flag": "int",
    "bodyCrc": "int",
    "commitLogOffset": "bigint",
    "preparedTransactionOffset": "bigint",
}
"""A message, from a broker or from a store's files."""

COMMITLOG: Final[Mapping[str, str]] = {
    **MESSAGE,
    "segment": "string",
    "position": "bigint",
    "size": "int",
    "magic": "int",
    "valid": "boolean",
    "topicKind": "string",
}
"""A message and its place: the file, the position in it, the size in bytes."""

CORRUPT: Final[Mapping[str, str]] = {"_corrupt": "string", "_raw": "binary"}
"""With mode=permissive: why a row is not a valid record, and its first bytes."""

_BROKER: Final = {"brokerName": "string"}


def of_messages(columns: Mapping[str, str], properties_as: PropertiesAs) -> Mapping[str, str]:
    """The columns of messages, with the requested type of `properties`."""
    return columns if properties_as is PropertiesAs.MAP else {**columns, "properties": "string"}


TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "commitlog": COMMITLOG,
    "consumequeue": {
        **_BROKER,
        "topic": "string",
        "queueId": "int",
        "queueOffset": "bigint",
        "commitLogOffset": "bigint",
        "size": "int",
        "tagsCode": "bigint",
        "segment": "string",
    },
    "index": {
        **_BROKER,
        "keyHash": "int",
        "commitLogOffset": "bigint",
        "storeTimestamp": "timestamp",
        "slot": "int",
        "prev": "int",
        "segment": "string",
        "number": "int",
    },
    "consumeroffsets": {
        **_BROKER,
        "group": "string",
        "topic": "string",
        "queueId": "int",
        "offset": "bigint",
    },
    "topics": {
        **_BROKER,
        "topic": "string",
        "readQueueNums": "int",
        "writeQueueNums": "int",
        "perm": "int",
        "order": "boolean",
        "topicSysFlag": "int",
        "attributes": PROPERTIES_MAP,
    },
    "delayoffsets": {**_BROKER, "delayLevel": "int", "offset": "bigint"},
    "checkpoint": {
        **_BROKER,
        "physicMsgTimestamp": "timestamp",
        "logicsMsgTimestamp": "timestamp",
        "indexMsgTimestamp": "timestamp",
        "masterFlushedOffset": "bigint",
        "confirmPhyOffset": "bigint",
        "dispatchedOffset": "bigint",
        "abort": "boolean",
    },
}
"""The tables of `rocketmq-store`."""


def ddl(columns: Mapping[str, str]) -> str:
    """Columns as Spark reads them: "`topic` string, `queueId` int"."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def pick(wanted: Iterable[tuple[str, str]], columns: Mapping[str, str], what: str) -> list[str]:
    """The names of a user's columns, in the user's order.

    Args:
      wanted: (name, type as DDL) of each.
      columns: the columns of the table.
      what: the table's name, for error messages.

    Raises:
      OptionError: the table has no such column, or with another type.
    """
    names = []
    for name, kind in wanted:
        known = columns.get(name)
        if known is None:
            raise OptionError(
                f"the schema asks for a column {name!r}, which {what} does not have"
                f"{nearest(name, columns)}"
            )
        if kind != known:
            raise OptionError(
                f"the schema has {name} {kind}, but in {what} it is {name} {known}: use that, and"
                " cast afterwards"
            )
        names.append(name)
    return names
