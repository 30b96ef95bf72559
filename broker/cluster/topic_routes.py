"""TopicRoutes: the readable queues of topics on all brokers, as the name servers know them.

A topic is requested when a client first needs it, and again at each
loadBalancePollNameServerInterval. While no name server answers, what was known stays.

Java counterpart: broker/topic/TopicRouteInfoManager.java of 5.5.0, which keeps every topic for
ever, and asks one name server only.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from ...remoting.bodies import MessageQueue, TopicRouteData
from ...remoting.client import RemotingClient
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import GetRouteInfoRequestHeader, encode_header
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...remoting.route_queues import readable_queues
from ..settings.config import BrokerConfig
from ..settings.name_servers import ask_name_servers

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 3.0
"""For one route, of all name servers together. Source: TopicRouteInfoManager."""

REQUESTS_MAX: Final = 1_000
"""Topics that are requested at a time; each may take TIMEOUT_S while no name server answers."""

TOPICS_MAX: Final = 10_000
"""Topics that are kept; beyond that, those that no client needed for longest are dropped. Each
costs a request per interval. RocketMQ has no bound."""

KEPT_S: Final = 600.0
"""A topic is dropped when no client needed it for this long; a client asks every 20 s."""

Queues = tuple[MessageQueue, ...]


class TopicRoutes:
    """The routes that a broker knows. Owned by the broker's task.

    Args:
      config: the broker's; read at each use.
      client: running.
    """

    def __init__(self, config: BrokerConfig, client: RemotingClient) -> None:
        self._config = config
        self._client = client
        self._queues: dict[str, Queues] = {}  # the topic that was needed last is at the end
        self._needed_s: dict[str, float] = {}
        self._requests: dict[str, trio.Event] = {}

    def known(self, topic: str) -> Queues | None:
        """The readable queues of a topic, sorted; None: they are to be requested first."""
        queues = self._queues.pop(topic, None)
        if queues is None:
            return None
        self._queues[topic] = queues
        self._needed_s[topic] = trio.current_time()
        return queues or None

    async def queues(self, topic: str) -> Queues | None:
        """The readable queues of a topic, sorted, requested if they are not known.

        Returns: the queues, which may be none; None: no name server knows the topic, or none
          answers.
        Raises: RequestRefused: SYSTEM_BUSY: REQUESTS_MAX topics are being requested.
        """
        known = self.known(topic)
        if known is not None:
            return known
        running = self._requests.get(topic)
        if running is not None:
            await running.wait()
        else:
            if len(self._requests) >= REQUESTS_MAX:
                raise RequestRefused(
                    ResponseCode.SYSTEM_BUSY,
                    f"the routes of {REQUESTS_MAX} topics are being requested from the name "
                    "servers: ask again later",
                )
            over = self._requests[topic] = trio.Event()
            try:
                await self._request(topic)
            finally:
                del self._requests[topic]
                over.set()
        self.known(topic)  # marks it as needed
        return self._queues.get(topic)

    async def run(self) -> None:
        """Request the known topics again at each interval, until cancelled."""
        while True:
            await trio.sleep(self._config.load_balance_poll_name_server_interval / 1000)
            self._drop_unneeded()
            for topic in list(self._queues):
                if topic in self._queues:  # a first request may have pushed it out meanwhile
                    await self._request(topic)

    async def _request(self, topic: str) -> None:
        """Ask the name servers for a topic, and keep what they know."""
        is_missing = False

        def read(answer: RemotingCommand) -> Queues | None:
            nonlocal is_missing
            if answer.code == ResponseCode.SUCCESS:
                return readable_queues(topic, TopicRouteData.from_body(answer.body))
            is_missing = is_missing or answer.code == ResponseCode.TOPIC_NOT_EXIST
            return None

        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        queues = await ask_name_servers(
            self._config,
            self._client,
            lambda: RemotingCommand(code, encode_header(header)),
            read,
            TIMEOUT_S,
        )
        if queues is not None:
            if queues != self._queues.get(topic):
                logger.info(
                    "topic %(topic)s has %(count)d readable queues on all brokers",
                    {"topic": topic, "count": len(queues)},
                )
            self._queues[topic] = queues
            self._needed_s.setdefault(topic, trio.current_time())
            self._drop_unneeded()
        # Only if a name server says so: one that does not answer says nothing about the topic.
        elif is_missing:
            self._drop(topic)

    def _drop_unneeded(self) -> None:
        """Drop the topics that no client needs, and those beyond TOPICS_MAX."""
        before_s = trio.current_time() - KEPT_S
        for topic in list(self._queues):
            if len(self._queues) <= TOPICS_MAX and self._needed_s[topic] >= before_s:
                return
            self._drop(topic)

    def _drop(self, topic: str) -> None:
        self._queues.pop(topic, None)
        self._needed_s.pop(topic, None)
