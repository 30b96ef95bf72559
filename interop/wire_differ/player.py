"""The player, which runs a script on one cluster and returns the outcome of each step."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass

from ...remoting.codec import NO_EXT_FIELDS, ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from ...remoting.language_codes import LanguageCode
from ...remoting.signature import SIGNATURE, sign
from ..process import PeerError
from .link import Link
from .normalise import EVERYWHERE, Side, Tree
from .request import Flaw, FromServer, Played, Request, Script, Server, Signer, Step
from .tree import normalised, tree_of

UNTIL_TIMEOUT_S = 30.0
AGAIN_AFTER_S = 0.02


@dataclass(frozen=True)
class Outcome:
    """The result of one step on one side.

    Attributes:
      tree: the answer after all normalisers; None if there was none, and none was expected.
      code: the response code; None: no answer.
      broken: why an expected answer is missing; "" if it is not.
      asked, answered: the original frames, for reports.
    """

    tree: Tree = None
    code: int | None = None
    broken: str = ""
    asked: RemotingCommand | None = None
    answered: RemotingCommand | None = None


class Player:
    """Runs scripts on one cluster, one at a time.

    Args:
      side: the cluster; gets the addresses of the connections.
    """

    def __init__(self, side: Side) -> None:
        self._side = side
        self._pause = threading.Event()

    def play(self, script: Script) -> dict[str, Outcome]:
        """The outcome of each step, by its feature's name; errors of the server raise nothing."""
        self._outcomes: dict[str, Outcome] = {}
        self._script = script
        self._names = {id(step): name for name, step in script.features()}
        self._played = Played(self._side)
        self._links: dict[tuple[Server, str], Link] = {}
        self._side.clients.clear()
        with ExitStack() as self._stack:
            for step in script.steps:
                self._step(step)
            self._check_unasked()
        return self._outcomes

    def _step(self, step: Step) -> None:
        name = self._names[id(step)]
        try:
            if isinstance(step, Request):
                self._outcomes[name] = self._request(step)
            else:
                self._outcomes[name] = self._from_server(step)
        except PeerError as error:
            self._outcomes[name] = Outcome(broken=str(error))
            self._drop(step)
            if isinstance(step, Request):
                for inner in step.meanwhile:
                    reason = f"not run: {step.name} failed"
                    self._outcomes.setdefault(self._names[id(inner)], Outcome(broken=reason))

    def _drop(self, step: Step) -> None:
        """Drop the connection of a failed step; the next step opens a new one."""
        server = step.server if isinstance(step, Request) else Server.BROKER
        self._links.pop((server, step.connection), None)

    def _link(self, server: Server, name: str) -> Link:
        link = self._links.get((server, name))
        if link is None:
            is_broker = server is Server.BROKER
            address = self._side.broker_address if is_broker else self._side.namesrv_address
            link = self._stack.enter_context(Link(address))
            self._links[server, name] = link
            self._side.clients[name if is_broker else f"{name} of {server}"] = link.own_address
        return link

    def _request(self, request: Request) -> Outcome:
        deadline_s = time.monotonic() + UNTIL_TIMEOUT_S
        while True:
            outcome = self._request_once(request)
            answer = outcome.answered
            if request.until is None or (answer is not None and request.until(answer)):
                return outcome
            if time.monotonic() > deadline_s:
                return outcome
            self._pause.wait(AGAIN_AFTER_S)

    def _request_once(self, request: Request) -> Outcome:
        link = self._link(request.server, request.connection)
        asked = self._command(request)
        opaque = link.ask(asked)
        for step in request.meanwhile:
            self._step(step)
        if request.oneway or request.expect is None:
            return Outcome(asked=asked)
        answer = link.answer(opaque)
        self._played.answers[request.name] = answer
        return self._outcome(request, asked, answer)

    def _command(self, request: Request) -> RemotingCommand:
        fields = {
            name: _text(value(self._played) if callable(value) else value)
            for name, value in request.fields.items()
        }
        body = request.body(self._played) if callable(request.body) else request.body
        if request.signer is not None:
            _sign(fields, body, request.signer)
        return RemotingCommand(
            request.code.value,
            fields or NO_EXT_FIELDS,
            body,
            flag=ONEWAY_FLAG if request.oneway else 0,
            language=LanguageCode.JAVA,
            version=request.version,
            serialize_type=self._script.header,
        )

    def _outcome(
        self, step: Step, asked: RemotingCommand | None, answer: RemotingCommand
    ) -> Outcome:
        tree = tree_of(answer, step.body_kind)
        tree = normalised(tree, self._side, (*EVERYWHERE, *step.normalisers))
        return Outcome(tree, answer.code, asked=asked, answered=answer)

    def _from_server(self, step: FromServer) -> Outcome:
        link = self._link(Server.BROKER, step.connection)
        asked = link.request(step.code)
        if step.answer is not None:
            answer = RemotingCommand(
                step.answer.code,
                step.answer.fields,
                step.answer.body,
                step.answer.remark,
                asked.opaque,
                RESPONSE_FLAG,
                language=LanguageCode.JAVA,
                serialize_type=asked.serialize_type,
            )
            link.send(answer)
        return self._outcome(step, None, asked)

    def _check_unasked(self) -> None:
        """Mark requests as broken that got an answer though they expect none."""
        stray = [answer for link in self._links.values() for answer in link.unasked()]
        for name, step in self._script.features():
            silent = isinstance(step, Request) and (step.oneway or step.expect is None)
            outcome = self._outcomes.get(name)
            if silent and outcome is not None and outcome.asked is not None:
                opaque = outcome.asked.opaque
                if any(answer.opaque == opaque for answer in stray):
                    self._outcomes[name] = Outcome(broken="it was answered", asked=outcome.asked)


def _sign(fields: dict[str, str], body: bytes, signer: Signer) -> None:
    """Add the fields of an account and its signature, with the flaw that is wanted."""
    keys, flaw = signer.keys, signer.flaw
    secret = keys.secret_key + ("-other" if flaw is Flaw.OTHER_SECRET else "")
    sign(fields, body + (b"-other" if flaw is Flaw.OTHER_BODY else b""), keys.access_key, secret)
    if flaw is Flaw.CUT_SHORT:
        fields[SIGNATURE] = fields[SIGNATURE][:-8]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
