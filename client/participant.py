"""The base of producers and consumers: a client, their own or shared, and a place in it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from .client import Client
from .errors import ConfigurationError
from .members import GroupMember
from .options import ClientOptions

T = TypeVar("T")


class Participant:
    """Base of producers and consumers: opens the client if it is theirs, joins it, and leaves it.

    Lifecycle: `async with`, once. A subclass makes its `_member` when it is made, and overrides
    `_before_joining`, `_after_joining` and `_leave` where it has something to do.

    Args:
      client: a URL, or an open Client that is shared with others.
      options: of a client to be made.
      group: without namespace.
      check: raises ValueError if the group's name cannot be right.

    Raises: ConfigurationError: one of them cannot be right.
    """

    _member: GroupMember

    def __init__(
        self,
        client: str | Client,
        options: ClientOptions,
        group: str,
        check: Callable[[str], Any],
    ) -> None:
        self._is_own_client = isinstance(client, str)
        self._client = own_client(client, options)
        self._group = self._client.with_namespace(configured(check, group))
        self._stack = AsyncExitStack()

    @property
    def client(self) -> Client:
        """The client: its own, or the shared one."""
        return self._client

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._is_own_client:
                await stack.enter_async_context(self._client)
            await self._before_joining()
            await self._client.add_member(self._member)
            stack.push_async_callback(self._leave)
            await self._after_joining()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _before_joining(self) -> None:
        """The client is open, and does not know of us yet."""

    async def _after_joining(self) -> None:
        """The client knows us; if this fails, `_leave` follows."""

    async def _leave(self) -> None:
        """The client is open still."""
        await self._client.remove_member(self._member)


def own_client(client: str | Client, options: ClientOptions) -> Client:
    """The client itself, or a new one for a URL.

    Raises: ConfigurationError: options for a client that is there already.
    """
    if isinstance(client, Client):
        if options:
            raise ConfigurationError(
                f"{', '.join(options)}: give options to the Client that is shared"
            )
        return client
    return Client(client, **options)


def configured(check: Callable[[T], Any], value: T) -> T:
    """The value, checked.

    Raises: ConfigurationError: the check's ValueError.
    """
    try:
        check(value)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return value
