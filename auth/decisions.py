"""Decisions: what was decided about requests, kept for requests like them.

A decision depends on the account, the code and the header's fields that the code's need reads. One
that depends on more, such as the body, is not kept. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from ..remoting.codec import RemotingCommand
from .needs import Need, is_divisible

DECISIONS_MAX: Final = 10_000
"""Decisions that are kept, as many as RocketMQ keeps (statefulAuthorizationCacheMaxNum)."""

DECISION_SIZE_MAX: Final = 1_024
"""Characters of the names of one decision: those of longer ones are not kept, because a peer may
send names of 32 KiB. With DECISIONS_MAX this bounds them to about 15 MB."""

Key = tuple[str | bytes | int | None, ...]

T = TypeVar("T")


class Decisions(Generic[T]):
    """The decisions of one server.

    Args:
      needs: of its request codes.

    Attributes:
      kept: decision by key.
    """

    def __init__(self, needs: Mapping[int, Need]) -> None:
        all_fields = {int(code): _fields_of(need) for code, need in needs.items()}
        self._fields = {code: each for code, each in all_fields.items() if each is not None}
        self.kept: dict[Key, T] = {}

    def key_of(self, request: RemotingCommand, *who: str | bytes) -> Key | None:
        """What the decision about a request depends on; None: on more, so it is not kept.

        Args:
          who: the account, and what else counts of the peer.
        """
        fields = self._fields.get(request.code)
        if fields is None:
            return None
        values = request.ext_fields.get
        return (*who, request.code, *[values(name) for name in fields])

    def keep(self, key: Key, decision: T) -> None:
        """Keep a decision, unless it may change without a change of accounts: whose a retry topic
        is depends on the groups that exist. All others are forgotten when there are too many."""
        texts = [part for part in key if isinstance(part, str)]
        if any(map(is_divisible, texts)):
            return
        if sum(map(len, texts)) <= DECISION_SIZE_MAX:
            if len(self.kept) >= DECISIONS_MAX:
                self.kept.clear()
            self.kept[key] = decision

    def clear(self) -> None:
        """Forget all, after a change of accounts."""
        self.kept.clear()


def _fields_of(need: Need) -> tuple[str, ...] | None:
    """The header's fields on which a decision depends; None: it depends on more."""
    fields: list[str] = []
    for part in need:
        if part.fields is None:
            return None
        fields += part.fields
    return tuple(dict.fromkeys(fields))
