"""Base class of the blocking objects: lifecycle, calls from any thread, behaviour after a fork."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Self, TypeVar

from ..client.checks import process
from ..client.checks.misuse import Presentable, wrong_with
from ..client.errors import ClosedError
from .loop_object import NO_ERROR, ExitInfo, LoopObject

P = ParamSpec("P")
T = TypeVar("T")
InnerT = TypeVar("InnerT", bound=AbstractAsyncContextManager[Any])


class BlockingObject(Presentable, Generic[InnerT]):
    """The blocking counterpart of an object of `trocket.client`, which runs in the loop's thread.

    Lifecycle: use it in a `with` block, or call `open` and `close`. Any number of threads may use
    it in between.

    Args:
      make: creates the async object. It is called a second time if the process forked before
        `open`, or if `open` failed.
    """

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            raise wrong_with(self, "with")

        async def __aexit__(self, *exit_info: object) -> None:
            """Never called: `async with` looks for both before it calls one."""

    def __init__(self, make: Callable[[], InnerT]) -> None:
        self._make = make
        self._loop_object: LoopObject | None = None
        self._is_closed = False
        self._renew()

    def _renew(self) -> None:
        """Create the async object, which can be opened once, by this process only."""
        self._pid = os.getpid()
        self._generation = process.generation()
        self._lifecycle = threading.Lock()
        self._made = self._make()

    def __reduce__(self) -> NoReturn:
        process.refuse_pickling(self)

    @property
    def _inner(self) -> InnerT:
        return self._made

    # Lifecycle

    def open(self) -> Self:
        """Connect, and return this object. Prefer a `with` block, which also closes it.

        After an error it can be called again.

        Raises:
          ClosedError: it was opened before.
          ConnectError: a server cannot be reached; other errors of connecting pass through too.
          ForkedError: it was opened in the parent of this process.
        """
        if self._loop_object is None and process.generation() != self._generation:
            # Created before the fork but not opened: servers preload the program, then fork.
            self._renew()
        self._check_process()
        with self._lifecycle:
            if self._loop_object is not None or self._is_closed:
                raise ClosedError(f"{self} can be opened only once; create another one")
            loop_object = self._enter(self._inner)
            try:
                loop_object.open()
            except BaseException:
                self._made = self._make()
                raise
            self._loop_object = loop_object
        return self

    def _enter(self, inner: InnerT) -> LoopObject:
        """Create the LoopObject; subclasses override it to set up more."""
        return LoopObject(inner, str(self))

    def close(self) -> None:
        """Close it cleanly and wait until that is done.

        It has no effect if it is closed already, and in a forked child.

        Raises: the same errors as the end of the `with` block.
        """
        self._close(NO_ERROR)

    def _close(self, exit_info: ExitInfo) -> None:
        loop_object = self._loop_object
        if loop_object is None or self._is_closed or process.generation() != self._generation:
            # A forked child must not close its parent's object.
            return
        loop_object.check_thread()
        self._is_closed = True
        if not loop_object.is_over:  # true if its loop failed
            self._leave(loop_object, exit_info)

    def _leave(self, loop_object: LoopObject, exit_info: ExitInfo) -> None:
        """Close the LoopObject; subclasses override it to do more before."""
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

    # For the methods of subclasses

    def _opened(self) -> LoopObject:
        """The object in the loop.

        Raises: ClosedError: not open, or closed. ForkedError: opened in the parent process.
        """
        if process.generation() != self._generation:
            self._check_process()  # raises
        loop_object = self._loop_object
        if loop_object is None:
            raise ClosedError(f"{self} is not open: use `with`, or call its `open()` first")
        if self._is_closed:
            raise ClosedError(f"{self} is closed: create another one")
        return loop_object

    @property
    def _was_opened(self) -> bool:
        """Whether it was ever opened: only then does a ClosedError end an iteration silently."""
        return self._loop_object is not None

    def _check_process(self) -> None:
        process.check_generation(self._generation, self, self._pid)

    def _call(
        self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._opened().call(function, *args, **kwargs)

    def _call_plain(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._opened().call_plain(function, *args, **kwargs)
