"""A doctor that looks again and again by few questions, and remembers what it asked before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .collect import Progress, collect, unseen
from .facts import FEW, Facts, GroupFacts, Limits

if TYPE_CHECKING:
    from ...client import Client


class Doctor:
    """Collects facts; where there are too many groups, other ones each time.

    The members of a group that is left out are those of the last time when it was asked for.

    Args:
      client: open.
      limits: how much of the groups is asked for at one time.
      limit_s: seconds for one look; None: as `collect`.
    """

    def __init__(
        self, client: Client, *, limits: Limits = FEW, limit_s: float | None = None
    ) -> None:
        self._client = client
        self._limits = limits
        self._limit_s = limit_s
        self._turn = 0
        self._known: dict[str, GroupFacts] = {}

    async def look(self, progress: Progress = unseen) -> Facts:
        """Collect all facts, and complete them by what was known before."""
        facts = await collect(
            self._client,
            progress,
            limits=self._limits,
            limit_s=self._limit_s,
            turn=self._turn,
        )
        self._turn += self._limits.groups
        groups = tuple(completed(each, self._known.get(each.name)) for each in facts.groups)
        self._known = {each.name: each for each in groups if not each.is_left_out}
        return replace(facts, groups=groups)


def completed(group: GroupFacts, before: GroupFacts | None) -> GroupFacts:
    """A group with the members that it had before, if they were not asked for now. Pure."""
    if before is None or not group.is_left_out:
        return group
    return replace(
        group,
        members=before.members,
        count=max(group.count, len(before.members)),
        unknown_on=before.unknown_on,
        is_left_out=False,
        members_left_out=before.members_left_out,
    )
