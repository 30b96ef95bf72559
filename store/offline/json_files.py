"""Reading and correcting the broker's state files, config/*.json.

A text may end with a seal, the checksum in blanks of `store.disk.json_config`; Apache's files have
none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...disk.json_config import parse, unsealed
from ...disk.os_disk import Disk
from ...disk.position import START
from ...remoting import fastjson

CONSUMER_OFFSETS = "consumerOffset.json"
DELAY_OFFSETS = "delayOffset.json"
TOPICS = "topics.json"

WITHOUT_EXTENSION: Final = {"transactionMetrics", "timermetrics"}
"""Apache's JSON files with another extension."""


class JsonFile(NamedTuple):
    """One file.

    Attributes:
      text: its content, without the checksum.
      tree: the object; None if there is none.
      problem: why there is no object, or that the checksum is wrong; "" if all is well.
    """

    text: bytes
    tree: dict[str, Any] | None
    problem: str


def is_json_name(name: str) -> bool:
    """Whether a file of config/ holds JSON, by its name."""
    return name.endswith(".json") or name in WITHOUT_EXTENSION


def read_json(disk: Disk, path: str) -> JsonFile:
    """Read one file.

    Raises:
      StoreIOError: it cannot be read.
    """
    file = disk.open(path)
    try:
        raw = file.pread(file.size(), START)
    finally:
        file.close()
    text, is_right = unsealed(raw)
    if is_right is False:
        return JsonFile(text, None, "its checksum is wrong")
    if not text.strip(b"\0 \r\n\t"):
        return JsonFile(text, None, "it is empty")
    try:
        return JsonFile(text, parse(text), "")
    except ValueError as error:
        return JsonFile(text, None, str(error))


def consumer_offsets(tree: Mapping[str, Any]) -> dict[tuple[str, str, int], int]:
    """(topic, group, queue id) to the offset, of consumerOffset.json.

    Raises:
      ValueError: it is no such table.
    """
    found = {}
    try:
        for key, offsets in (tree.get("offsetTable") or {}).items():
            topic, _, group = str(key).partition("@")
            for queue_id, offset in offsets.items():
                found[topic, group, int(queue_id)] = int(offset)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"not a table of consumer offsets: {error}") from error
    return found


def delay_offsets(tree: Mapping[str, Any]) -> dict[int, int]:
    """Delay level to the offset in its queue, of delayOffset.json.

    Raises:
      ValueError: it is no such table.
    """
    try:
        table = tree.get("offsetTable") or {}
        return {int(level): int(offset) for level, offset in table.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"not a table of delay offsets: {error}") from error


def topic_names(tree: Mapping[str, Any]) -> frozenset[str]:
    """The configured topics, of topics.json.

    Raises:
      ValueError: it is no such table.
    """
    table = tree.get("topicConfigTable") or {}
    if not isinstance(table, dict):
        raise ValueError("topicConfigTable is not an object")
    return frozenset(str(name) for name in table)


def clamp_consumers(tree: dict[str, Any], end_of: Callable[[str, int], int | None]) -> int:
    """Set consumer offsets after a queue's end back to it.

    Args:
      tree: of consumerOffset.json; changed.
      end_of: (topic, queue id) to the offset behind its last message; None if there is no such
          queue.

    Returns: how many were set back.

    Raises:
      ValueError: it is no such table.
    """
    count = 0
    table: dict[str, dict[int, int]] = {}
    for (topic, group, queue_id), offset in consumer_offsets(tree).items():
        end = end_of(topic, queue_id)
        right = offset if end is None else min(offset, end)
        count += right != offset
        key = f"{topic}@{group}" if group else topic
        table.setdefault(key, {})[queue_id] = right
    tree["offsetTable"] = table
    return count


def clamp_delays(tree: dict[str, Any], end_of: Callable[[int], int]) -> int:
    """Set delivery offsets after the end of a level's queue back to it; see `clamp_consumers`.

    Args:
      end_of: delay level to the offset behind its queue's last message.
    """
    count = 0
    table = {}
    for level, offset in delay_offsets(tree).items():
        table[level] = min(offset, end_of(level))
        count += table[level] != offset
    tree["offsetTable"] = table
    return count


def encode(tree: Mapping[str, Any]) -> bytes:
    """An object as fastjson writes it, with bare whole numbers as keys."""
    return fastjson.dumps(tree, quote_int_keys=False)
