"""Acks: the acknowledgements of one client, gathered while a turn's calls are read.

Clients acknowledge message by message, and those of one receive arrive together. What arrived
together is one request to each broker, and one record of its store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..remoting.codec import RemotingCommand
from ..remoting.headers import encode_header
from ..remoting.pop_requests import (
    BATCH_COUNT_MAX,
    Settled,
    ack_header,
    batch_ack_body,
    is_near,
)
from ..remoting.receipt import Receipt
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.signature import Credentials
from .link import Served

Then = Callable[[RemotingCommand], None]
"""Called once, with the broker's answer."""


class Asking(Protocol):
    """The part of an exchange that acknowledgements use."""

    credentials: Credentials | None

    def guard(self, function: Callable[..., None], *args: Any) -> None:
        """Call a part of a method; an error becomes the call's answer."""

    def ask(
        self,
        broker: str,
        code: RequestCode,
        fields: Mapping[str, str],
        then: Then,
        body: bytes = b"",
    ) -> int:
        """Ask a broker; an error of `then` becomes the call's answer."""

    def ask_for_others(self, broker: str, code: RequestCode, then: Then, body: bytes) -> None:
        """Ask a broker; `then` does not raise."""

    def serve_later(self, served: Served) -> None:
        """Have something served after the calls that came together; inside a turn."""


class _Key(NamedTuple):
    """What the acknowledgements of one request to a broker share."""

    broker: str
    topic: str
    group: str
    credentials: Credentials | None


class _Ack(NamedTuple):
    exchange: Asking
    receipt: Receipt
    then: Then


class Acks:
    """The acknowledgements of one client that its brokers have not been asked for."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, list[_Ack]] = {}

    def add(self, exchange: Asking, topic: str, group: str, receipt: Receipt, then: Then) -> None:
        """Acknowledge a message, inside a turn."""
        if receipt.in_order or not is_near(receipt):
            _ask_alone(exchange, topic, group, receipt, then)
            return
        key = _Key(receipt.broker_name, topic, group, exchange.credentials)
        if not self._waiting:
            exchange.serve_later(self)
        self._waiting.setdefault(key, []).append(_Ack(exchange, receipt, then))

    def serve(self) -> None:
        """Ask the brokers."""
        waiting, self._waiting = self._waiting, {}
        for key, acks in waiting.items():
            for at in range(0, len(acks), BATCH_COUNT_MAX):
                _ask(key, acks[at : at + BATCH_COUNT_MAX])


def _ask(key: _Key, acks: Sequence[_Ack]) -> None:
    exchange, receipt, then = acks[0]
    if len(acks) == 1:
        _ask_alone(exchange, key.topic, key.group, receipt, then)
        return
    settled = [Settled(key.topic, each.receipt) for each in acks]
    body = batch_ack_body(key.broker, key.group, settled)

    def answered(answer: RemotingCommand) -> None:
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            # A broker of Apache's 5.0, through a proxy.
            for each in acks:
                _ask_alone(each.exchange, key.topic, key.group, each.receipt, each.then)
            return
        for each in acks:
            each.exchange.guard(each.then, answer)

    exchange.ask_for_others(key.broker, RequestCode.BATCH_ACK_MESSAGE, answered, body)


def _ask_alone(exchange: Asking, topic: str, group: str, receipt: Receipt, then: Then) -> None:
    header = ack_header(receipt, topic, group)
    exchange.ask(receipt.broker_name, RequestCode.ACK_MESSAGE, encode_header(header), then)
