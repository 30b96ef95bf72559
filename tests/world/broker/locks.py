"""Queue locks of orderly consumers: at most one client at a time. Pure."""

from __future__ import annotations

from ..broken import Broken
from .oracle import Place

LOCK_MS = 60_000
"""A lock that is not renewed for longer is free."""


class Locks:
    """The locks of one group, as its members know them."""

    def __init__(self) -> None:
        self._held: dict[Place, tuple[str, int]] = {}

    def holder(self, place: Place, now_ms: int) -> str | None:
        """Who has a queue."""
        member, since_ms = self._held.get(place, (None, 0))
        return member if now_ms - since_ms <= LOCK_MS else None

    def answered(self, place: Place, member: str, granted: bool, now_ms: int) -> None:
        """A member asked for a queue, and got an answer."""
        holder = self.holder(place, now_ms)
        if granted:
            if holder not in (None, member):
                raise Broken("order", f"{member} got {place}, which {holder} holds")
            self._held[place] = (member, now_ms)
        elif holder in (None, member):
            raise Broken("order", f"{member} did not get {place}, which {holder} holds")

    def gave_back(self, place: Place, member: str, now_ms: int) -> None:
        """A member gave a queue back, whether it held it or not."""
        if self.holder(place, now_ms) == member:
            del self._held[place]

    def restarted(self) -> None:
        """The broker knows of no locks any more, as Apache's does not."""
        self._held.clear()
