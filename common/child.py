"""Child: a process that this one started, as `trio.Process` has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import trio


class Child(Protocol):
    """The part of a process that is used here; `trio.Process` implements it."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def stdin(self) -> trio.abc.SendStream | None:
        """The parent's end of standard input."""

    @property
    def stderr(self) -> trio.abc.ReceiveStream | None:
        """The parent's end of standard error."""

    @property
    def returncode(self) -> int | None:
        """The exit status, or minus the signal that ended it; None: it runs."""

    async def wait(self) -> int:
        """Wait until it has ended, and reap it."""

    def terminate(self) -> None:
        """Send SIGTERM unless it has ended."""

    def kill(self) -> None:
        """Send SIGKILL unless it has ended."""


OpenProcess = Callable[[], Awaitable[Child]]
"""Starts a process. Raises OSError."""
