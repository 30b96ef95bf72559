"""Service: what the methods share: the messages' classes, the limits, the brokers behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from ..common.clock import WallTimeMs
from ..grpc_protocol.enums import Code
from ..grpc_protocol.schema import Messages
from ..remoting.bodies import SubscriptionGroupConfig, TopicConfig
from ..remoting.mq_version import mq_version
from ..remoting.send_template import SendTemplate
from ..remoting.signature import Credentials
from .answers import SendAnswers
from .link import LinkOwner, Links
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


class OnBroker(NamedTuple):
    """A topic on one broker.

    Attributes:
      broker: its name.
      config: its settings there. The permission to write is left out where there is no master.
    """

    broker: str
    config: TopicConfig


class Awaited(Exception):
    """Raised by a look-up that has to ask first. What needs it is called again when that is done,
    so it must not have done anything yet.

    Args:
      when_done: calls a function once, in a turn, when the answer is there or will not come; the
        look-up does not raise this then.
    """

    def __init__(self, when_done: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self.when_done = when_done


class Backend(Protocol):
    """What is behind the service: one broker, in the same process, or those of a cluster.

    A look-up of a cluster may raise Awaited, or Refused if nothing answers.
    """

    def topic(self, name: str) -> Sequence[OnBroker]:
        """A topic on its brokers, sorted by their names; empty: there is none."""

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """A group's settings; None: there is none."""

    def brokers(self, topics: Collection[str]) -> Collection[str]:
        """The brokers of all these topics."""

    def avoids(self, broker: str) -> bool:
        """Whether a broker did not answer lately, so that sends go to others if there are some."""

    def links(self, owner: LinkOwner) -> Links:
        """Connect a client to its brokers."""

    @property
    def has_accounts(self) -> bool:
        """Whether calls have to be signed."""

    def secret(self, access_key: str) -> str | None:
        """What an account signs with; None: there is no such account, or it is disabled."""

    def refusal(self, access_key: str, right: Right, host: str) -> str | None:
        """Why an account, whose client has this address, does not have a right; None: it has."""


VERSION: Final = mq_version(5, 0, 0)
"""The version of each gRPC client, to the broker. Source: ClientActivity.java of 5.5.0."""

TEMPLATES_MAX: Final = 1_024
"""Topics, languages and accounts whose sends have a template, each of some KB."""


class SendTemplates:
    """The templates of sends, by what all sends of some clients to a topic share."""

    def __init__(self) -> None:
        self._templates: dict[tuple[str, int, Credentials | None], SendTemplate] = {}

    def of(self, topic: str, language: int, credentials: Credentials | None) -> SendTemplate:
        """The template of sends to a topic, signed by an account if one is given."""
        key = (topic, language, credentials)
        template = self._templates.get(key)
        if template is None:
            template = SendTemplate(
                topic, topic, credentials=credentials, language=language, version=VERSION
            )
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            self._templates[key] = template
        return template


@dataclass(slots=True)
class Service:
    """What all calls share.

    Attributes:
      backend: the brokers.
      now_ms: the time of day.
      messages: the classes of messages.
      rules: the limits.
      numbers: for queues by turns, and nonces.
      ok, ok_encoded: the message Status of success.
      send_answers: writes answers to sends.
      send_templates: encode sends to the broker.
    """

    backend: Backend
    now_ms: Callable[[], WallTimeMs]
    messages: Messages = field(default_factory=Messages)
    rules: Rules = field(default_factory=Rules)
    numbers: count[int] = field(default_factory=count)
    ok: Any = field(init=False)
    ok_encoded: bytes = field(init=False)
    send_answers: SendAnswers = field(init=False)
    send_templates: SendTemplates = field(default_factory=SendTemplates)

    def __post_init__(self) -> None:
        self.ok = self.messages.Status(code=Code.OK, message=Code.OK.name)
        self.ok_encoded = self.ok.SerializeToString()
        self.send_answers = SendAnswers(self.ok_encoded)

    def status(self, code: Code = Code.OK, text: str = "") -> Any:
        """A message Status; its text is the code's name if there is no other.

        That of success is always the same object: it must not be changed.
        """
        if code is Code.OK and not text:
            return self.ok
        return self.messages.Status(code=code, message=text or code.name)
