"""Base class of producers and consumers: their client, and their membership in it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, NoReturn, Protocol, Self, TypeVar

from ...remoting.bodies import SubscriptionData
from ..checks import process
from ..checks.misuse import check_client
from ..core.subscription import FilterClass, MessageSelector, read_subscription
from ..errors import ClosedError, ConfigurationError
from ..tasks.task_host import Openable
from .client import Client
from .members import GroupMember
from .options import ClientOptions

T = TypeVar("T")


class Membership(enum.Enum):
    """Whether a producer or consumer is a member of its group."""

    NEW = enum.auto()
    """It was not opened."""
    JOINED = enum.auto()
    LEFT = enum.auto()
    """It was closed."""


_JOINED: Final = Membership.JOINED
"""Looked up once: a send asks for it."""


class Traces(Protocol):
    """Reports messages to the trace topic in the background."""

    @property
    def dropped_count(self) -> int:
        """Number of records that were dropped."""

    def open(self) -> None:
        """Begin to send records."""

    async def close(self) -> None:
        """Send what is left, for a limited time."""


class Participant(Openable):
    """Base of producers and consumers: opens the client if it is not shared, joins and leaves it.

    Lifecycle: one `async with` block, or `open` and `close`. A subclass sets `_member` in its
    constructor, and `_traces` if it is traced. It overrides `_before_joining`, `_after_joining` and
    `_leave` as needed.

    Args:
      client: a URL, or an open Client to share with other objects.
      options: options for a client that is created from a URL.
      group: name of the group, without namespace.
      check: raises ValueError if the group's name is invalid.

    Raises: ConfigurationError: an argument is invalid.
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
        self._client = own_client(client, options, type(self).__name__)
        self._group = self._client.with_namespace(configured(check, group))
        self._stack = AsyncExitStack()
        self._membership = Membership.NEW
        self._traces: Traces | None = None

    @property
    def dropped_trace_count(self) -> int:
        """Number of trace records that were dropped, so that timelines have gaps; see `trace`."""
        return 0 if self._traces is None else self._traces.dropped_count

    @property
    def client(self) -> Client:
        """The client that it uses: the shared one, or one that was created from the URL."""
        return self._client

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._is_own_client:
                await stack.enter_async_context(self._client)
            await self._before_joining()
            await self._client.add_member(self._member)
            self._membership = Membership.JOINED
            stack.push_async_callback(self._leave)
            if self._traces is not None:
                self._traces.open()
            await self._after_joining()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._stack.aclose()
        finally:
            self._membership = Membership.LEFT

    def _check_open(self) -> None:
        """Check that it can be used; its client may be open although it is not.

        Raises: ClosedError: not open, or closed. ForkedError: opened in the parent process.
          WrongLoopError: opened in another event loop.
        """
        self._client.check_open()
        if self._membership is not _JOINED:
            name = f"this {type(self).__name__}"
            if self._membership is Membership.NEW:
                raise ClosedError(
                    f"{name} is not open: use `async with`, or `await` its `open()` first"
                )
            raise ClosedError(f"{name} is closed: create another one")

    @property
    def _was_opened(self) -> bool:
        """Whether it was ever opened: only then does a ClosedError end an iteration silently."""
        return self._membership is not Membership.NEW

    def _check_loop(self) -> None:
        self._client.check_loop()

    def __reduce__(self) -> NoReturn:
        process.refuse_pickling(self)

    async def _before_joining(self) -> None:
        """Called when the client is open, before it has this member."""

    async def _after_joining(self) -> None:
        """Called when the client has this member; after an error, `_leave` is called."""

    async def _leave(self) -> None:
        """Called before the client is closed; also removes this member from it."""
        try:
            await self._client.remove_member(self._member)
        finally:
            # After it, because this may take longer than what is left of the time for closing.
            if self._traces is not None:
                await self._traces.close()


def own_client(client: str | Client, options: ClientOptions, kind: str) -> Client:
    """The given client, or a new one for a URL.

    Args:
      client: what the program gave to an object of the class `kind`.
      options: options for a new client.

    Raises: ConfigurationError: it is neither, or there are options, but the client exists already.
    """
    check_client(client, kind=kind, door="trocket", client_type=Client)
    if isinstance(client, Client):
        if options:
            raise ConfigurationError(
                f"{', '.join(options)}: pass these options to the Client that is shared"
            )
        return client
    return Client(client, **options)


def configured(check: Callable[[T], Any], value: T) -> T:
    """Check a value and return it.

    Raises: ConfigurationError: `check` raised ValueError; it has the same text.
    """
    try:
        check(value)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    return value


def subscribed_to(topic: str, selector: MessageSelector, wall_ms: int) -> SubscriptionData:
    """The subscription of a consumer that asks for its messages itself.

    Args:
      topic: with namespace.
      wall_ms: the time, which is the subscription's version.

    Raises: ConfigurationError: the selector is a FilterClass, or not valid.
    """
    if isinstance(selector, FilterClass):
        raise ConfigurationError(
            "only push consumers support a FilterClass: use a PushConsumer, or tags or Sql"
        )
    try:
        return read_subscription(topic, selector, wall_ms)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
