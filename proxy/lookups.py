"""Lookups: answers of other servers, kept and refreshed while they are used."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

import trio

from ..common.supervision import FailureLog, call_each
from ..grpc_protocol.enums import Code
from ..grpc_server.refused import Refused
from ..grpc_server.service import Awaited
from ..remoting.turn import Turn

_failures = FailureLog(logging.getLogger(__name__))

T = TypeVar("T")

MISSING_S: Final = 1.0
"""How long "there is none" counts, and that nothing answered: a new topic is found soon, and a
client that repeats a call for a wrong one causes one question a second."""

MISSING_MAX: Final = 1_000
"""Names of which that is remembered, apart from the others: wrong names must not displace them."""

ASKED_MAX: Final = 1_000
"""Names that are asked for at a time; further calls are refused. A call waits for an answer for
some seconds at most."""


class UnansweredError(Exception):
    """No server gave a usable answer; the text says what was tried."""


class Freshness(NamedTuple):
    """How long answers count, seconds.

    Attributes:
      refresh_s: after this time an answer is asked for again, when it is used; the old one counts
        until the new one has come.
      entries_max: answers that are kept.
    """

    refresh_s: float
    entries_max: int


class Running(NamedTuple):
    """What runs questions.

    Attributes:
      turn: begun for what waits for an answer.
      start_soon: runs a question as a task.
    """

    turn: Turn
    start_soon: Callable[..., object]


@dataclass(slots=True)
class _Entry(Generic[T]):
    value: T
    at_s: float


@dataclass(slots=True)
class _Asked:
    """A question that is not answered yet."""

    waiting: list[Callable[[], None]] = field(default_factory=list)
    done: trio.Event = field(default_factory=trio.Event)


class Lookups(Generic[T]):
    """Answers by name.

    Args:
      what: of what kind, for messages.
      fetch: asks for one, for a limited time; a false value says that there is none. Raises
        UnansweredError, Refused.
      freshness: see there.
      running: see there.
    """

    def __init__(
        self,
        what: str,
        fetch: Callable[[str], Awaitable[T]],
        freshness: Freshness,
        running: Running,
    ) -> None:
        self._what = what
        self._fetch = fetch
        self._freshness = freshness
        self._turn, self._start_soon = running
        self._found: dict[str, _Entry[T]] = {}
        self._missing: dict[str, _Entry[T | Refused]] = {}
        self._asked: dict[str, _Asked] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __call__(self, name: str) -> T:
        """The answer, as it is known. Raises: Awaited: it is asked for now; Refused: in vain."""
        now_s = trio.current_time()
        entry = self._found.get(name)
        if entry is not None:
            if now_s - entry.at_s >= self._freshness.refresh_s and name not in self._asked:
                self._ask(name)
            return entry.value
        missing = self._missing.get(name)
        if missing is not None and now_s - missing.at_s < MISSING_S:
            if isinstance(missing.value, Refused):
                raise missing.value
            return missing.value
        asked = self._asked.get(name) or self._ask(name)
        raise Awaited(asked.waiting.append)

    async def value(self, name: str) -> T:
        """The answer, as soon as there is one. Raises: Refused."""
        while True:
            try:
                return self(name)
            except Awaited:
                await self._asked[name].done.wait()

    def _ask(self, name: str) -> _Asked:
        if len(self._asked) >= ASKED_MAX:
            text = f"{ASKED_MAX} {self._what} are asked for already, which is the limit"
            raise Refused(Code.TOO_MANY_REQUESTS, text)
        asked = self._asked[name] = _Asked()
        self._start_soon(self._run, name, asked)
        return asked

    async def _run(self, name: str, asked: _Asked) -> None:
        try:
            try:
                value = await self._fetch(name)
            except Refused as refused:
                self._note_missing(name, refused)
            except UnansweredError as error:
                self._note_missing(name, Refused(Code.INTERNAL_SERVER_ERROR, str(error)))
            except Exception as error:  # noqa: BLE001 - our bug: other names are looked up
                meaning = "The calls that need it are refused; it is asked for again"
                _failures.note(f"asking for {self._what}", meaning, error)
                text = f"{type(error).__name__}: {error}"
                self._note_missing(name, Refused(Code.INTERNAL_SERVER_ERROR, text))
            else:
                if value:
                    self._keep(name, value)
                else:
                    self._found.pop(name, None)
                    self._note_missing(name, value)
        finally:
            del self._asked[name]
            asked.done.set()
            with self._turn:
                call_each(asked.waiting, _failures, "a call that waited", "Others are served")

    def _keep(self, name: str, value: T) -> None:
        # The newest last, so that the first is the one that was refreshed, and so used, least.
        self._found.pop(name, None)
        self._missing.pop(name, None)
        if len(self._found) >= self._freshness.entries_max:
            del self._found[next(iter(self._found))]
        self._found[name] = _Entry(value, trio.current_time())

    def _note_missing(self, name: str, value: T | Refused) -> None:
        old = self._found.get(name)
        if old is not None:  # the servers do not answer: what they said last counts
            old.at_s = trio.current_time() - self._freshness.refresh_s + MISSING_S
            return
        self._missing.pop(name, None)
        if len(self._missing) >= MISSING_MAX:
            del self._missing[next(iter(self._missing))]
        self._missing[name] = _Entry(value, trio.current_time())
