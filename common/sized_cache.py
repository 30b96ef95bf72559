"""Sized cache: results of a pure function of one text, bounded in bytes.

`functools.lru_cache` bounds how many results are kept. Where the text comes from a peer that is no
bound: each may be as large as a frame allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

ENTRY_PARTS: Final = 4
"""A result that takes more than this part of the cache is not kept: it would drive out the rest."""


class SizedCache(Generic[T]):
    """A function that remembers its results; the oldest ones give way to new ones.

    Args:
      compute: the function. What it raises is not remembered.
      size_max: bytes of all results.
      size_of: about how many bytes a text and its result take.

    Attributes:
      size_max: as above.
      size: bytes of the results that are kept, by `size_of`.
    """

    def __init__(
        self, compute: Callable[[str], T], *, size_max: int, size_of: Callable[[str, T], int]
    ) -> None:
        self._compute = compute
        self.size_max = size_max
        self._size_of = size_of
        self._results: dict[str, tuple[T, int]] = {}
        self.size = 0
        self.__doc__ = compute.__doc__

    def __call__(self, text: str) -> T:
        """The function's result."""
        found = self._results.get(text)
        if found is not None:
            return found[0]
        result = self._compute(text)
        size = self._size_of(text, result)
        if size <= self.size_max // ENTRY_PARTS:
            self._results[text] = result, size
            self.size += size
            while self.size > self.size_max:
                _, oldest_size = self._results.pop(next(iter(self._results)))
                self.size -= oldest_size
        return result

    def __len__(self) -> int:
        return len(self._results)


def sized_cache(
    *, size_max: int, size_of: Callable[[str, Any], int]
) -> Callable[[Callable[[str], T]], SizedCache[T]]:
    """Decorate a function of one text: see `SizedCache`."""

    def decorate(compute: Callable[[str], T]) -> SizedCache[T]:
        return SizedCache(compute, size_max=size_max, size_of=size_of)

    return decorate
