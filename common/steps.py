"""Steps: long work as a generator that yields where other tasks may run.

The work stays a plain function with `yield` in its loops; the caller runs it without pauses, or
with a trio checkpoint at each yield. Between two steps other tasks may change its input, so it
makes copies first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import trio

K = TypeVar("K")
T = TypeVar("T")

Steps = Generator[None, None, T]

STEP_ITEMS: Final = 500
"""Items of a few microseconds each per step: together 2 to 10 ms."""


def at_once(steps: Steps[T]) -> T:
    """Run all steps without a pause; raises their errors."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def as_long_as(holds: Callable[[], bool], steps: Steps[T]) -> Steps[T | None]:
    """Steps that end with None when a condition no longer holds after a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        yield
        if not holds():
            return None


def one_step(make: Callable[[], T]) -> Callable[[], Steps[T]]:
    """Convert a function that is not divided to a single step."""

    def steps() -> Steps[T]:
        return make()
        yield  # makes this a generator

    return steps


async def in_steps(steps: Steps[T]) -> T:
    """Run all steps with a checkpoint between two of them; raises their errors."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await trio.lowlevel.checkpoint()


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Split a sequence into parts, none of them empty.

    Args:
      size: items of a part, > 0; the last one may have fewer.
    """
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def json_members(table: Mapping[K, T], encode: Callable[[dict[K, T]], bytes]) -> Steps[bytes]:
    """Encode a JSON object in steps.

    Args:
      table: its members; copied first.
      encode: encodes an object of some of them, without surrounding white space.
    Returns: steps that return the object's text.
    """
    text, _ = yield from json_page(table, encode, sys.maxsize)
    return text


def json_page(
    table: Mapping[K, T], encode: Callable[[dict[K, T]], bytes], size_max: int
) -> Steps[tuple[bytes, int]]:
    """Encode the first members of a JSON object in steps.

    Args:
      table, encode: see `json_members`.
      size_max: approximate bytes of the text; the first member is written whatever its size.
    Returns: steps that return the text and the number of members in it. A peer that reads pages
      requests the members after those.
    """
    names = list(table)
    table = dict(table)
    pieces: list[bytes] = []
    size = count = 0
    part = STEP_ITEMS
    while count < len(names):
        if count:
            yield
        chosen = names[count : count + part]
        piece = encode({name: table[name] for name in chosen})[1:-1]
        if size + len(piece) > size_max and (pieces or len(chosen) > 1):
            if len(chosen) == 1:
                break
            part = len(chosen) // 2
            continue
        pieces.append(piece)
        size += len(piece) + 1
        count += len(chosen)
    return b"{" + b",".join(pieces) + b"}", count


def with_member(body: bytes, empty: bytes, text: bytes) -> bytes:
    """Insert an encoded member into a JSON object in place of an empty one.

    Args:
      body: the object; the first `empty` in it is the member.
      empty: `"name":{}`.
      text: replaces the braces.
    """
    before, found, after = body.partition(empty)
    assert found, "the body has no such member"
    return b"".join((before, empty[:-2], text, after))
