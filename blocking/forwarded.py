"""Methods of a blocking class that forward to its async class."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")


@overload
def forwarded(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]: ...
@overload
def forwarded(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]: ...
def forwarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that runs the async method in the loop's thread and waits for its result.

    It has the parameters, result, errors and docstring of that method. (Annotate the assignment
    with `Final`, so that pyright treats the type as declared.)
    """
    name = method.__name__

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            # Looked up by name: a subclass of the async class may override it.
            return self._call(getattr(self._inner, name), *args, **kwargs)
    else:

        @functools.wraps(method)
        def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._call_plain(getattr(self._inner, name), *args, **kwargs)

    return call
