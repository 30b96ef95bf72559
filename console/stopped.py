"""The store of a stopped broker in the place of a cluster: what pages have to say of it."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from .findings import Finding


class StoppedStore(msgspec.Struct, frozen=True):
    """A store that is opened to be read.

    Attributes:
      path: its folder.
      is_clean: its broker ended by itself.
      findings: what a start of its broker would warn of, and correct.
    """

    path: str
    is_clean: bool
    findings: tuple[Finding, ...] = ()


class KnownFindings:
    """The findings of a stopped store, which stay as they are."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        self._findings = findings

    def latest(self) -> tuple[Finding, ...]:
        """As of `Findings`."""
        return self._findings

    @property
    def client_ids(self) -> Collection[str]:
        """As of `Findings`: a stopped broker has no clients."""
        return ()

    def groups_of(self, client: str) -> set[str]:
        """As of `Findings`."""
        return set()

    async def run(self) -> None:
        """As of `Findings`: there is nothing to collect."""
