"""Frames as trees of plain values, and the comparison of two trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as members_of

from ...common.message_properties import properties_from_bytes
from ...remoting import fastjson
from ...remoting.codec import NO_EXT_FIELDS, RemotingCommand
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_messages
from ...store.format import TIMER_CHECKPOINT, TIMER_HEAD
from .normalise import Normaliser, Side, Tree
from .request import BodyKind


class Missing:
    """Stands for a member that only the other side has."""

    def __repr__(self) -> str:
        return "absent"


MISSING = Missing()


@dataclass(frozen=True)
class Difference:
    """One value that differs between both sides.

    Attributes:
      path: the member names from the top, such as ("fields", "offset").
    """

    path: tuple[str, ...]
    first: object
    second: object

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or 'all'}: {_short(self.first)} / {_short(self.second)}"


def tree_of(command: RemotingCommand, body_kind: BodyKind) -> Tree:
    """The compared part of a frame: all but its opaque.

    The properties of a message become a table, because their order does not matter.
    """
    fields = None if command.ext_fields is NO_EXT_FIELDS else dict(command.ext_fields)
    return {
        "code": command.code,
        "remark": command.remark,
        "flag": command.flag,
        "serialize_type": command.serialize_type,
        "language": command.language,
        "version": command.version,
        "fields": None if fields is None else _with_properties(fields),
        "body": body_tree(command.body, body_kind),
    }


def _with_properties(fields: dict[str, str]) -> dict[str, Tree]:
    """The fields, with the properties of a carried message decoded."""
    text = fields.get("properties", "")
    if "\x01" not in text:
        return dict(fields)
    return {**fields, "properties": dict(properties_from_bytes(text.encode()))}


def body_tree(body: bytes, kind: BodyKind) -> Tree:
    """A body as values; a body that cannot be decoded as its kind becomes a string."""
    if not body:
        return None
    try:
        if kind is BodyKind.JSON:
            return _plain(fastjson.loads(body))
        if kind is BodyKind.RECORDS:
            return [record_tree(record) for record in decode_messages(body, inflate=False)]
        if kind is BodyKind.TIMER_CHECKPOINT and len(body) >= TIMER_HEAD.size:
            return _timer_checkpoint(body)
    except RemoteProtocolError as error:
        return f"not {kind.value}: {error}: {body[:200]!r}"
    text = body.decode("utf-8", "backslashreplace")
    if kind is BodyKind.PROPERTIES:
        pairs = (line.partition("=") for line in text.splitlines() if line)
        return {name: value for name, _, value in pairs}
    return text


def _timer_checkpoint(body: bytes) -> Tree:
    values = TIMER_HEAD.unpack_from(body)
    found = dict(zip(TIMER_CHECKPOINT.names(), values, strict=True))
    version = ("state_version", "timestamp_ms", "counter")
    return {
        "version": {name.removesuffix("_ms"): found.pop(name) for name in version},
        **found,
    }


def record_tree(record: MessageExt) -> dict[str, Tree]:
    """All fields of a stored record; hosts as HOST:PORT."""
    tree: dict[str, Tree] = {
        member.name: getattr(record, member.name)
        for member in members_of(record)
        if not member.name.startswith("_")
    }
    del tree["properties_bytes"]
    tree["properties"] = dict(record.properties)
    tree["body"] = record.body.decode("utf-8", "backslashreplace")
    tree["born_host"] = record.born_host_text
    tree["store_host"] = record.store_host_text
    return tree


def normalised(tree: Tree, side: Side, normalisers: tuple[Normaliser, ...]) -> Tree:
    """The tree after all normalisers, applied in order."""
    for normaliser in normalisers:
        tree = normaliser.apply(tree, side)
    return tree


def differences(first: Tree, second: Tree, path: tuple[str, ...] = ()) -> list[Difference]:
    """The smallest parts in which two trees differ; types count: 1 is neither "1" nor true."""
    if isinstance(first, dict) and isinstance(second, dict):
        names = [*first, *(name for name in second if name not in first)]
        found = []
        for name in names:
            one, other = first.get(name, MISSING), second.get(name, MISSING)
            found += differences(one, other, (*path, name))
        return found
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [
            found
            for index, (one, other) in pairs
            for found in differences(one, other, (*path, str(index)))
        ]
    if type(first) is type(second) and first == second:
        return []
    return [Difference(path, first, second)]


def _plain(value: object) -> Tree:
    """Values with string keys only; bare numbers or objects as keys (fastjson) become strings."""
    if isinstance(value, dict):
        return {_key(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _key(name: object) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, Mapping):
        members = ",".join(f"{key}={name[key]}" for key in sorted(name))
        return f"{{{members}}}"
    return f"<bare {name}>"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
