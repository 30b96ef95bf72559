"""One mutant: trocket with one promise broken, by one change, and what must find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import pytest

Patch = pytest.MonkeyPatch


class Search(Protocol):
    """Where a mutant shows: a workload, a program or a plan, and its seeds.

    Attributes:
      scope: store, broker or cluster.
    """

    @property
    def scope(self) -> str: ...

    def sound(self) -> str:
        """What is wrong in a first run; "" without the mutant."""

    def problems(self) -> Iterator[str]:
        """What is wrong in each run, "" for nothing."""


class Mutant(NamedTuple):
    """A mutant.

    Attributes:
      apply: breaks a promise; its name and first line say which.
      search: finds it.
      promises: what is found to be broken begins with one of these.
    """

    apply: Callable[[Patch], None]
    search: Search
    promises: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.search.scope}-{self.apply.__name__}"


def nothing(*_: Any, **__: Any) -> None:
    """Instead of what should be done."""
