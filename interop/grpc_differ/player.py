"""The player, which runs a script on one server and returns the outcome of each step."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..process import PeerError
from ..wire import WireClient
from ..wire_differ.normalise import Normaliser, Side, Tree
from .call import Call, Group, Played, Raw, Script, Step, Talk, Together, Topic, resolved
from .caller import MESSAGES, Caller, Stream, ended, write
from .tree import call_tree, usual

UNTIL_TIMEOUT_S: Final = 15.0
AGAIN_AFTER_S: Final = 0.05
_UPDATE_AND_CREATE_TOPIC: Final = 17


@dataclass(frozen=True)
class Outcome:
    """The result of one step on one side.

    Attributes:
      tree: what is compared, after all normalisers.
      original: the same before them, for reports.
      broken: why there is no answer; "" if there is one.
    """

    tree: Tree = None
    original: Tree = None
    broken: str = ""


class Player:
    """Runs one script on one server.

    Args:
      side: the server; `broker_address` is that of its gRPC port.
      remoting_address: HOST:PORT of its broker, for topics and groups.
    """

    def __init__(self, side: Side, remoting_address: str, script: Script) -> None:
        self._side = side
        self._remoting_address = remoting_address
        self._script = script
        self._played = Played(side)
        self._outcomes: dict[str, Outcome] = {}
        self._callers: dict[str, Caller] = {}
        self._streams: dict[str, Stream] = {}
        self._pause = threading.Event()

    def play(self) -> dict[str, Outcome]:
        """The outcome of each compared step, by its name in a report."""
        try:
            for step in self._script.steps:
                self._step(step)
        finally:
            for stream in self._streams.values():
                stream.close()
            for caller in self._callers.values():
                caller.close()
        return self._outcomes

    def _step(self, step: Step) -> None:
        match step:
            case Call():
                self._finish(step, self._start(step))
            case Together(calls):
                for call, begun in [(call, self._start(call)) for call in calls]:
                    self._finish(call, begun)
            case Talk():
                self._guarded(step, self._talk)
            case Raw():
                self._guarded(step, self._write)
            case Topic() | Group():
                self._create(step)

    def _guarded(self, step: Any, play: Any) -> None:
        try:
            play(step)
        except PeerError as error:
            self._outcomes[self._script.title(step)] = Outcome(broken=str(error))

    def _caller(self, name: str) -> Caller:
        caller = self._callers.get(name)
        if caller is None:
            caller = Caller(self._side.broker_address, f"{self._script.name}@{name}")
            self._callers[name] = caller
        return caller

    def _start(self, call: Call) -> Any:
        return self._caller(call.client).start(call, resolved(call.fields, self._played))

    def _finish(self, call: Call, begun: Any) -> None:
        deadline_s = time.monotonic() + UNTIL_TIMEOUT_S
        answers, status, details = ended(call.method, begun)
        while call.until is not None and not call.until(answers):
            if time.monotonic() > deadline_s:
                break
            self._pause.wait(AGAIN_AFTER_S)
            answers, status, details = ended(call.method, self._start(call))
        self._played.answers[call.name] = answers
        self._keep(call, call_tree(answers, status, details), call.changes)

    def _talk(self, talk: Talk) -> None:
        stream = self._streams.get(talk.client)
        if stream is None or talk.is_new:
            stream = self._caller(talk.client).telemetry(talk.metadata)
            self._streams[talk.client] = stream
        for command in talk.commands:
            stream.send(
                command if isinstance(command, bytes) else encoded(resolved(command, self._played))
            )
        answers = list(stream.answers(talk.answers))
        if talk.closes:
            stream.close()
        status, details = stream.status(waits=talk.closes or len(answers) < talk.answers)
        self._played.answers[talk.name] = answers
        self._keep(talk, call_tree(answers, status, details), talk.changes)

    def _write(self, raw: Raw) -> None:
        self._keep(raw, write(self._side.broker_address, raw), ())

    def _keep(
        self, step: Call | Talk | Raw, original: Tree, changes: tuple[Normaliser, ...]
    ) -> None:
        tree = usual(original, self._side)
        for change in changes:
            tree = change.apply(tree, self._side)
        self._outcomes[self._script.title(step)] = Outcome(tree, original)

    def _create(self, step: Topic | Group) -> None:
        with WireClient(self._remoting_address) as wire:
            if isinstance(step, Group):
                wire.create_group(step.name, **step.members)
                return
            fields: dict[str, object] = {
                "topic": step.name,
                "defaultTopic": "TBW102",
                "readQueueNums": step.reads,
                "writeQueueNums": step.writes,
                "perm": step.perm,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
            }
            if step.kind:
                fields["attributes"] = f"+message.type={step.kind}"
            wire.call(_UPDATE_AND_CREATE_TOPIC, fields).checked()


def encoded(command: Mapping[str, Any]) -> bytes:
    """A TelemetryCommand with these fields."""
    data: bytes = MESSAGES.TelemetryCommand(**command).SerializeToString()
    return data
