"""The base of all blocking objects: opened, used by many threads, closed, safe after a fork."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from ..client import process
from ..client.errors import ClosedError
from .loop_object import NO_ERROR, ExitInfo, LoopObject

P = ParamSpec("P")
T = TypeVar("T")
InnerT = TypeVar("InnerT", bound=AbstractAsyncContextManager[Any])


class BlockingObject(Generic[InnerT]):
    """An object of `trocket.client`, which lives in the loop's thread, for other threads.

    Lifecycle: `with` it, or `open` and `close`. Any number of threads may use it in between.

    Args:
      make: makes the async object; again, if this process forked before it was opened, or if
        opening it failed.
    """

    def __init__(self, make: Callable[[], InnerT]) -> None:
        self._make = make
        self._loop_object: LoopObject | None = None
        self._is_closed = False
        self._renew()

    def _renew(self) -> None:
        """Make the async object, which is opened once, in this process."""
        self._pid = os.getpid()
        self._generation = process.generation()
        self._lifecycle = threading.Lock()
        self._made = self._make()

    @property
    def _inner(self) -> InnerT:
        return self._made

    # Lifecycle

    def open(self) -> Self:
        """Connect; returns the object itself. `close` it, or better use `with`.

        If it fails, it may be tried again.

        Raises: ClosedError: it was opened before; ConnectError and what else connecting may raise;
          ForkedError.
        """
        if self._loop_object is None and process.generation() != self._generation:
            # Made before the fork, as servers do that load the program first, and not used yet.
            self._renew()
        self._check_process()
        with self._lifecycle:
            if self._loop_object is not None or self._is_closed:
                raise ClosedError(f"{self} is opened once; make another")
            loop_object = self._enter(self._inner)
            try:
                loop_object.open()
            except BaseException:
                self._made = self._make()
                raise
            self._loop_object = loop_object
        return self

    def _enter(self, inner: InnerT) -> LoopObject:
        """What the object is in the loop; for classes that have more to do."""
        return LoopObject(inner, str(self))

    def close(self) -> None:
        """Leave in good order, and wait for it. The second time, and in a forked child: nothing.

        Raises: as the end of the `with` block of the class.
        """
        self._close(NO_ERROR)

    def _close(self, exit_info: ExitInfo) -> None:
        loop_object = self._loop_object
        if loop_object is None or self._is_closed or process.generation() != self._generation:
            # In a forked child it is not the child's to close.
            return
        loop_object.check_thread()
        self._is_closed = True
        if not loop_object.is_over:  # else its loop failed
            self._leave(loop_object, exit_info)

    def _leave(self, loop_object: LoopObject, exit_info: ExitInfo) -> None:
        """Close what is open; for classes that have more to do."""
        loop_object.close(exit_info)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close((kind, error, traceback))

    def __del__(self) -> None:
        loop_object = getattr(self, "_loop_object", None)
        if loop_object is None or loop_object.is_over or self._is_closed:
            return
        if process.generation() != self._generation:
            return
        self._is_closed = True
        loop_object.close_soon()
        warnings.warn(f"{self} was not closed", ResourceWarning, stacklevel=2, source=self)

    def __str__(self) -> str:
        return f"this {type(self).__name__}"

    # For the verbs

    def _opened(self) -> LoopObject:
        """The object in the loop.

        Raises: ClosedError; ForkedError.
        """
        if process.generation() != self._generation:
            self._check_process()  # raises
        loop_object = self._loop_object
        if loop_object is None:
            raise ClosedError(f"{self} is not open: use `with`, or `open`")
        if self._is_closed:
            raise ClosedError(f"{self} is closed")
        return loop_object

    def _check_process(self) -> None:
        process.check_generation(self._generation, self, self._pid)

    def _call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._opened().call(function, *args, **kwargs)

    def _call_plain(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._opened().call_plain(function, *args, **kwargs)
