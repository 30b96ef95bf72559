"""The one error of all simulations: a promise that does not hold."""

from __future__ import annotations


class Broken(AssertionError):
    """A promise does not hold.

    Args:
      promise: which one: N1 to N10 of docs/testing.md, or a word for what else must be.
      text: what happened instead.
    """

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise
