"""Long work in steps: a generator that yields where others may be served.

The work itself stays a plain function with `yield` in its loops; who calls it says whether it is
done at once, or with a checkpoint of trio at each yield. Between two steps others may change what
the work reads, so it takes copies first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import trio

from .channel import Answer, Deferred
from .codec import RemotingCommand

T = TypeVar("T")

Steps = Generator[None, None, T]

STEP_ITEMS: Final = 500
"""Items of some microseconds each that make a step: together 2 to 10 ms."""


def at_once(steps: Steps[T]) -> T:
    """All steps without a pause. Raises: what they raise."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def one_step(make: Callable[[], T]) -> Callable[[], Steps[T]]:
    """A function that gives the one step of what is not divided."""

    def steps() -> Steps[T]:
        return make()
        yield  # what makes it a generator

    return steps


async def in_steps(steps: Steps[T]) -> T:
    """All steps, with a checkpoint between two of them. Raises: what they raise."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await trio.lowlevel.checkpoint()


def answer_of(
    steps: Steps[RemotingCommand] | Steps[RemotingCommand | Deferred],
) -> Answer:
    """A request's answer: at once where one step makes it, as for nearly all requests.

    Raises: what the first step raises.
    """
    try:
        next(steps)
    except StopIteration as end:
        answer: RemotingCommand | Deferred = end.value
        return answer

    async def run() -> RemotingCommand | None:
        answer = await in_steps(steps)
        return await answer.run() if isinstance(answer, Deferred) else answer

    return Deferred(run)


def in_parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Parts of a sequence, none of them empty.

    Args:
      size: items of a part, > 0; the last one may have fewer.
    """
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def json_members(table: Mapping[str, T], encode: Callable[[dict[str, T]], bytes]) -> Steps[bytes]:
    """A JSON object in steps.

    Args:
      table: its members; copied first.
      encode: writes an object of some of them, without white space around.
    Returns: steps to the object's text.
    """
    text, _ = yield from json_page(table, encode, sys.maxsize)
    return text


def json_page(
    table: Mapping[str, T], encode: Callable[[dict[str, T]], bytes], size_max: int
) -> Steps[tuple[bytes, int]]:
    """The first members of a JSON object, in steps.

    Args:
      table, encode: as `json_members` takes them.
      size_max: bytes of the text, about; the first member is written however large it is.
    Returns: steps to the text, and the number of members in it. A peer that asks for pages goes on
      behind those it has.
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
    """A JSON object with a written member in the place of an empty one.

    Args:
      body: the object; the first `empty` in it is the member.
      empty: `"name":{}`.
      text: what stands for the braces.
    """
    before, found, after = body.partition(empty)
    assert found, "the body has no such member"
    return b"".join((before, empty[:-2], text, after))
