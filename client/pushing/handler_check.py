"""Checks of the handlers given to `PushConsumer.run`, and of what they return.

A handler that could never work is refused by name before the first message, with what to write.
Pure.

Java counterpart: none; the compiler checks a MessageListener.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from ..checks.option_check import is_int, is_number
from ..checks.shown import shown
from ..errors import ConfigurationError

CONCURRENCY_MAX: Final = 1024
"""Largest number of handlers that one `run` calls at a time. RocketMQ: consumeThreadMax 1,000."""
BATCH_MAX: Final = 1024
"""Largest number of messages of a batch. RocketMQ: consumeMessageBatchMaxSize, at most 1,024."""
LINGER_S_MAX: Final = 60.0
"""Longest wait for a batch to fill, so that its messages do not seem lost, in seconds."""

_LATER: Final = frozenset({"RECONSUME_LATER", "SUSPEND_CURRENT_QUEUE_A_MOMENT", "ROLLBACK"})
"""Names of states of RocketMQ's listeners by which a message comes again."""

_EXAMPLE: Final = "give a function, such as `async def handle(message): ...`"


class CheckedHandler(NamedTuple):
    """A handler that `run` may call.

    Attributes:
      function: takes a message, or a list of messages.
      is_async: calling it only makes a coroutine, which is awaited.
      name: its name for log messages and errors.
    """

    function: Callable[[Any], Any]
    is_async: bool
    name: str


class Handlers:
    """The handlers of one `run`.

    Args:
      given: a handler, or a mapping of topics to handlers.
      topics: the topics that the consumer subscribes to, as the program knows them.
      is_batch: they take lists of messages.

    Raises: ConfigurationError: a handler cannot be called, or the topics do not match.
    """

    def __init__(self, given: object, topics: Collection[str], *, is_batch: bool = False) -> None:
        self._by_topic: dict[str, CheckedHandler] = {}
        self._for_all: CheckedHandler | None = None
        if not isinstance(given, Mapping):
            self._for_all = check_handler(given, is_batch=is_batch)
            return
        missing = [topic for topic in topics if topic not in given]
        if missing:
            raise ConfigurationError(
                f"no handler for {_listed(missing)}: give `run` one for each subscribed topic"
            )
        unknown = [topic for topic in given if topic not in topics]
        if unknown:
            raise ConfigurationError(
                f"a handler for {_listed(unknown)}, but the consumer subscribes to"
                f" {_listed(topics)}: name it in `subscriptions` too, or remove its handler"
            )
        self._by_topic = {
            topic: check_handler(handler, is_batch=is_batch) for topic, handler in given.items()
        }

    @property
    def all(self) -> list[CheckedHandler]:
        """All handlers."""
        return [self._for_all] if self._for_all is not None else list(self._by_topic.values())

    @property
    def is_by_topic(self) -> bool:
        """Whether each topic has a handler, rather than one for all."""
        return self._for_all is None

    def find(self, topic: str) -> CheckedHandler:
        """The handler for a topic.

        Raises: ConfigurationError: there is none. The group's redeliveries may be of a topic that
          the consumer does not subscribe to any more.
        """
        if self._for_all is not None:
            return self._for_all
        handler = self._by_topic.get(topic)
        if handler is None:
            raise ConfigurationError(
                f"no handler for the topic {topic}, of which the group still has redeliveries:"
                " subscribe to it, and give `run` a handler for it"
            )
        return handler

    def refuse_async(self) -> None:
        """Raises: ConfigurationError: a handler is async."""
        for handler in self.all:
            if handler.is_async:
                raise ConfigurationError(
                    f"the handler {handler.name} is async: pass a plain function, or use"
                    " trocket.client.PushConsumer, which takes async handlers"
                )


def check_run(concurrency: object, batch: object, linger_s: object) -> None:
    """Check the numbers of `run`.

    Raises: ConfigurationError: one is out of range, or does not go with the others.
    """
    if not _is_int_within(concurrency, CONCURRENCY_MAX):
        raise ConfigurationError(
            f"concurrency {concurrency!r} is not in 1..{CONCURRENCY_MAX}: give the number of"
            " handlers at a time"
        )
    if batch is not None and not _is_int_within(batch, BATCH_MAX):
        raise ConfigurationError(
            f"batch {batch!r} is not in 1..{BATCH_MAX}: give the largest number of messages that"
            " one call gets, or None for one message, which is no list"
        )
    if not is_number(linger_s) or not 0 <= linger_s <= LINGER_S_MAX:
        raise ConfigurationError(
            f"linger_s {linger_s!r} is not in 0..{LINGER_S_MAX:g}: give the seconds to wait for a"
            " batch to fill"
        )
    if linger_s and batch is None:
        raise ConfigurationError(
            "linger_s is the time to wait for a batch to fill: give `batch`, its size, too"
        )


def _is_int_within(value: object, most: int) -> bool:
    return is_int(value) and 1 <= value <= most


def check_stop_timeout(timeout_s: object) -> None:
    """Check the time of `stop`.

    Raises: ConfigurationError: it is neither None nor a number from 0 on.
    """
    if timeout_s is not None and not (is_number(timeout_s) and timeout_s >= 0):
        raise ConfigurationError(
            f"timeout_s is {timeout_s!r}: give the seconds that handlers have, from 0 on"
        )


def check_handler(handler: object, *, is_batch: bool = False) -> CheckedHandler:
    """Check that a handler can be called with one argument, and find out its kind.

    Args:
      handler: what the program gave.
      is_batch: it is called with a list of messages, for the text of errors.

    Raises: ConfigurationError: it is no function, or one that cannot handle messages.
    """
    name = handler_name(handler)
    if handler is None:
        raise ConfigurationError(f"the handler is None: {_EXAMPLE}")
    if inspect.iscoroutine(handler) or inspect.isawaitable(handler):
        raise ConfigurationError(
            f"the handler is a coroutine, {name}: pass the function itself, without calling it"
        )
    if inspect.isgenerator(handler) or inspect.isasyncgen(handler):
        raise ConfigurationError(f"the handler is a generator, {name}: {_EXAMPLE}")
    if not callable(handler):
        raise ConfigurationError(
            f"the handler is the {type(handler).__name__} {shown(handler)}, which cannot be"
            f" called: {_EXAMPLE}"
        )
    core = _core(handler)
    if isinstance(core, type):
        raise ConfigurationError(
            f"the handler is the class {name}, of which a call only makes an object: pass a method"
            f" of an object, such as {core.__name__}().handle"
        )
    _check_kind(core, name)
    _check_parameters(handler, name, "a list of messages" if is_batch else "the message")
    return CheckedHandler(handler, _is_async(core), name)


def handler_name(handler: object) -> str:
    """A handler's name for log messages: that of the function within partials and methods."""
    inner = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__qualname__", None)
    if not isinstance(name, str):
        inner = type(inner)
        name = inner.__qualname__
    module = getattr(inner, "__module__", None)
    return f"{module}.{name}" if module else name


def check_outcome(outcome: object, name: str) -> None:
    """Check what a handler returned, which is neither awaited nor used.

    Raises: ConfigurationError: it is a generator or a context manager: nothing ran.
    """
    if outcome is None:
        return
    if inspect.isgenerator(outcome) or inspect.isasyncgen(outcome):
        kind = "a generator"
    elif isinstance(outcome, _CONTEXT_MANAGERS):
        kind = "a context manager"
    else:
        return
    raise ConfigurationError(
        f"the handler {name} returned {kind}, of which nothing ran: pass a function that handles"
        " the message itself"
    )


def _core(handler: object) -> object:
    """The function, or the class, that a call runs in the end."""
    while True:
        if isinstance(handler, functools.partial):
            handler = handler.func
        elif isinstance(handler, staticmethod) or inspect.ismethod(handler):
            handler = handler.__func__
        elif isinstance(handler, types.GenericAlias):
            handler = handler.__origin__
        elif isinstance(handler, type) or inspect.isroutine(handler):
            return handler
        else:
            called = inspect.getattr_static(type(handler), "__call__", None)
            if inspect.iscoroutinefunction(handler):
                return handler  # a mark of its maker: unittest.mock.AsyncMock
            if called is None or not (
                inspect.isfunction(called) or isinstance(called, staticmethod)
            ):
                return handler
            handler = called


@contextlib.contextmanager
def _context_manager() -> Any:
    yield


@contextlib.asynccontextmanager
async def _async_context_manager() -> Any:
    yield


_CONTEXT_MANAGERS: Final = (
    contextlib._GeneratorContextManager,
    contextlib._AsyncGeneratorContextManager,
)
# The code of all functions with these decorators is the same.
_OF_CONTEXT_MANAGERS: Final = {
    _context_manager.__code__,
    _async_context_manager.__code__,
}


def _check_kind(core: object, name: str) -> None:
    code = getattr(core, "__code__", None)
    if code is not None and code in _OF_CONTEXT_MANAGERS:
        raise ConfigurationError(
            f"the handler {name} is a context manager, of which a call runs nothing: pass a plain"
            " or an async function without `yield`"
        )
    is_awaitable = bool(getattr(code, "co_flags", 0) & inspect.CO_ITERABLE_COROUTINE)
    if inspect.isasyncgenfunction(core) or (inspect.isgeneratorfunction(core) and not is_awaitable):
        raise ConfigurationError(
            f"the handler {name} is a generator function, of which a call runs nothing: remove its"
            " `yield`"
        )


def _is_async(core: object) -> bool:
    code = getattr(core, "__code__", None)
    return inspect.iscoroutinefunction(core) or bool(
        getattr(code, "co_flags", 0) & inspect.CO_ITERABLE_COROUTINE
    )


def _check_parameters(handler: Callable[..., Any], name: str, argument: str) -> None:
    if isinstance(handler, staticmethod):
        handler = handler.__func__
    try:
        # Of the function that is called: one with `functools.wraps` may add arguments.
        signature = inspect.signature(handler, follow_wrapped=False)
    except (ValueError, TypeError):  # written in C
        return
    try:
        signature.bind(None)
        return
    except TypeError:
        pass
    parameters = signature.parameters.values()
    required = [
        p
        for p in parameters
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    names = [p.name for p in required]
    takes = f"it is called with {argument} alone"
    if not any(p.kind is not p.KEYWORD_ONLY for p in parameters):
        named = f", but needs {_listed(names)}" if names else ""
        own = name.rpartition(".")[2]
        line = "lambda message: ..." if own == "<lambda>" else f"def {own}(message)"
        raise ConfigurationError(
            f"the handler {name} takes no argument{named}: {takes}: write `{line}`"
        )
    if names[0] == "self":
        raise ConfigurationError(
            f"the handler {name} needs an object for `self`: pass the method of one, such as"
            f" {name.split('.')[-2]}().{name.rpartition('.')[2]}"
        )
    more = [p.name for p in required if p.kind is p.KEYWORD_ONLY] or names[1:]
    given = ", ".join(f"{each}=..." for each in more)
    raise ConfigurationError(
        f"the handler {name} needs {_listed(names)}, but {takes}: give the others beforehand, by"
        f" functools.partial({name.rpartition('.')[2]}, {given})"
    )


def _listed(names: Collection[Any]) -> str:
    texts = [str(each) for each in names]
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]])) if texts else "no topic"


def check_result(result: object) -> None:
    """Check that what a handler returned does not say that it failed.

    Here any return acknowledges the message, which would lose it if the handler meant the opposite.

    Raises: ConfigurationError: it returned False, an exception, or RECONSUME_LATER or the like; the
      message comes again.
    """
    if result is None or result is True:
        return
    name = getattr(result, "name", result)
    says_later = isinstance(name, str) and name.upper() in _LATER
    if result is False or isinstance(result, BaseException) or says_later:
        raise ConfigurationError(
            f"the handler returned {result!r}, and a return acknowledges the message: write `raise"
            " RetryLater()` to have it again (RetryLater(3): after the third delay), and return"
            " nothing when it is done"
        )
