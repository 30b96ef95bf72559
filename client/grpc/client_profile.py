"""Profile: what servers know of a client: its members, its account, the messages it has received.

It outlives connections. To servers, each member is a client with an id that no other has, as a
client is either a producer or a consumer there.

Source: Signature.java, ClientImpl.java of rocketmq-clients 5.2.
"""

from __future__ import annotations

import hmac
import itertools
import platform
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ...grpc_protocol.engine import Headers
from ...grpc_protocol.enums import ClientType, Language
from ...grpc_protocol.fields import milliseconds, set_endpoints, set_resource, set_time
from ...grpc_protocol.schema import PACKAGE, SERVICE, Messages
from ...remoting.bodies import SubscriptionData
from ...remoting.signature import Credentials
from ..core.retry_policy import RetryPolicy
from .deliveries import Deliveries

CLIENT_VERSION: Final = "5.1.2"
"""The version of rocketmq-python-client whose protocol this is; servers treat those below 5.0.3 as
old."""

PATH: Final = f"/{PACKAGE}.{SERVICE}/"
"""Before the name of a method in a call's path."""

ALGORITHM: Final = "MQv2-HMAC-SHA1"
REQUEST_TIMEOUT_MS: Final = 3_000
"""In the settings: how long a client waits for an answer."""

DELAYS_MAX: Final = 1_000
"""Pauses of a retry policy that are read."""

ATTEMPTS_OF_BACKOFF: Final = 64
"""Pauses that are computed of a policy whose pauses grow."""

SECONDS_MAX: Final = 3 * 24 * 3600.0


class Member:
    """A producer or consumer, as servers know it.

    Attributes:
      client_id: of its calls.
      group: with namespace.
      kind: of the client.
      topics: those that it publishes to, with namespace, in the order of their first messages.
      subscriptions: of a consumer.
      version: grows when `settings` would say something else.
      given: the settings that a server has given it last, a message Settings; None: none yet.
      refusal: why a server did not take its settings; "": it did, or has not answered.
    """

    def __init__(self, client_id: str, group: str, kind: ClientType) -> None:
        self.client_id = client_id
        self.group = group
        self.kind = kind
        self.topics: dict[str, None] = {}
        self.subscriptions: Sequence[SubscriptionData] = ()
        self.version = 0
        self.given: Any = None
        self.refusal = ""

    @property
    def is_producer(self) -> bool:
        """Whether it is a producer."""
        return self.kind is ClientType.PRODUCER

    @property
    def is_fifo(self) -> bool:
        """Whether the server delivers its group's messages in order."""
        return self.given is not None and bool(self.given.subscription.fifo)

    def publish(self, topic: str) -> None:
        """Note a topic that it publishes to."""
        if topic not in self.topics:
            self.topics[topic] = None
            self.version += 1

    def subscribe(self, kind: ClientType, subscriptions: Sequence[SubscriptionData]) -> None:
        """Note what it consumes."""
        if kind is not self.kind or subscriptions != self.subscriptions:
            self.kind, self.subscriptions = kind, subscriptions
            self.version += 1


class Profile:
    """What servers know of a client.

    Args:
      client_id: the client's; its first member has the same.
      namespace: "": none.
      credentials: sign all calls; None: they are not signed.
      wall_ms: returns the time in ms since 1970.

    Attributes:
      messages: the classes of all messages.
      queues: the last message MessageQueue of each topic and broker.
    """

    def __init__(
        self,
        client_id: str,
        namespace: str,
        credentials: Credentials | None,
        wall_ms: Callable[[], int],
    ) -> None:
        self.messages = Messages()
        self.wall_ms = wall_ms
        self.deliveries = Deliveries()
        self.queues: dict[tuple[str, str], Any] = {}
        self._client_id = client_id
        self._credentials = credentials
        self._numbers = itertools.count()
        self._producers: dict[str, Member] = {}
        self._consumers: dict[str, Member] = {}
        self._usual = [
            (b"x-mq-language", Language.PYTHON.name.encode()),
            (b"x-mq-protocol", b"v2"),
            (b"x-mq-client-version", CLIENT_VERSION.encode()),
            (b"x-mq-namespace", namespace.encode()),
        ]
        if credentials is not None and credentials.security_token:
            self._usual.append((b"x-mq-session-token", credentials.security_token.encode()))
        self._user_agent = self.messages.UA(
            language=Language.PYTHON,
            version=CLIENT_VERSION,
            platform=platform.platform(terse=True),
            hostname=platform.node(),
        )

    # ---- members -------------------------------------------------------------------------

    def producer(self, group: str) -> Member:
        """The producer of a group."""
        return self._member(self._producers, group, ClientType.PRODUCER)

    def consumer(self, group: str) -> Member:
        """The consumer of a group."""
        return self._member(self._consumers, group, ClientType.SIMPLE_CONSUMER)

    def _member(self, members: dict[str, Member], group: str, kind: ClientType) -> Member:
        member = members.get(group)
        if member is None:
            number = next(self._numbers)
            client_id = f"{self._client_id}@{number}" if number else self._client_id
            member = members[group] = Member(client_id, group, kind)
        return member

    def retry_policy(self, group: str) -> RetryPolicy | None:
        """How a consumer's messages are delivered again; None: the server has not said it."""
        member = self._consumers.get(group)
        given = None if member is None else member.given
        if given is None or given.backoff_policy.max_attempts <= 0:
            return None
        delays_s = _delays_s(given.backoff_policy)
        return RetryPolicy(given.backoff_policy.max_attempts, delays_s) if delays_s else None

    def settings(self, member: Member, address: str) -> Any:
        """What a member says of itself to the server at an address: a message Settings."""
        made = self.messages.Settings(client_type=member.kind, user_agent=self._user_agent)
        set_endpoints(made.access_point, address)
        set_time(made.request_timeout, REQUEST_TIMEOUT_MS)
        if member.is_producer:
            made.publishing.SetInParent()
            for topic in member.topics:
                set_resource(made.publishing.topics.add(), topic)
            return made
        set_resource(made.subscription.group, member.group)
        for each in member.subscriptions:
            entry = made.subscription.subscriptions.add()
            set_resource(entry.topic, each.topic)
            set_filter(entry.expression, each.expression_type, each.sub_string)
        return made

    # ---- calls ---------------------------------------------------------------------------

    def metadata(self, member: Member | None) -> Headers:
        """The headers of a call, signed now.

        Args:
          member: who makes it; None: the client.
        """
        client_id = self._client_id if member is None else member.client_id
        date = datetime.fromtimestamp(self.wall_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = [
            *self._usual,
            (b"x-mq-client-id", client_id.encode()),
            (b"x-mq-request-id", str(uuid.uuid4()).encode()),
            (b"x-mq-date-time", date.encode()),
        ]
        known = self._credentials
        if known is not None:
            signature = hmac.new(known.secret_key.encode(), date.encode(), "sha1").hexdigest()
            text = (
                f"{ALGORITHM} Credential={known.access_key}, SignedHeaders=x-mq-date-time,"
                f" Signature={signature.upper()}"
            )
            headers.append((b"authorization", text.encode()))
        return headers


def set_filter(expression: Any, expression_type: str | None, text: str | None) -> None:
    """Set a message FilterExpression."""
    expression.type = 2 if expression_type == "SQL92" else 1
    expression.expression = text or "*"


def _delays_s(policy: Any) -> list[float]:
    strategy = policy.WhichOneof("strategy")
    if strategy == "customized_backoff":
        given = policy.customized_backoff.next[:DELAYS_MAX]
        return [_seconds(each) for each in given]
    if strategy == "exponential_backoff":
        backoff = policy.exponential_backoff
        delay_s, max_s = _seconds(backoff.initial), _seconds(backoff.max)
        factor = min(max(backoff.multiplier, 1.0), 1_000.0)
        count = min(policy.max_attempts, ATTEMPTS_OF_BACKOFF)
        delays_s = []
        for _ in range(count):
            delays_s.append(min(delay_s, max_s))
            delay_s = min(delay_s * factor, SECONDS_MAX)
        return delays_s
    return []


def _seconds(duration: Any) -> float:
    return min(max(milliseconds(duration) / 1000, 0.0), SECONDS_MAX)
