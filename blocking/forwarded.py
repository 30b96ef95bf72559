"""Verbs of an async class, as methods of the blocking class beside it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")


@overload
def forwarded(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]: ...
@overload
def forwarded(verb: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]: ...
def forwarded(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A method that runs the verb of this name in the loop's thread, and waits for its result.

    It has the verb's parameters, result, errors and docstring. (`Final` where it is assigned lets
    pyright take its type for declared.)
    """
    name = verb.__name__

    if inspect.iscoroutinefunction(verb):

        @functools.wraps(verb)
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            # By name: a subclass of the async class may have its own.
            return self._call(getattr(self._inner, name), *args, **kwargs)
    else:

        @functools.wraps(verb)
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._call_plain(getattr(self._inner, name), *args, **kwargs)

    return call
