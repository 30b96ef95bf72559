"""Worker threads for plain handlers, which may block.

They are daemon threads: unlike those of anyio under asyncio, one that hangs does not delay the end
of the program.

Java counterpart: the thread pool of ConsumeMessageConcurrentlyService.
"""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from ...remoting.message import MessageExt
from ..connection.client import Client
from ..errors import ClosedError
from ..tasks.loop_call import LoopCall
from .pushed_message import AssignedQueue, Begun, ConsumeResults, PushedMessage

try:
    from sniffio import current_async_library_cvar as _library
except ImportError:  # no package needs it here
    _library = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)


class HandlerThread:
    """A thread that calls one handler at a time, for a task of the event loop.

    The thread starts with the first call. A call whose task is cancelled goes on in the thread, and
    its result is dropped.

    Args:
      loop_call: calls back into the event loop.
    """

    def __init__(self, name: str, loop_call: LoopCall) -> None:
        self._name = name
        self._loop_call = loop_call
        self._inbox: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._call: _Call | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it runs a call."""
        return self._call is not None

    async def call(self, function: Callable[[Any], Any], argument: object) -> object:
        """Call a function in the thread, with the context variables of this task.

        Raises: the function's exception.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        call = self._call = _Call(function, argument)
        self._inbox.put(call)
        await call.done.wait()
        if call.error is not None:
            try:
                raise call.error
            finally:
                call.error = None  # its traceback refers to this frame
        return call.result

    async def wait_idle(self) -> None:
        """Wait until the call has returned, whose task was cancelled."""
        if self._call is not None:
            await self._call.done.wait()

    def end(self) -> None:
        """End the thread when its call has returned."""
        self._inbox.put(None)

    def _run(self) -> None:
        while (call := self._inbox.get()) is not None:
            call.run()
            if not self._loop_call(self._finish, call):
                return

    def _finish(self, call: _Call) -> None:
        self._call = None
        call.done.set()


class _Call:
    """A call of a function in a thread, and its outcome."""

    def __init__(self, function: Callable[[Any], Any], argument: object) -> None:
        self._function = function
        self._argument = argument
        self._context = contextvars.copy_context()
        # In the thread no loop runs: a handler may run one there.
        if _library is not None:
            self._context.run(_library.set, None)
        self.done = anyio.Event()
        self.result: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Call the function."""
        try:
            self.result = self._context.run(self._function, self._argument)
        except BaseException as error:  # noqa: BLE001 - raised in the event loop
            self.error = error


class ThreadSettling:
    """Has the messages of handlers in threads settled in the event loop.

    Args:
      client: an open client, in its loop.
      loop_call: calls back into the loop.
    """

    def __init__(self, client: Client, loop_call: LoopCall) -> None:
        self._client = client
        self._loop_call = loop_call
        # A consumer has two at most: for pulls and for pops.
        self._made: dict[int, ConsumeResults] = {}

    def __call__(self, results: ConsumeResults) -> ConsumeResults:
        """The object that settles messages in place of `results`, from any thread."""
        if isinstance(results, ResultsFromThreads):
            return results
        made = self._made.get(id(results))
        if made is None:
            made = ResultsFromThreads(self._client, results, self._loop_call)
            self._made[id(results)] = made
        return made


class ResultsFromThreads:
    """Settles messages in the event loop, as `results` does. Args: see ThreadSettling."""

    def __init__(self, client: Client, results: ConsumeResults, loop_call: LoopCall) -> None:
        self._client = client
        self._results = results
        self._loop_call = loop_call

    @property
    def deserializer(self) -> Callable[[bytes], Any] | None:
        """Converts the body of a message to its `value`."""
        return self._results.deserializer

    def ack(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """Acknowledge a message, soon."""
        if self._loop_call.is_here:
            self._results.ack(message, assigned)
        else:
            self._loop_call(self._in_loop, self._results.ack, message, assigned)

    def retry(
        self,
        message: PushedMessage,
        ext: MessageExt,
        assigned: AssignedQueue,
        delay_level: int,
        cause: Exception | None,
    ) -> Coroutine[Any, Any, None]:
        """Have a message redelivered; from a thread, that has begun when this returns."""
        if self._loop_call.is_here:
            return self._results.retry(message, ext, assigned, delay_level, cause)
        arguments = (message, ext, assigned, delay_level, cause)
        self._loop_call(self._in_loop, self._client.start_soon, self._results.retry, *arguments)
        return Begun()

    def _in_loop(self, function: Callable[..., object], *args: Any) -> None:
        try:
            function(*args)
        except ClosedError:
            pass  # the message comes again, as it is not acknowledged
        except Exception:  # it must not end the loop
            logger.exception("a message could not be settled")

    def put_back(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """Have a message delivered again; called in the loop."""
        self._results.put_back(message, assigned)
