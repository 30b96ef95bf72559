"""Answers of gRPC as trees of plain values, in which what differs in each run is replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import Message

from ...common.clock import SystemClock
from ...remoting.errors import RemoteProtocolError
from ...remoting.recall_handle import RecallHandle
from ...remoting.receipt import Receipt
from ..wire_differ.normalise import CLOCK_SPAN_MS, REVIVE_QUEUES, Normaliser, Side, Tree

_CLOCK: Final = SystemClock()
_GOOGLE_TIMES: Final = ("Timestamp", "Duration")


def tree_of(message: Message) -> dict[str, Tree]:
    """The fields of a message that are set, by name; times in ms."""
    tree: dict[str, Tree] = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            tree[field.name] = dict(value)
        elif field.message_type is not None and _is_repeated(value):
            tree[field.name] = [_inner(item) for item in value]
        elif field.message_type is not None:
            tree[field.name] = _inner(value)
        elif isinstance(value, bytes):
            tree[field.name] = value.decode("utf-8", "backslashreplace")
        else:
            tree[field.name] = list(value) if _is_repeated(value) else value
    return tree


def _is_repeated(value: Any) -> bool:
    return not isinstance(value, (str, bytes, int, float, bool, Message))


def _inner(message: Message) -> Tree:
    if message.DESCRIPTOR.name in _GOOGLE_TIMES:
        return message.seconds * 1000 + message.nanos // 1_000_000  # type: ignore[attr-defined]
    return tree_of(message)


def call_tree(answers: Sequence[Message], status: str, details: str) -> Tree:
    """What is compared of a call: gRPC's status and its text, and the answers."""
    return {"grpc": status, "details": details, "answers": [tree_of(each) for each in answers]}


# ---- for every answer ----------------------------------------------------------------------


def _time(value: Tree) -> Tree:
    is_now = isinstance(value, int) and abs(value - _CLOCK.wall_ms()) <= CLOCK_SPAN_MS
    return "<now>" if is_now else value


def _handle(value: Tree) -> Tree:
    """A receipt handle: the time of its pop, the queue of the revive topic and the place in the log
    are replaced."""
    receipt, _, physical_offset = str(value).rpartition(" ")
    try:
        found = Receipt.from_text(receipt)
    except RemoteProtocolError:
        return value
    is_now = abs(found.pop_time - _CLOCK.wall_ms()) <= CLOCK_SPAN_MS
    if not is_now or not physical_offset.isdigit():
        return value
    if not (found.in_order or 0 <= found.revive_queue_id < REVIVE_QUEUES):
        return value
    queue = found.revive_queue_id if found.in_order else 0
    return f"{found._replace(pop_time=0, revive_queue_id=queue)} <place>"


def _recall_handle(value: Tree) -> Tree:
    try:
        handle = RecallHandle.from_text(str(value))
    except ValueError:
        return value
    return f"{handle.topic} {handle.broker_name} {handle.unique_key}"


_HOST: Final = re.compile(r"127\.0\.0\.1:\d+")


def _host(value: Tree) -> Tree:
    return "<a port of this machine>" if _HOST.fullmatch(str(value)) else value


_BY_NAME: Final = {
    "delivery_timestamp": _time,
    "born_timestamp": _time,
    "store_timestamp": _time,
    "receipt_handle": _handle,
    "recall_handle": _recall_handle,
    "born_host": _host,
    "store_host": _host,
}
"""What replaces the values of fields, wherever they are."""


def usual(tree: Tree, side: Side) -> Tree:
    """A tree in which times, handles and addresses are replaced."""
    return _changed(tree, "", side)


def _changed(tree: Tree, name: str, side: Side) -> Tree:
    if isinstance(tree, Mapping):
        if tree.keys() == {"host", "port"}:
            return _address(tree, side)
        return {key: _changed(value, key, side) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_changed(value, name, side) for value in tree]
    change = _BY_NAME.get(name)
    if change is not None:
        return change(tree)
    return _text(tree) if isinstance(tree, str) else tree


def _address(tree: Mapping[str, Tree], side: Side) -> Tree:
    address = f"{tree['host']}:{tree['port']}"
    return "<gRPC>" if address == side.broker_address else dict(tree)


_WRAPPED: Final = "org.apache.rocketmq.proxy.common.ProxyException: "
"""The name of the exception in which the proxy passes on some of its texts."""


def _text(text: str) -> str:
    return _HOST.sub("<address>", text).removeprefix(_WRAPPED)


# ---- for some ------------------------------------------------------------------------------


def durations(*paths: str) -> Normaliser:
    """A receipt's invisible time that was computed when the request came."""
    found = re.compile(r"invisible_time=\d+")
    return Normaliser("durations", paths, lambda value, _: found.sub("<time>", str(value)))


def any_value(*paths: str) -> Normaliser:
    """A value that the server chose, or one that depends on other scripts."""
    return Normaliser("any_value", paths, lambda value, _: "<some>")


def sorted_by_text(*paths: str) -> Normaliser:
    """A list whose order means nothing."""

    def change(value: Tree, _: Side) -> Tree:
        return sorted(value, key=repr) if isinstance(value, list) else value

    return Normaliser("sorted_by_text", paths, change)
