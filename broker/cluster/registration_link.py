"""RegistrationLink: the registration of the broker with one name server, and its pending changes.

The whole table is registered at the start, in every period, and on every new connection, because a
name server drops the brokers of a closed connection. In between only new and changed topics are
registered.

Java counterpart: BrokerController.registerBrokerAll, registerSingleTopicAll of 5.3.3, which do not
track what each name server knows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import trio

from ...remoting.bodies import TopicConfig
from ...remoting.channel import Channel
from ...remoting.client import RemotingClient
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingConnectError, RemotingError, RequestRefused
from ...remoting.mq_version import V5_0_0
from ...remoting.response_codes import ResponseCode
from ..settings.config import MASTER_ID
from ..tables.topic_config_manager import TopicConfigManager
from .registration_answer import (
    Master,
    master_of,
    needs_registration,
    order_topics,
    query_data_version_request,
)
from .registration_request import (
    BrokerIdentity,
    compressed_requests,
    part_size,
    register_in_steps,
    register_requests,
    register_topic_request,
    unregister_request,
)

logger = logging.getLogger(__name__)

SINGLE_TOPICS_MAX: Final = 1_000
"""Topics that are registered one by one; after more changes the whole table is registered. A topic
takes about 0.1 ms, a table of 100,000 topics half a second."""

SINGLE_TOPICS_IN_FLIGHT: Final = 32
"""Unanswered registrations of single topics at one name server."""

WARNING_CHARACTERS_MAX: Final = 1_000
"""Characters of a name server's warning in the log."""

SINGLE_TOPIC_VERSION: Final = V5_0_0
"""The first version of name servers that support REGISTER_TOPIC_IN_NAMESRV (217). One of 4.9.7 does
not answer it at all: the call would time out and close the connection, which drops all routes.
Observed; DefaultRequestProcessor.processRequest of 4.9 returns nothing for an unknown code."""

UNREGISTER_TIMEOUT_S: Final = 1.0
"""For unregistering from one name server. RocketMQ: 3,000 ms. The connection closes right after,
which has the same effect, and a restart must not take long."""


def advice_on(reason: object) -> str:
    """What an operator can do when a registration failed, one sentence without its full stop."""
    if not isinstance(reason, RequestRefused):
        return "Check that it runs and can be reached"
    if reason.code == ResponseCode.NO_PERMISSION:
        return (
            "Its accounts must allow this broker: compare innerClientAuthenticationCredentials "
            "here with the accounts of the name server"
        )
    return "The name server's log and its configuration say why"


@dataclass(frozen=True, slots=True)
class _Registered:
    """The last registration of the whole table.

    Attributes:
      channel: the connection that carried it.
      filter_servers: the list that was registered with it.
    """

    channel: Channel
    filter_servers: tuple[str, ...]


class RegistrationLink:
    """Registers with one name server. Owner: the `Registrar`'s nursery, by `run`.

    Args:
      address: `host:port` of the name server.
      client: running.
      topics: the table to register; the order flags in the answers are stored in it.
      identity: returns the broker's part of a registration.
      period_s: returns the seconds between two registrations of the whole table.
      on_master: called with each answer's master, or None.
      on_progress: called after each attempt.

    Attributes:
      is_answering: whether the last attempt succeeded, and the current one is not late.
      refusal: code and remark with which the name server refused the last attempt; "": it did not.
      asked, done: the number of calls of `want`, and how many of them are covered by an attempt
        that has ended, successfully or not.
      heard_s: trio time of the last answer, or of the start of the last attempt if that is later.
    """

    def __init__(
        self,
        address: str,
        client: RemotingClient,
        topics: TopicConfigManager,
        identity: Callable[[], BrokerIdentity],
        *,
        period_s: Callable[[], float],
        on_master: Callable[[str, Master | None], None],
        on_progress: Callable[[], None],
    ) -> None:
        self.address = address
        self.is_answering = True
        self.refusal = ""
        self.asked = 0
        self.done = 0
        self.heard_s = 0.0
        self._client = client
        self._topics = topics
        self._identity = identity
        self._period_s = period_s
        self._on_master = on_master
        self._on_progress = on_progress
        self._wanted = trio.Event()
        self._wants_whole = True
        self._changed: set[str] = set()
        self._registered: _Registered | None = None
        self._takes_single_topics = False
        self._takes_compressed = True
        self._warning = ""

    @property
    def is_registered(self) -> bool:
        """Whether the name server answered the last registration."""
        return self._registered is not None and self.is_answering

    def want(self, topics: Iterable[str] = (), *, whole: bool = False) -> None:
        """Schedule a registration.

        Args:
          topics: names; these are registered even if the name server knows them.
          whole: register the whole table.
        """
        self._changed.update(topics)
        self._wants_whole |= whole
        self.asked += 1
        self._wanted.set()

    async def run(self) -> None:
        """Register the whole table every period, and changes when wanted, until cancelled."""
        whole_at_s = trio.current_time()
        while True:
            with trio.move_on_at(whole_at_s + self._period_s()):
                await self._wanted.wait()
            now_s = trio.current_time()
            if now_s >= whole_at_s + self._period_s():
                self._wants_whole = True
            elif not self._wanted.is_set():
                continue  # the period has become longer meanwhile
            self._wanted = trio.Event()
            asked = self.asked
            if self._wants_whole:
                whole_at_s = now_s
            try:
                await self._register()
            except (RemotingError, RequestRefused) as error:
                self._registered = None
                self.note_silence(error)
            except BaseException:
                # The pending changes were taken already, so the next run registers everything.
                self.want(whole=True)
                raise
            else:
                self._note_answer()
            self.done = asked
            self._on_progress()

    def note_silence(self, reason: object) -> None:
        """Record that the name server does not answer or refuses.

        It is logged once until the name server accepts a registration, and a new refusal is, too.
        """
        before = self.refusal
        self.refusal = str(reason) if isinstance(reason, RequestRefused) else ""
        is_new = self.is_answering or (self.refusal and self.refusal != before)
        level = logging.WARNING if is_new else logging.DEBUG
        self.is_answering = False
        advice = advice_on(reason)
        if self.refusal:
            logger.log(
                level,
                "name server %(name_server)s refuses this broker's registration: %(reason)s. "
                "Clients that ask it do not find this broker, or its new topics; the broker keeps "
                "trying. %(advice)s",
                {"name_server": self.address, "reason": reason, "advice": advice},
            )
            return
        logger.log(
            level,
            "name server %(name_server)s: %(reason)s. It does not learn of new topics until it "
            "answers, and requests do not wait for it; the broker keeps trying. %(advice)s",
            {"name_server": self.address, "reason": reason, "advice": advice},
        )

    def _note_answer(self) -> None:
        if not self.is_answering:
            self.is_answering = True
            self.refusal = ""
            logger.info("name server %(name_server)s answers again", {"name_server": self.address})

    async def unregister(self) -> None:
        """Unregister; without waiting if the name server did not answer the last time.

        Raises: RemotingError: it cannot be reached, or does not answer in time.
        """
        identity = self._identity()
        request = unregister_request(identity.config, identity.broker_addr)
        if self.is_answering:
            await self._client.call(self.address, request, UNREGISTER_TIMEOUT_S)
        elif self._registered is not None and not self._registered.channel.closed:
            self._registered.channel.send_oneway(request)  # in case it reads it later

    # Requests

    async def _register(self) -> None:
        """Send the whole table or the pending changes.

        Raises: RemotingError, RequestRefused: part of it may be registered; the whole table is sent
          next.
        """
        self.heard_s = trio.current_time()
        identity = self._identity()
        timeout_s = identity.config.register_broker_timeout_mills / 1000
        channel = await self._client.channel(self.address)
        registered = self._registered
        is_current = (
            registered is not None
            and registered.channel is channel
            and registered.filter_servers == identity.filter_servers
        )
        wants_whole, self._wants_whole = self._wants_whole, False
        names, self._changed = self._changed, set()
        is_master = identity.config.broker_id == MASTER_ID
        if (
            wants_whole
            and is_current
            and is_master
            and not names
            and not identity.config.force_register
        ):
            version = self._topics.data_version
            question = query_data_version_request(identity.config, identity.broker_addr, version)
            known = await self._client.call(self.address, question, timeout_s)
            if not needs_registration(known, version):
                return
            wants_whole = True
        # REGISTER_TOPIC_IN_NAMESRV has no room for the mapping of a static topic.
        is_static = not names.isdisjoint(identity.queue_mappings)
        if (
            wants_whole
            or is_static
            or not is_current
            or not is_master
            or len(names) > SINGLE_TOPICS_MAX
        ):
            await self._register_whole(identity, channel, timeout_s)
        else:
            await self._register_topics(identity, names, timeout_s)

    async def _register_whole(
        self, identity: BrokerIdentity, channel: Channel, timeout_s: float
    ) -> None:
        """Register all topics, in one part or in several, and process the answers."""
        self._registered = None  # unknown until the last part is answered
        config = identity.config
        topics = list(self._topics.topic_config_table.values())
        version = self._topics.data_version
        if config.compressed_register and self._takes_compressed:
            try:
                await self._send_parts(
                    compressed_requests(identity, topics, version), channel, timeout_s
                )
            except RequestRefused as refusal:
                self._takes_compressed = False
                logger.warning(
                    "name server %(name_server)s refuses a compressed registration, so it is "
                    "sent uncompressed: %(reason)s. A name server of RocketMQ 4.9 cannot read "
                    "it, and does not need it",
                    {"name_server": self.address, "reason": refusal.remark},
                )
        if not config.compressed_register or not self._takes_compressed:
            parts = register_in_steps(
                identity, topics, version, size=part_size(config, len(topics))
            )
            await self._send_parts(parts, channel, timeout_s)
        self._registered = _Registered(channel, identity.filter_servers)

    async def _send_parts(
        self, parts: Iterable[RemotingCommand | None], channel: Channel, timeout_s: float
    ) -> None:
        """Send one part after the other; a part that is None lets other tasks run."""
        for part in parts:
            if part is None:
                await trio.lowlevel.checkpoint()
                continue
            # On a new connection the name server may have been restarted, without the first parts.
            if await self._client.channel(self.address) is not channel:
                raise RemotingConnectError("the connection was lost during the registration")
            answer = await self._call(part, timeout_s)
            self._takes_single_topics = answer.version >= SINGLE_TOPIC_VERSION
            self._on_master(self.address, master_of(answer))
            self._note_warning(answer.remark or "")
            ordered = order_topics(answer)
            if ordered:
                self._topics.update_order_topics(ordered)

    def _note_warning(self, text: str) -> None:
        """Log the warning of an answer once, until it changes; RocketMQ's answers have none."""
        if text and text != self._warning:
            logger.warning(
                "name server %(name_server)s: %(text)s",
                {"name_server": self.address, "text": text[:WARNING_CHARACTERS_MAX]},
            )
        self._warning = text

    async def _register_topics(
        self, identity: BrokerIdentity, names: Iterable[str], timeout_s: float
    ) -> None:
        """Register the topics of these names only."""
        table = self._topics.topic_config_table
        topics = [table[name] for name in names if name in table]
        if self._takes_single_topics:
            await self._register_one_by_one(identity, topics, timeout_s)
        # A name server of 4.9 gets them in a registration (103), as from Apache's brokers.
        elif topics:
            size, version = part_size(identity.config, len(topics)), self._topics.data_version
            for part in register_requests(identity, topics, version, size=size):
                await self._call(part, timeout_s)

    async def _register_one_by_one(
        self, identity: BrokerIdentity, topics: Sequence[TopicConfig], timeout_s: float
    ) -> None:
        """Raises: RemotingError, RequestRefused: the first failure; later ones are not reported."""
        limiter = trio.CapacityLimiter(SINGLE_TOPICS_IN_FLIGHT)
        failures: list[RemotingError | RequestRefused] = []

        async def register(topic: TopicConfig) -> None:
            async with limiter:
                # The name server is gone or refuses: the others would only wait for their
                # time-outs.
                if failures:
                    return
                try:
                    await self._call(register_topic_request(identity.config, topic), timeout_s)
                except (RemotingError, RequestRefused) as error:
                    failures.append(error)

        async with trio.open_nursery() as nursery:
            for topic in topics:
                nursery.start_soon(register, topic)
        if failures:
            raise failures[0]

    async def _call(self, request: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Raises: RemotingError; RequestRefused: the answer's code is not SUCCESS."""
        answer = await self._client.call(self.address, request, timeout_s)
        self.heard_s = trio.current_time()
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or "without a reason")
        return answer
