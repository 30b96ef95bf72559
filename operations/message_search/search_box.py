"""The one search box: the meanings that a text has in a cluster. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Final

import msgspec

from ...common.message_properties import KEY_SEPARATOR
from .criteria import TEXT_LENGTH_MAX
from .ids import IdKind, MessageId, read_id
from .problems import Problem, SearchError

SIMILAR_MAX: Final = 10
"""Names of each kind that are offered because the text is a part of them."""
_AROUND: Final = " \t\r\n\f\v\"'`,;<>()[]\u00a0\u200b\u200e\u200f\u2060\u3000\ufeff"
"""Characters that come along when an id is copied from a log, a table or a chat."""


class Meaning(StrEnum):
    """A thing that a text may name."""

    MESSAGE = "message"
    """The id of a message."""
    TOPIC = "topic"
    GROUP = "group"
    CLIENT = "client"
    BROKER = "broker"
    """A broker's name or address."""
    KEY = "key"
    """The key of messages; which topic's, the text does not say."""


class ClusterNames(msgspec.Struct, frozen=True, kw_only=True):
    """What there is in a cluster.

    Attributes:
      topics, groups, client_ids: names, as the console shows them.
      brokers: names.
      addresses: `host:port` of masters and slaves.
    """

    topics: Collection[str] = ()
    groups: Collection[str] = ()
    client_ids: Collection[str] = ()
    brokers: Collection[str] = ()
    addresses: Collection[str] = ()


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """What a text may mean.

    Attributes:
      meaning: the kind of thing.
      value: its name.
      is_exact: the text is its name; False: it is a part of it.
      message_id: of MESSAGE.
      problem: what is wrong with it, so that no search is needed to say so: OTHER_CLUSTER, CUT_OFF,
        HAS_SPACES (`value` is the id without them); None: nothing is known to be.
    """

    meaning: Meaning
    value: str
    is_exact: bool = True
    message_id: MessageId | None = None
    problem: SearchError | None = None


def guesses(text: str, names: ClusterNames) -> tuple[Guess, ...]:
    """What a text may mean, the likeliest first; nothing if it is blank.

    Args:
      text: as it was typed or pasted; blanks, quotes and brackets around it do not count.
      names: as the console knows them from its last look.
    """
    text = text.strip(_AROUND)
    if not text:
        return ()
    found = list(_names(text, names))
    found += _ids(text, names)
    if not found or all(guess.problem is not None for guess in found):
        found += _similar(text, names)
    if KEY_SEPARATOR not in text and len(text) <= TEXT_LENGTH_MAX:
        found.append(Guess(meaning=Meaning.KEY, value=text))
    return tuple(found)


def _kinds(names: ClusterNames) -> Iterator[tuple[Meaning, Collection[str]]]:
    yield Meaning.TOPIC, names.topics
    yield Meaning.GROUP, names.groups
    yield Meaning.CLIENT, names.client_ids
    yield Meaning.BROKER, names.brokers
    yield Meaning.BROKER, names.addresses


def _names(text: str, names: ClusterNames) -> Iterator[Guess]:
    for meaning, known in _kinds(names):
        if text in known:
            yield Guess(meaning=meaning, value=text)


def _ids(text: str, names: ClusterNames) -> list[Guess]:
    try:
        message_id = read_id(text)
    except SearchError as error:
        return _broken_ids(text, error, names)
    if message_id.kind is IdKind.OTHER:
        return []
    problem = None
    if message_id.address and message_id.address not in names.addresses:
        problem = SearchError(Problem.OTHER_CLUSTER, address=message_id.address)
    return [
        Guess(
            meaning=Meaning.MESSAGE,
            value=message_id.text,
            message_id=message_id,
            problem=problem,
        )
    ]


def _broken_ids(text: str, error: SearchError, names: ClusterNames) -> list[Guess]:
    if error.problem is Problem.CUT_OFF:
        return [Guess(meaning=Meaning.MESSAGE, value=text, problem=error)]
    if error.problem is not Problem.HAS_SPACES:
        return []
    joined = str(error.data["joined"])
    return [
        Guess(
            meaning=Meaning.MESSAGE,
            value=joined,
            message_id=guess.message_id,
            problem=guess.problem or error,
        )
        for guess in _ids(joined, names)
    ]


def _similar(text: str, names: ClusterNames) -> Iterator[Guess]:
    lowered = text.lower()
    for meaning, known in _kinds(names):
        similar = sorted(name for name in known if lowered in name.lower())
        # Names that begin with the text come first.
        similar.sort(key=lambda name: not name.lower().startswith(lowered))
        for name in similar[:SIMILAR_MAX]:
            yield Guess(meaning=meaning, value=name, is_exact=False)
