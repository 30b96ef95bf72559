"""Masks: parts of messages that a console does not show, by `--mask TOPIC:PATH`.

A mask is applied to a message before anything else is made of it: search, views, hex, export and
download all get the masked message, so that no way leads around it.

    orders:$.card                a member of the body, which is JSON
    orders:$..card               every member of that name, at any depth
    orders:$.items[*].price      of every element; [0] is the first, [-1] the last
    orders:$['card number']      a name with other characters than letters, digits, _ and -
    orders:$                     the whole body
    orders:properties.phone      a property; properties.* stands for all that programs set
    order*:$.card                TOPIC may have * for any characters, and ? for one

The bodies of such a topic that are not a JSON object or array, compressed or not, are hidden
wholly; of members of one name only the last is kept. A mask of a topic holds for its messages in
retry, dead-letter and delay topics too.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from ..client.errors import ConfigurationError
from ..client.messages.message import ReceivedMessage, with_content
from ..common.message_properties import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    SYSTEM_PROPERTIES,
)
from ..common.topic_names import RETRY_TOPIC_PREFIX
from ..operations.unpacking import unpacked
from ..remoting.sys_flag import COMPRESSED

HIDDEN: Final = "***"
"""Stands for what is hidden; its length says nothing."""
EXPRESSION_LENGTH_MAX: Final = 1000
"""Characters of a mask: topics have 127, and a path of more than a few names is a mistake."""
STEPS_MAX: Final = 32
"""Names and indices of a path."""
DEEP_STEPS_MAX: Final = 3
"""Steps with `..` of a path: each costs a walk through the whole body."""
NODES_MAX: Final = 300_000
"""Values of a JSON body that is masked; one with more of them is hidden wholly, as its tree could
take more than 64 MiB."""
_MASKS_CACHED: Final = 1024

_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_+*?-]+", re.ASCII)
_PROPERTIES: Final = "properties."


class Step(NamedTuple):
    """A step of a path.

    Attributes:
      select: the name of a member, the index of an element, or None: all of both.
      is_deep: from the value itself and all values in it, not only from the value.
    """

    select: str | int | None
    is_deep: bool


class Mask(msgspec.Struct, frozen=True):
    """A mask of a command line.

    Attributes:
      topic: compiled pattern.
      path: steps into the body, none for the whole body; None: it is about a property.
      property_name: a property, "*" for all that programs set; "": it is about the body.
    """

    topic: re.Pattern[str]
    path: tuple[Step, ...] | None
    property_name: str = ""


class BodyState(StrEnum):
    """What a mask did to a body."""

    SHOWN = "shown"
    """Nothing: no mask is about it, or what they hide is not in it."""
    MASKED = "masked"
    """Parts of it are hidden."""
    HIDDEN = "hidden"
    """It is hidden wholly, as a mask says."""
    HIDDEN_NO_JSON = "hidden_no_json"
    """It is hidden wholly: a mask is about a part of it, and it is no JSON object or array."""
    HIDDEN_TOO_LARGE = "hidden_too_large"
    """It is hidden wholly: it is nested too deep or has too many values to be masked."""


class MaskedMessage(NamedTuple):
    """A message as it may be shown.

    Attributes:
      message: has nothing of what is hidden.
      body: what became of its body.
      hidden_properties: names of the properties that are hidden, sorted.
    """

    message: ReceivedMessage
    body: BodyState
    hidden_properties: tuple[str, ...]


class Masks:
    """The masks of a console.

    Args:
      expressions: the values of `--mask`.

    Raises: ConfigurationError: one cannot be read; the text says which, where and why.
    """

    def __init__(self, expressions: Iterable[str] = ()) -> None:
        self._masks = [parse_mask(each) for each in expressions]
        self._of_topics = functools.lru_cache(_MASKS_CACHED)(self._find)

    def __bool__(self) -> bool:
        return bool(self._masks)

    def masked(self, message: ReceivedMessage) -> MaskedMessage:
        """A message without what is hidden. A compressed body that is masked is not compressed."""
        if not self._masks:
            return MaskedMessage(message, BodyState.SHOWN, ())
        masks = self._of_topics(_topics_of(message))
        if not masks:
            return MaskedMessage(message, BodyState.SHOWN, ())
        body, state = message.body, BodyState.SHOWN
        paths = [mask.path for mask in masks if mask.path is not None]
        if paths:
            body, state = masked_body(message.body, message.sys_flag, paths)
        hidden = _hidden_names(message.properties, [each.property_name for each in masks])
        if state is BodyState.SHOWN and not hidden:
            return MaskedMessage(message, state, ())
        is_same = state is BodyState.SHOWN
        found = with_content(
            message,
            body=body,
            properties=dict(message.properties) | dict.fromkeys(hidden, HIDDEN),
            sys_flag=message.sys_flag if is_same else message.sys_flag & ~COMPRESSED,
        )
        return MaskedMessage(found, state, tuple(sorted(hidden)))

    def message(self, message: ReceivedMessage) -> ReceivedMessage:
        """`masked` alone, as searches take it."""
        return self.masked(message).message

    def _find(self, topics: frozenset[str]) -> tuple[Mask, ...]:
        return tuple(
            [mask for mask in self._masks if any(mask.topic.fullmatch(topic) for topic in topics)]
        )


def _topics_of(message: ReceivedMessage) -> frozenset[str]:
    """The topics that a message may come from: retries, dead letters and delays are elsewhere."""
    properties = message.properties
    names = {message.topic, message.queue.topic}
    for name in (PROPERTY_REAL_TOPIC, PROPERTY_RETRY_TOPIC, PROPERTY_DLQ_ORIGIN_TOPIC):
        if name in properties:
            names.add(properties[name])
    for name in [each for each in names if each.startswith(RETRY_TOPIC_PREFIX)]:
        # The topic of pops is GROUP+TOPIC, or GROUP_TOPIC, which may be cut at each _.
        names.update(name[match.end() :] for match in re.finditer(r"[+_]", name))
    return frozenset(names)


def _hidden_names(properties: Mapping[str, str], names: list[str]) -> set[str]:
    hidden = {name for name in names if name in properties}
    if "*" in names:
        hidden.update(name for name in properties if name not in SYSTEM_PROPERTIES)
    return hidden


def masked_body(
    body: bytes, sys_flag: int, paths: Iterable[tuple[Step, ...]]
) -> tuple[bytes, BodyState]:
    """A body without what some paths name.

    Args:
      body: as stored or decompressed.
      sys_flag: its bit COMPRESSED says whether a client compressed the body.
      paths: see `Mask`.

    Returns: the body, decompressed if anything is hidden, and what was done.
    """
    hidden = HIDDEN.encode()
    if not all(paths := tuple(paths)):
        return hidden, BodyState.HIDDEN
    inside = unpacked(body, sys_flag)
    if not body and inside.failure is None:
        return body, BodyState.SHOWN
    if inside.failure is not None:
        return hidden, BodyState.HIDDEN_NO_JSON
    content = inside.content
    if sum(map(content.count, (b",", b"[", b"{"))) > NODES_MAX:
        return hidden, BodyState.HIDDEN_TOO_LARGE
    doubled: list[str] = []
    try:
        tree = json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=functools.partial(_object, doubled),
            parse_int=_number,
            parse_float=_number,
            parse_constant=_number,
        )
        if not isinstance(tree, dict | list):
            return hidden, BodyState.HIDDEN_NO_JSON
        found = [_hide(tree, path) for path in paths]
        if not any(found) and not doubled:
            return body, BodyState.SHOWN
        return _json(tree), BodyState.MASKED
    except RecursionError:
        return hidden, BodyState.HIDDEN_TOO_LARGE
    except ValueError:
        return hidden, BodyState.HIDDEN_NO_JSON


def _object(doubled: list[str], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; of members of one name the last is kept, and no path reaches the others."""
    found = dict(pairs)
    if len(found) < len(pairs):
        doubled.append("")
    return found


def _number(text: str) -> msgspec.Raw:
    """A number as it was written: 1.10 stays 1.10."""
    return msgspec.Raw(text.encode())


def _json(tree: dict[str, Any] | list[Any]) -> bytes:
    try:
        return msgspec.json.encode(tree)
    except UnicodeEncodeError:
        # Halves of surrogate pairs, which JSON may have as escapes.
        text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"), default=_parsed)
        return text.encode("utf-8", "backslashreplace")


def _parsed(number: msgspec.Raw) -> Any:
    return json.loads(bytes(number))


Container = dict[str, Any] | list[Any]


def _hide(tree: Container, path: tuple[Step, ...]) -> bool:
    """Replace in a tree what a path names. Returns: whether there is anything of it."""
    values: list[Any] = [tree]
    places: list[tuple[Container, Any]] = []
    for step in path:
        places = []
        containers = _deep(values) if step.is_deep else _distinct(values)
        for container in containers:
            places += [(container, key) for key in _keys(container, step.select)]
        values = [container[key] for container, key in places]
    for container, key in places:
        container[key] = HIDDEN
    return bool(places)


def _distinct(values: list[Any]) -> Iterator[Container]:
    """The objects and arrays among values, each once."""
    seen: set[int] = set()
    for value in values:
        if isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))
            yield value


def _deep(values: list[Any]) -> Iterator[Container]:
    """The objects and arrays among values and in them, each once."""
    seen: set[int] = set()
    rest = list(values)
    while rest:
        value = rest.pop()
        if not isinstance(value, dict | list) or id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        rest += value.values() if isinstance(value, dict) else value


def _keys(container: Container, select: str | int | None) -> Iterable[Any]:
    if select is None:
        return list(container) if isinstance(container, dict) else range(len(container))
    if isinstance(container, dict):
        return (select,) if select in container else ()
    if isinstance(select, int) and -len(container) <= select < len(container):
        return (select % len(container),)
    return ()


_STEP: Final = re.compile(
    r"""(?P<deep>\.\.)?(?(deep)|(?:\.|(?=\[)))
    (?:(?P<star>\*|\[\*\])
     |\[(?P<index>-?[0-9]{1,9})\]
     |\['(?P<single>[^']+)'\]|\["(?P<double>[^"]+)"\]
     |(?P<name>[\w-]+))""",
    re.VERBOSE,
)


def parse_mask(expression: str) -> Mask:
    """A mask from its text.

    Raises: ConfigurationError: it is none; the text says where and why.
    """

    def fail(at: int, why: str) -> ConfigurationError:
        shown = ascii(expression[:100])
        return ConfigurationError(f"the mask {shown} is wrong at character {at + 1}: {why}")

    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise fail(EXPRESSION_LENGTH_MAX, f"it has more than {EXPRESSION_LENGTH_MAX} characters")
    topic, colon, path = expression.partition(":")
    found = _TOPIC.match(topic)
    end = 0 if found is None else found.end()
    if end < len(topic) or not topic:
        raise fail(end, "a topic, in which * and ? may stand for others, is expected here")
    if not colon:
        raise fail(len(topic), "':' and what is hidden are missing, as in orders:$.card")
    pattern = re.compile(re.escape(topic).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
    begin = len(topic) + 1
    if path.startswith(_PROPERTIES):
        name = path[len(_PROPERTIES) :]
        if not name:
            raise fail(len(expression), "the name of a property is missing")
        if match := re.search(r"[\x00-\x02]", name):
            raise fail(begin + len(_PROPERTIES) + match.start(), "no property's name has this")
        return Mask(pattern, None, name)
    if not path.startswith("$"):
        raise fail(begin, "'$' or 'properties.' is expected here")
    steps: list[Step] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise fail(begin + at, "'.name', '[index]', '[*]' or '..name' is expected here")
        is_deep = match["deep"] is not None
        if match["star"] is not None:
            steps.append(Step(None, is_deep))
        elif match["index"] is not None:
            steps.append(Step(int(match["index"]), is_deep))
        else:
            steps.append(Step(match["single"] or match["double"] or match["name"], is_deep))
        if len(steps) > STEPS_MAX:
            raise fail(begin + at, f"it has more than {STEPS_MAX} steps")
        if sum(step.is_deep for step in steps) > DEEP_STEPS_MAX:
            raise fail(begin + at, f"it has '..' more than {DEEP_STEPS_MAX} times")
        at = match.end()
    return Mask(pattern, tuple(steps))
