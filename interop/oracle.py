"""The oracle: Apache's classes in a JVM, called through a line protocol.

::

    with Oracle("5.5.0") as oracle:
        oracle.ask("hash_code", text="Aa")                      # 2112
        oracle.ask_all([("hash_code", {"text": text}) for text in texts])

The Java side is interop/clients/java/oracle/Oracle.java, whose `ask` lists the operations and their
fields. Bytes are hex in both directions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from . import class_archive
from .guard import temporary_folder
from .maven import JAVA_OPENS, JAVA_SMALL, compile_java
from .process import LineProcess, PeerError

START_TIMEOUT_S: Final = 60.0
ANSWER_TIMEOUT_S: Final = 60.0
ASKED_TOGETHER_MAX: Final = 1000
"""Questions sent before their answers are awaited."""
SHOWN_CHARS_MAX: Final = 500
"""Characters of a question in an error text."""

Question: TypeAlias = tuple[str, Mapping[str, object]]
"""An operation and its fields."""


class RefusedError(PeerError):
    """Apache's class raised an exception; the message has its name and message."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of Apache's classes: a value, or the exception they raised ("" for none)."""

    value: Any
    error: str = ""


class Oracle:
    """A JVM with the classes of one version. Use it as a context manager; not thread-safe.

    Args:
      version: 4.9.7 or 5.5.0; missing jars and classes are fetched and built.
      folder: for its logs; None: a temporary one.
    Raises: PeerError: it could not be built or started.
    """

    def __init__(self, version: str, folder: Path | None = None) -> None:
        self.version = version
        self._answers: dict[int, Answer] = {}
        self._count = 0
        self._stack = ExitStack()
        class_path = compile_java(version, folder="oracle", jar_set="server")
        if folder is None:
            folder = self._stack.enter_context(temporary_folder())
        command = ["java", *JAVA_SMALL, *JAVA_OPENS, f"-Duser.home={folder}"]
        command += ["-cp", class_path, "Oracle"]
        self._command = class_archive.with_archive(command)
        try:
            self._process = LineProcess(
                self._command, folder=folder, name=f"oracle-{version}", on_line=self._on_line
            )
            self._stack.callback(self._process.kill)
            self._ask_some([("version", {})], START_TIMEOUT_S)
            self._stack.callback(class_archive.dump, self._command, self._process.pid)
        except PeerError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._process.pid

    def close(self) -> None:
        """End the JVM."""
        self._stack.close()

    def _on_line(self, line: str) -> None:
        if not line.startswith('{"id":'):
            return
        found = json.loads(line)
        self._answers[found["id"]] = Answer(found.get("ok"), found.get("error", ""))

    def ask(self, op: str, **fields: object) -> Any:
        """The value of one operation.

        Raises:
          RefusedError: Apache's class raised an exception.
          PeerError: the JVM ended, or did not answer in `ANSWER_TIMEOUT_S`.
        """
        (answer,) = self.ask_all([(op, fields)])
        if answer.error:
            raise RefusedError(f"{op} in {self.version}: {answer.error}")
        return answer.value

    def ask_all(self, questions: Iterable[Question]) -> list[Answer]:
        """The answers to many questions, in order; pipelined, so faster than one by one.

        Raises: PeerError: the JVM ended, or did not answer for `ANSWER_TIMEOUT_S`.
        """
        asked = list(questions)
        answers: list[Answer] = []
        for start in range(0, len(asked), ASKED_TOGETHER_MAX):
            some = asked[start : start + ASKED_TOGETHER_MAX]
            answers += self._ask_some(some, ANSWER_TIMEOUT_S)
        return answers

    def _ask_some(self, questions: list[Question], timeout_s: float) -> list[Answer]:
        if not self._process.running:
            raise PeerError(f"oracle-{self.version} has ended\n{self._process.tail()}")
        first = self._count
        self._count += len(questions)
        wanted = range(first, self._count)
        lines = [
            json.dumps({"id": number, "op": op, **fields})
            for number, (op, fields) in zip(wanted, questions, strict=True)
        ]
        what = f"the answer to {lines[0][:SHOWN_CHARS_MAX]}"
        if len(lines) > 1:
            what += f" and {len(lines) - 1} more"
        for line in lines:
            self._process.write_line(line)

        def answered() -> bool | None:
            # Answers come in the order of the questions.
            return True if wanted[-1] in self._answers else None

        self._process.wait(answered, timeout_s=timeout_s, what=what)
        return [self._answers.pop(number) for number in wanted]
