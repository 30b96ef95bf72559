"""anyio's task group, for tasks that may be cancelled before their first step.

When an asyncio program ends, its loop cancels all tasks. anyio wraps the coroutine of a task in
another one, so that of a task without a step is never awaited, and Python warns of that. A client
that was not closed would have such warnings printed at the end of the program.

Java counterpart: none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import anyio
import anyio.abc

T = TypeVar("T")

AsyncFunction: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]


class TaskGroup:
    """A task group that closes the coroutines of tasks that have not begun when it ends.

    Use as `anyio.create_task_group()`.
    """

    def __init__(self) -> None:
        self._group = anyio.create_task_group()
        self._numbers = itertools.count()
        self._not_begun: dict[int, Coroutine[Any, Any, None]] = {}

    @property
    def cancel_scope(self) -> anyio.CancelScope:
        """The scope of all its tasks."""
        return self._group.cancel_scope

    def start_soon(self, function: AsyncFunction, *args: Any) -> None:
        """Run an async function in the group."""
        number = next(self._numbers)
        coroutine = self._not_begun[number] = self._begin(number, function, args)
        self._group.start_soon(lambda: coroutine, name=function)

    async def _begin(self, number: int, function: AsyncFunction, args: tuple[Any, ...]) -> None:
        del self._not_begun[number]
        await function(*args)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        try:
            return bool(await self._group.__aexit__(kind, error, traceback))
        finally:
            for coroutine in self._not_begun.values():
                coroutine.close()
            self._not_begun.clear()


async def together(calls: Iterable[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """Make calls at the same time, and return their results in the same order.

    Raises: the exception of the first one that fails; the others are cancelled then.
    """
    results: dict[int, T] = {}
    failures: list[Exception] = []

    async def run(number: int, call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        try:
            results[number] = await call()
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
            group.cancel_scope.cancel()

    async with TaskGroup() as group:
        for number, call in enumerate(calls):
            group.start_soon(run, number, call)
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(results))]
