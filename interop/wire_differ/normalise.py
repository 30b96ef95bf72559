"""Normalisers: replacements of values in which two equivalent answers differ.

A normaliser changes the values at some paths of a decoded answer; its docstring says why they
differ. All other values must be equal. A normaliser validates a value before it replaces it: a time
that is not the current one, or an id of another broker, stays and shows as a difference.

A path is a sequence of member names, such as `fields.msgId` or `body.*.store_timestamp_ms`; `*` is
any one member and a final `**` any further ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ...common.clock import SystemClock
from ...remoting.errors import RemoteProtocolError
from ...remoting.message_id import decode_offset_id
from ...remoting.recall_handle import RecallHandle
from ...remoting.receipt import Receipt

Tree: TypeAlias = object
"""A decoded answer: dicts with string keys, lists, strings, numbers, booleans and None."""

_CLOCK = SystemClock()
CLOCK_SPAN_MS = 3_600_000
"""Maximum distance from now of a time taken during a run."""

REVIVE_QUEUES: Final = 8
"""Queues of the revive topic, from 0: the default of reviveQueueNum."""

_JAVA_ERROR = re.compile(r"\b[A-Z]\w*(?:Exception|Error)\b|^java\.|Exception:|^Cannot invoke ")
_HEX_ID = re.compile(r"[0-9A-F]{32}|[0-9A-F]{56}")

_ENTRY_QUEUE: Final = re.compile(r"^(\d) \d+ (?!.*;)")
"""Form and queue of an entry that is the only one."""
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:E-?\d+)?")
_HELP_PAGE = re.compile(r"See https?://rocketmq\.apache\.org/\S+")


@dataclass
class Side:
    """One of the two clusters, with what normalisers need of it.

    Attributes:
      label: "trocket" or "apache-5.5.0".
      broker_address, namesrv_address: HOST:PORT.
      clients: HOST:PORT of the client's end of each connection, by the connection's name.
    """

    label: str
    broker_address: str
    namesrv_address: str
    clients: dict[str, str] = field(default_factory=dict)

    @property
    def is_apache(self) -> bool:
        return self.label.startswith(("apache", "docker"))

    def address_names(self) -> dict[str, str]:
        """Placeholders by address, as used in normalised answers."""
        host, _, port = self.broker_address.rpartition(":")
        names = {address: f"<client {name}>" for name, address in self.clients.items()}
        names[self.broker_address] = "<broker>"
        names[self.namesrv_address] = "<name server>"
        names[f"{host}:{int(port) + 1}"] = "<broker for slaves>"
        return names


@dataclass(frozen=True)
class Normaliser:
    """Changes the values at some paths of an answer.

    Attributes:
      name: of the function that created it.
      paths: none: the whole answer.
      change: called with each value and the side of the answer.
    """

    name: str
    paths: tuple[str, ...]
    change: Callable[[Tree, Side], Tree]

    def apply(self, tree: Tree, side: Side) -> Tree:
        """A tree with the values at the paths changed."""
        if not self.paths:
            return self.change(tree, side)
        for path in self.paths:
            tree = _changed(tree, tuple(path.split(".")), self.change, side)
        return tree


def matches(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if pattern and pattern[-1] == "**":
        return len(path) >= len(pattern) - 1 and matches(path[: len(pattern) - 1], pattern[:-1])
    return len(path) == len(pattern) and all(
        want in ("*", have) for have, want in zip(path, pattern, strict=True)
    )


def _changed(
    tree: Tree, pattern: tuple[str, ...], change: Callable[[Tree, Side], Tree], side: Side
) -> Tree:
    if not pattern:
        return change(tree, side)
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        return change(_changed_inside(tree, ("**",), change, side, "*"), side)
    return _changed_inside(tree, rest, change, side, first)


def _changed_inside(
    tree: Tree,
    rest: tuple[str, ...],
    change: Callable[[Tree, Side], Tree],
    side: Side,
    wanted: str,
) -> Tree:
    if isinstance(tree, dict):
        return {
            name: _changed(value, rest, change, side) if wanted in ("*", name) else value
            for name, value in tree.items()
        }
    if isinstance(tree, list):
        return [
            _changed(value, rest, change, side) if wanted in ("*", str(index)) else value
            for index, value in enumerate(tree)
        ]
    return tree


# ---- for every answer ----------------------------------------------------------------------


def own_addresses() -> Normaliser:
    """Both clusters run on this machine with different ports: placeholders replace addresses."""

    def change(tree: Tree, side: Side) -> Tree:
        names = side.address_names()
        found = re.compile("|".join(rf"{re.escape(address)}(?!\d)" for address in names))
        return _texts(tree, lambda text: found.sub(lambda match: names[match.group()], text))

    return Normaliser("own_addresses", (), change)


def sender_identity() -> Normaliser:
    """Language, version and kind of header identify the program that wrote a frame: Apache answers
    in JSON unless configured otherwise, ours in the kind of the request."""
    paths = ("language", "version", "serialize_type")
    return Normaliser("sender_identity", paths, lambda value, _: "<sender>")


def empty_as_absent() -> Normaliser:
    """A JSON header may have empty or no fields, and an empty or no remark. Clients treat both
    alike, and the ROCKETMQ header cannot express it; with Apache it depends on the processor."""

    def change(tree: Tree, _: Side) -> Tree:
        if not isinstance(tree, dict):
            return tree
        return {**tree, "fields": tree["fields"] or {}, "remark": tree["remark"] or None}

    return Normaliser("empty_as_absent", (), change)


def help_pages() -> Normaliser:
    """The help page named in a remark moved between versions of Apache's."""

    def change(value: Tree, _: Side) -> Tree:
        return _HELP_PAGE.sub("See <a page>", value) if isinstance(value, str) else value

    return Normaliser("help_pages", ("remark",), change)


EVERYWHERE: tuple[Normaliser, ...] = (
    own_addresses(),
    sender_identity(),
    empty_as_absent(),
    help_pages(),
)
"""Applied to every answer. The opaque is chosen by the client and not part of a tree."""


# ---- values that differ in each run --------------------------------------------------------


def clock(*paths: str) -> Normaliser:
    """Milliseconds of the server's clock: the two were not queried at the same instant."""

    def change(value: Tree, _: Side) -> Tree:
        number = _number(value)
        now_ms = _CLOCK.wall_ms()
        is_now = number is not None and abs(number - now_ms) <= CLOCK_SPAN_MS
        return f"<{type(value).__name__} of now>" if is_now else value

    return Normaliser("clock", paths, change)


def offset_ids(*paths: str) -> Normaliser:
    """Message ids contain the broker's address and a physical offset (see `physical_offsets`)."""

    def change(value: Tree, side: Side) -> Tree:
        if not isinstance(value, str):
            return value
        return ",".join(_offset_id_name(part, side) for part in value.split(","))

    return Normaliser("offset_ids", paths, change)


def _offset_id_name(text: str, side: Side) -> str:
    if _HEX_ID.fullmatch(text) is None:
        return text
    found = decode_offset_id(text)
    return "<offset id>" if f"{found.ip}:{found.port}" == side.broker_address else text


def physical_offsets(*paths: str) -> Normaliser:
    """A physical offset depends on every earlier record, including the broker's internal ones."""

    def change(value: Tree, _: Side) -> Tree:
        number = _number(value)
        return "<physical offset>" if number is not None and number >= 0 else value

    return Normaliser("physical_offsets", paths, change)


def unique_keys(*paths: str) -> Normaliser:
    """A unique key generated by the broker contains its address, process and time."""

    def change(value: Tree, _: Side) -> Tree:
        is_key = isinstance(value, str) and _HEX_ID.fullmatch(value) is not None
        return "<unique key>" if is_key else value

    return Normaliser("unique_keys", paths, change)


def recall_handles(*paths: str) -> Normaliser:
    """A recall handle contains the delivery time, which is relative to the send."""

    def change(value: Tree, _: Side) -> Tree:
        try:
            handle = RecallHandle.from_text(str(value))
        except ValueError:
            return value
        return f"{handle.topic} {handle.broker_name} {handle.unique_key}"

    return Normaliser("recall_handles", paths, change)


def revive_queues(*paths: str) -> Normaliser:
    """The queues of the revive topic are used by turns, by all pops; 999 (in order) stays."""

    def change(value: Tree, _: Side) -> Tree:
        number = _number(value)
        return "<revive queue>" if number is not None and 0 <= number < REVIVE_QUEUES else value

    return Normaliser("revive_queues", paths, change)


def receipts(*paths: str) -> Normaliser:
    """A receipt contains the time of the pop and a queue of the revive topic."""

    def change(value: Tree, _: Side) -> Tree:
        try:
            found = Receipt.from_text(str(value))
        except RemoteProtocolError:
            return value
        is_now = abs(found.pop_time - _CLOCK.wall_ms()) <= CLOCK_SPAN_MS
        if not is_now or not (found.in_order or 0 <= found.revive_queue_id < REVIVE_QUEUES):
            return value
        queue = found.revive_queue_id if found.in_order else 0
        return str(found._replace(pop_time=0, revive_queue_id=queue))

    return Normaliser("receipts", paths, change)


def any_order(*paths: str) -> Normaliser:
    """A pop's entries by queue: a pop of all queues begins with one that is chosen at random."""

    def change(value: Tree, _: Side) -> Tree:
        return ";".join(sorted(value.split(";"))) if isinstance(value, str) else value

    return Normaliser("any_order", paths, change)


def some_queue(*paths: str) -> Normaliser:
    """The queue in the one entry of a pop of all queues that got a single message."""

    def change(value: Tree, _: Side) -> Tree:
        return _ENTRY_QUEUE.sub(r"\1 <some queue> ", value) if isinstance(value, str) else value

    return Normaliser("some_queue", paths, change)


def durations(*paths: str) -> Normaliser:
    """Milliseconds from a message's pop to a time that the server computed at the request."""

    def change(value: Tree, _: Side) -> Tree:
        number = _number(value)
        return "<duration>" if number is not None and 0 < number < CLOCK_SPAN_MS else value

    return Normaliser("durations", paths, change)


def sizes(*paths: str) -> Normaliser:
    """A record's size depends on properties that the broker adds: a generated unique key is longer
    on a machine with only an IPv6 address."""

    def change(value: Tree, _: Side) -> Tree:
        return "<size>" if isinstance(value, int) and value > 0 else value

    return Normaliser("sizes", paths, change)


def data_versions(*paths: str) -> Normaliser:
    """A table's version counts the changes by all scripts and has the time of the last one."""

    def change(value: Tree, _: Side) -> Tree:
        if not isinstance(value, dict) or not {"counter", "timestamp"} <= value.keys():
            return value
        return {name: f"<{name}>" for name in value}

    return Normaliser("data_versions", paths, change)


def any_queue(*paths: str) -> Normaliser:
    """A queue that the broker chose at random: the two choose differently."""

    def change(value: Tree, _: Side) -> Tree:
        number = _number(value)
        return "<some queue>" if number is not None and number >= 0 else value

    return Normaliser("any_queue", paths, change)


def counts(*paths: str) -> Normaliser:
    """A count to which other scripts and the broker itself contribute."""

    def change(value: Tree, _: Side) -> Tree:
        number = _number(value)
        return "<count>" if number is not None and number > 0 else value

    return Normaliser("counts", paths, change)


def place(*paths: str) -> Normaliser:
    """A server's ports and folders are configured, and must differ between the two."""

    def change(value: Tree, _: Side) -> Tree:
        return "<place>" if isinstance(value, str) and value else value

    return Normaliser("place", paths, change)


def any_broker(*paths: str) -> Normaliser:
    """The address of the first broker in a Java map, either this script's or the real one."""

    def change(value: Tree, _: Side) -> Tree:
        is_address = isinstance(value, str) and re.fullmatch(r"<broker>|[\d.]+:\d+", value)
        return "<some broker>" if is_address else value

    return Normaliser("any_broker", paths, change)


# ---- order, and entries of other scripts ---------------------------------------------------


def unordered(*paths: str) -> Normaliser:
    """Java's hash sets and maps have no order: such lists are sorted."""

    def change(value: Tree, _: Side) -> Tree:
        return sorted(value, key=repr) if isinstance(value, list) else value

    return Normaliser("unordered", paths, change)


def only(named: str, *paths: str) -> Normaliser:
    """Of a table of all names only this script's are compared: other scripts and the server add
    entries at any time."""

    def change(value: Tree, _: Side) -> Tree:
        if isinstance(value, dict):
            return {name: item for name, item in value.items() if named in str(name)}
        if isinstance(value, list):
            return [item for item in value if named in str(item)]
        return value

    return Normaliser("only", paths, change)


def without(member: str, *paths: str) -> Normaliser:
    """A member or item that older versions of Apache's do not have, or compute in another way."""

    def change(value: Tree, _: Side) -> Tree:
        if isinstance(value, list):
            return [item for item in value if item != member]
        if not isinstance(value, dict):
            return value
        return {name: item for name, item in value.items() if name != member}

    return Normaliser("without", paths, change)


def rates(*paths: str) -> Normaliser:
    """Growth of a counter: the two servers take their samples at different moments."""

    def change(value: Tree, _: Side) -> Tree:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return "<rate>" if is_number else value

    return Normaliser("rates", paths, change)


def forms(table: str, *names: str) -> Normaliser:
    """Of a table of strings only these, with their numbers replaced: programs parse their forms."""

    def change(value: Tree, _: Side) -> Tree:
        if not isinstance(value, dict):
            return value
        kept = {name: item for name, item in value.items() if name in names}
        return {name: _NUMBER.sub("<n>", str(item)) for name, item in kept.items()}

    return Normaliser("forms", (table,), change)


# ---- remarks -------------------------------------------------------------------------------


def java_exception_text() -> Normaliser:
    """Where Apache's remark is the text of a Java exception, ours describes the same error in other
    words: the code must be equal, and there must be a remark."""

    def change(value: Tree, side: Side) -> Tree:
        if not isinstance(value, str) or not value:
            return value
        if side.is_apache and _JAVA_ERROR.search(value) is None:
            return value
        return "<what went wrong>"

    return Normaliser("java_exception_text", ("remark",), change)


def unset_remark() -> Normaliser:
    """The remark that an answer of Apache's begins with, where nothing replaced it."""

    def change(value: Tree, _: Side) -> Tree:
        return None if value == "not set any response code" else value

    return Normaliser("unset_remark", ("remark",), change)


def after(mark: str) -> Normaliser:
    """A remark that ends with the text of a Java object; the part before it is compared."""

    def change(value: Tree, _: Side) -> Tree:
        if not isinstance(value, str) or mark not in value:
            return value
        return value[: value.index(mark) + len(mark)] + "<…>"

    return Normaliser("after", ("remark",), change)


def _number(value: Tree) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value, re.ASCII):
        return int(value)
    return None


def _texts(tree: Tree, change: Callable[[str], str]) -> Tree:
    if isinstance(tree, str):
        return change(tree)
    if isinstance(tree, Mapping):
        return {change(name): _texts(value, change) for name, value in tree.items()}
    if isinstance(tree, list):
        return [_texts(value, change) for value in tree]
    return tree
