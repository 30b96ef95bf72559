"""Service: what the methods share: the messages' classes, the limits, the broker's tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, Protocol

from ..common.clock import WallTimeMs
from ..grpc_protocol.enums import Code
from ..grpc_protocol.schema import Messages
from ..remoting.bodies import SubscriptionGroupConfig, TopicConfig
from ..remoting.channel import Channel
from .answers import SendAnswers
from .rules import Rules


class Right(NamedTuple):
    """What a call does that the broker is not asked for, and so does not check.

    Attributes:
      topic, group: its name; None: it is of the other kind.
      publishes, subscribes: either is enough, if both are true.
    """

    topic: str | None = None
    group: str | None = None
    publishes: bool = False
    subscribes: bool = False


class Directory(Protocol):
    """The topics and groups of the broker."""

    def topic(self, name: str) -> TopicConfig | None:
        """A topic's settings; None: there is none."""

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """A group's settings; None: there is none."""

    def withdraw(self, channel: Channel, opaque: int) -> bool:
        """Forget a pop that its client has given up; whether it waited. It is not answered then."""

    @property
    def has_accounts(self) -> bool:
        """Whether calls have to be signed."""

    def secret(self, access_key: str) -> str | None:
        """What an account signs with; None: there is no such account, or it is disabled."""

    def refusal(self, access_key: str, right: Right, host: str) -> str | None:
        """Why an account, whose client has this address, does not have a right; None: it has."""


@dataclass(slots=True)
class Service:
    """What all calls share.

    Attributes:
      directory: the topics, groups and accounts.
      broker_name: as routes and transaction ids have it.
      now_ms: the time of day.
      messages: the classes of messages.
      rules: the limits.
      numbers: for queues by turns, and nonces.
      ok: the message Status of success.
      send_answers: writes answers to sends.
    """

    directory: Directory
    broker_name: str
    now_ms: Callable[[], WallTimeMs]
    messages: Messages = field(default_factory=Messages)
    rules: Rules = field(default_factory=Rules)
    numbers: count[int] = field(default_factory=count)
    ok: Any = field(init=False)
    send_answers: SendAnswers = field(init=False)

    def __post_init__(self) -> None:
        self.ok = self.messages.Status(code=Code.OK, message=Code.OK.name)
        self.send_answers = SendAnswers(self.ok.SerializeToString())

    def status(self, code: Code = Code.OK, text: str = "") -> Any:
        """A message Status; its text is the code's name if there is no other.

        That of success is always the same object: it must not be changed.
        """
        if code is Code.OK and not text:
            return self.ok
        return self.messages.Status(code=code, message=text or code.name)
