"""The clients of a chaos run, as processes: those that send and those that take.

All have the same arguments and lines: see interop/clients/java/src/Numbers.java. Their lines go
into the ledger. What is no report, such as a warning of a JVM, is in their files, and counts as
nothing.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from trocket.bench.chaos_ledger import Ledger
from trocket.interop.cpp_program import CPP_PROGRAM, cpp_python
from trocket.interop.go_program import build_go
from trocket.interop.java_program import java_command
from trocket.interop.process import LineProcess, PeerError

JAVA: Final = "java"
GO: Final = "go"
CPP: Final = "cpp"
PYTHON: Final = "python"

JAVA_VERSION: Final = "5.5.0"
KEYS: Final = 2
"""Streams of each producer, and queues of its topic."""
START_S: Final = 90.0
"""Until a client is ready, on a busy machine, while a name server may hang."""
STOP_S: Final = 60.0
ERRORS_MAX: Final = 20
"""Kinds of errors that a report names of each client."""
ERROR_CHARS_MAX: Final = 160
VARIABLE: Final = re.compile(r"0x[0-9a-f]+|[0-9A-F]{16,}|[0-9]+([.:][0-9]+)*( m?s)?")
"""Times, addresses and ids, without which errors of one kind have one text."""

SENT: Final = re.compile(r"sent ([0-9]+) ([0-9]+) -?[0-9]+ ([0-9]+)")
TOOK: Final = re.compile(r"took (\S+) [0-9]+ ([0-9]+) ([0-9]+):([0-9]+)")
FAILED: Final = re.compile(r"failed (.*)")
"""The reports; all other lines are a program's own, or its virtual machine's."""

Command = Callable[[Path, tuple[str, ...]], list[str]]


def topic_of(client: str) -> str:
    """The topic that a client's producer sends to."""
    return f"Chaos-{client}"


def group_of(client: str) -> str:
    """The group of a client's consumers."""
    return f"chaos-take-{client}"


def _java(folder: Path, words: tuple[str, ...]) -> list[str]:
    return java_command(JAVA_VERSION, "Numbers", *words, folder=folder)


def _go(folder: Path, words: tuple[str, ...]) -> list[str]:
    return [str(build_go()), "numbers", *words]


def _cpp(folder: Path, words: tuple[str, ...]) -> list[str]:
    return [str(cpp_python()), str(CPP_PROGRAM.with_name("numbers_in_order.py")), *words]


def _python(folder: Path, words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "trocket.interop.clients.python.numbers_in_order", *words]


COMMANDS: Final[Mapping[str, Command]] = {JAVA: _java, GO: _go, CPP: _cpp, PYTHON: _python}


def prepared(names: Iterable[str], folder: Path) -> tuple[list[str], dict[str, str]]:
    """The clients that can run here, built or fetched; and why the others cannot."""
    found, missing = [], {}
    for name in names:
        try:
            COMMANDS[name](folder, ())
        except PeerError as error:
            missing[name] = str(error).splitlines()[0]
        else:
            found.append(name)
    return found, missing


class Client:
    """A producer or a consumer, which can be killed, frozen and started again.

    Args:
      name: `send-java`, `take-go` and so on.
      words: makes the program's arguments, at each start.
      on_line: is given each line; may be called in several threads.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        words: Callable[[], tuple[str, ...]],
        on_line: Callable[[str], None],
    ) -> None:
        self.name = name
        self._folder = folder
        self._words = words
        self._on_line = on_line
        self._process: LineProcess | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Start it, and wait until it is ready. Raises PeerError."""
        client = self.name.partition("-")[2].partition("-")[0]
        command = COMMANDS[client](self._folder, self._words())
        self._process = LineProcess(
            command, folder=self._folder, name=self.name, on_line=self._on_line
        )
        self._process.wait_line(lambda line: line == "ready", timeout_s=START_S)

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Freeze it (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.running:
            os.kill(self._process.pid, number)

    def stop(self) -> bool:
        """Have it close its client, and end; whether it did in time. It is killed in the end."""
        if self._process is None or not self._process.running:
            return False
        try:
            self._process.write_line("stop")
            self._process.wait_line(lambda line: line == "done", timeout_s=STOP_S)
        except PeerError:
            return False
        finally:
            self._process.kill()
        return True


class Crowd:
    """All clients of a run, and their ledger.

    Args:
      names: of COMMANDS; each is a producer, and a consumer of all producers' topics.
      pause_ms: of a producer, between two sends of each key.

    Attributes:
      members: by name; `join` adds further consumers.
      lock: held to read or write the ledger.
      errors: by client, texts of failed sends, and how often they came.
      crashes: reports that cannot be, such as a number that is not the next one.
    """

    def __init__(self, names: list[str], namesrv: str, folder: Path, pause_ms: int) -> None:
        self.ledger = Ledger(names, names, KEYS)
        self.lock = threading.Lock()
        self.errors: dict[str, Counter[str]] = {}
        self.crashes: list[str] = []
        self._began_s = time.monotonic()
        self._namesrv = namesrv
        self._folder = folder
        self._topics = {topic_of(name): name for name in names}
        self.members: dict[str, Client] = {}
        for name in names:
            self.members[f"take-{name}"] = self._taker(name, f"take-{name}")
        for name in names:
            self.members[f"send-{name}"] = self._sender(name, pause_ms)

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began_s

    def _sender(self, name: str, pause_ms: int) -> Client:
        def words() -> tuple[str, ...]:
            with self.lock:
                numbers = [self.ledger.next_number((name, key)) for key in range(KEYS)]
            firsts = ",".join(map(str, numbers))
            return "send", self._namesrv, topic_of(name), str(pause_ms), firsts

        return Client(f"send-{name}", self._folder, words, partial(self.line, f"send-{name}"))

    def _taker(self, name: str, process: str) -> Client:
        def words() -> tuple[str, ...]:
            return "take", self._namesrv, group_of(name), ",".join(self._topics)

        return Client(process, self._folder, words, partial(self.line, f"take-{name}"))

    def line(self, client: str, line: str) -> None:
        """Note what a client reports; a line that is no report counts as nothing.

        Args:
          client: `send-java`, `take-go` and so on.
        """
        name = client.partition("-")[2]
        if sent := SENT.fullmatch(line):
            key, number, offset = map(int, sent.groups())
            self._note(name, lambda at_s: self.ledger.confirm((name, key), number, offset, at_s))
        elif took := TOOK.fullmatch(line):
            offset, key, number = map(int, took.groups()[1:])
            stream = (self._topics.get(took[1], took[1]), key)
            self._note(name, lambda at_s: self.ledger.take(name, stream, offset, number, at_s))
        elif failed := FAILED.fullmatch(line):
            self._failed(client, failed[1])

    def _note(self, name: str, note: Callable[[float], None]) -> None:
        with self.lock:
            try:
                note(self.now_s())
            except ValueError as error:
                self.crashes.append(f"{name}: {error}")

    def _failed(self, client: str, text: str) -> None:
        text = VARIABLE.sub("N", text)[:ERROR_CHARS_MAX]
        with self.lock:
            errors = self.errors.setdefault(client, Counter())
            errors[text if text in errors or len(errors) < ERRORS_MAX else "others"] += 1

    def start(self) -> None:
        """Start all, consumers first. Raises PeerError."""
        for member in self.members.values():
            member.start()

    def join(self, client: str) -> Client:
        """One more consumer of a client's group, started. Raises PeerError."""
        more = self._taker(client, f"take-{client}-more")
        more.start()
        return more

    def stop_sending(self) -> list[str]:
        """Stop the producers; the names of those that did not end as asked."""
        return self._stopped("send-")

    def stop_taking(self) -> list[str]:
        """Stop the consumers; the names of those that did not end as asked."""
        return self._stopped("take-")

    def _stopped(self, role: str) -> list[str]:
        return [
            name
            for name, member in self.members.items()
            if name.startswith(role) and not member.stop()
        ]

    def kill(self) -> None:
        """End all that still run."""
        for member in self.members.values():
            member.thaw()
            member.kill()
