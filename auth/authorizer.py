"""Authorizer: decides by a user's rules whether it may do something with a resource.

Of the rules that match (resource, action, address), the one with the most specific resource
decides: one name before a prefix, a longer prefix before a shorter one, all of a type before `*`.
Of rules for the same resource one that denies decides. Default rules count only if no Custom rule
matches. Without any match the request is denied.

Java counterpart: RocketMQ 5.3.3 auth/…/AclAuthorizationHandler.java. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from .model import (
    Acl,
    Action,
    Address,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
)

NO_MATCH: Final = "no matched policies."
DENIED: Final = "the decision is deny."

INDEXED_MAX: Final = 10_000
"""Access control lists that are indexed: as many as there may be users. One of another list goes
for one more, because lists of deleted users stay in the index."""


class EntryIndex:
    """The entries of one policy, by the way in which they name their resources."""

    def __init__(self, entries: Iterable[PolicyEntry]) -> None:
        self._by_name: defaultdict[tuple[ResourceType, str], list[PolicyEntry]] = defaultdict(list)
        self._by_prefix: defaultdict[tuple[ResourceType, str], list[PolicyEntry]] = defaultdict(
            list
        )
        self._of_type: defaultdict[ResourceType, list[PolicyEntry]] = defaultdict(list)
        self._of_all: list[PolicyEntry] = []
        sizes: set[int] = set()
        for entry in entries:
            resource = entry.resource
            key = (resource.type, resource.name)
            if resource.type is ResourceType.ANY:
                self._of_all.append(entry)
            elif resource.pattern is ResourcePattern.ANY:
                self._of_type[resource.type].append(entry)
            elif resource.pattern is ResourcePattern.PREFIXED:
                self._by_prefix[key].append(entry)
                sizes.add(len(resource.name))
            else:
                self._by_name[key].append(entry)
        self._prefix_sizes = sorted(sizes, reverse=True)

    def decisive(
        self, asked: Resource, actions: tuple[Action, ...], address: Address | None
    ) -> PolicyEntry | None:
        """The entry that decides whether any of these actions is allowed; None: none matches."""
        for entries in self._about(asked):
            matching = [
                entry
                for entry in entries
                if entry.has_action(actions) and entry.has_address(address)
            ]
            if matching:
                denying = (entry for entry in matching if entry.decision is Decision.DENY)
                return next(denying, matching[0])
        return None

    def _about(self, asked: Resource) -> Iterator[list[PolicyEntry]]:
        """The entries for a resource, in lists of equal rank, the most specific ones first."""
        if asked.pattern is ResourcePattern.LITERAL:
            yield self._by_name.get((asked.type, asked.name), [])
            for size in self._prefix_sizes:
                if size <= len(asked.name):
                    yield self._by_prefix.get((asked.type, asked.name[:size]), [])
        yield self._of_type.get(asked.type, [])
        yield self._of_all


class Authorizer:
    """Decides by access control lists, of each of which it keeps an index until it changes.

    Args:
      acls: access control list by subject; read at each decision.
    """

    def __init__(self, acls: Mapping[str, Acl]) -> None:
        self._acls = acls
        self._indexes: dict[str, tuple[Acl, tuple[EntryIndex, ...]]] = {}

    def refusal(
        self, subject: str, asked: Resource, actions: tuple[Action, ...], address: Address | None
    ) -> str | None:
        """Why a subject may not do any of these actions: RocketMQ's words; None: it may."""
        for index in self._indexes_of(subject):
            entry = index.decisive(asked, actions, address)
            if entry is not None:
                return DENIED if entry.decision is Decision.DENY else None
        return NO_MATCH

    def _indexes_of(self, subject: str) -> tuple[EntryIndex, ...]:
        acl = self._acls.get(subject)
        if acl is None:
            self._indexes.pop(subject, None)
            return ()
        known = self._indexes.get(subject)
        if known is not None and known[0] is acl:
            return known[1]
        found = tuple(EntryIndex(acl.entries(each)) for each in PolicyType)
        if known is None and len(self._indexes) >= INDEXED_MAX:
            del self._indexes[next(iter(self._indexes))]
        self._indexes[subject] = (acl, found)
        return found
