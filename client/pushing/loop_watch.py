"""Finds handlers that hold the event loop: nothing else of the program runs meanwhile.

A handler that computes for long, or that calls a function that blocks, delays all other handlers,
the heartbeats of the client and, in a web framework, every request.

Java counterpart: none; its handlers run in threads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOP_HELD_S: Final = 0.2
"""Seconds without an `await` after which a handler is named in the log. asyncio's debug mode logs
after 0.1 s; this is above what a busy machine makes of a short step."""


class LoopWatch:
    """Logs each handler that holds the loop for longer than LOOP_HELD_S, once."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def call(self, name: str, function: Callable[[Any], T], argument: object) -> T:
        """Call a plain function in the loop; `name` is that of the handler."""
        start_s = time.perf_counter()
        try:
            return function(argument)
        finally:
            held_s = time.perf_counter() - start_s
            if held_s > LOOP_HELD_S:
                self.log(name, held_s)

    def log(self, name: str, held_s: float) -> None:
        """Log that a handler held the loop, unless it is logged already."""
        if name not in self._logged:
            self._logged.add(name)
            logger.warning(
                "the handler %s held the event loop for %.2f s: nothing else ran meanwhile, not"
                " even heartbeats. Pass a plain function without in_loop=True, which runs in a"
                " thread, or await what takes long. (It is logged once.)",
                name,
                held_s,
            )


class Watched:
    """An awaitable of a handler, whose steps are measured.

    Args:
      awaitable: what the handler returned.
      name: the handler's.
      watch: logs a step that takes too long.
    """

    __slots__ = ("_awaitable", "_name", "_watch")

    def __init__(self, awaitable: Awaitable[Any], name: str, watch: LoopWatch) -> None:
        self._awaitable = awaitable
        self._name = name
        self._watch = watch

    def __await__(self) -> Generator[Any, Any, Any]:
        steps: Any = self._awaitable.__await__()
        now = time.perf_counter
        value: Any = None
        error: BaseException | None = None
        while True:
            start_s = now()
            try:
                if error is not None:
                    waits_for = steps.throw(error)
                else:
                    # Not all iterators have `send`: that of an asyncio.Future in C has.
                    waits_for = next(steps) if value is None else steps.send(value)
            except StopIteration as end:
                return end.value
            finally:
                held_s = now() - start_s
                if held_s > LOOP_HELD_S:
                    self._watch.log(self._name, held_s)
            error = None
            try:
                value = yield waits_for
            except GeneratorExit:
                close = getattr(steps, "close", None)
                if close is not None:
                    close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - the handler's to handle
                error = thrown
