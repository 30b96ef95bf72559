"""A cache of the results of a pure function of one string, limited in bytes.

`functools.lru_cache` limits the number of results. For strings from a peer that is no limit
of memory: each may be as large as a frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

ENTRY_PARTS: Final = 4
"""A result larger than this fraction of the cache is not kept: it would evict all others."""


class SizedCache(Generic[T]):
    """A function that caches its results; the oldest are evicted first.

    Args:
      compute: the function. Exceptions are not cached.
      size_max: bytes of all results.
      size_of: estimates the bytes of a string and its result.

    Attributes:
      size: bytes of the cached results, by `size_of`.
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
    """Decorate a function of one string: see `SizedCache`."""

    def decorate(compute: Callable[[str], T]) -> SizedCache[T]:
        return SizedCache(compute, size_max=size_max, size_of=size_of)

    return decorate
