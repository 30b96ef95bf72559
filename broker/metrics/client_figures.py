"""Client figures: rates and times that connected consumers measure, for the exporter's metrics
`rocketmq_client_*`.

A consumer keeps these figures itself, so each one is asked (GET_CONSUMER_RUNNING_INFO), at most
once a minute, and only while someone reads the metrics.

Source: ClientMetricTaskRunnable.java of apache/rocketmq-exporter.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import trio

from ...remoting import fastjson
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..clients.client_channel_info import ClientChannelInfo
from ..clients.consumer_manager import ConsumerManager

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 60.0
"""Between two requests to a client. Source: application.yml of the exporter."""

TIMEOUT_S: Final = 3.0
"""For one answer. A client that does not answer has no figures."""

CLIENTS_AT_ONCE: Final = 8
"""Clients that are asked at a time; the answers of Java clients take some milliseconds."""

CLIENTS_MAX: Final = 50_000
"""Clients and topics that have figures, as many as one metric has samples by default. A client
chooses the topics of its answer."""

FIGURE_MAX: Final = 1 << 63
"""Up to it a number of any answer can be a float. Rates and times are far below."""

NAMES: Final = frozenset(
    (
        "consumeFailedMsgs", "consumeFailedTPS", "consumeOKTPS", "consumeRT", "pullRT", "pullTPS",
    )
)  # fmt: skip
"""The figures that are kept. Source: ConsumeStatus.java."""

Client = tuple[str, str, str, str]
"""Address, client id, group and topic."""


class ClientFigures:
    """Asks the consumers.

    Lifecycle: `run` in a nursery.

    Args:
      consumers: the connected ones.

    Attributes:
      figures: by client and topic, the numbers by their names in the answer.
    """

    def __init__(self, consumers: ConsumerManager) -> None:
        self.figures: dict[Client, dict[str, float]] = {}
        self._consumers = consumers
        self._wanted = trio.Event()

    def want(self) -> None:
        """Record that someone reads the figures; the next ones are asked for soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Ask when figures are wanted, at most once in INTERVAL_S, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            due_s = trio.current_time() + INTERVAL_S
            await self.ask()
            await trio.sleep_until(due_s)

    async def ask(self) -> None:
        """Ask all connected consumers and replace the figures."""
        found: dict[Client, dict[str, float]] = {}
        limit = trio.CapacityLimiter(CLIENTS_AT_ONCE)

        async def ask_one(group: str, client: ClientChannelInfo) -> None:
            async with limit:
                figures = await _figures_of(group, client)
            found.update(islice(figures.items(), max(CLIENTS_MAX - len(found), 0)))

        async with trio.open_nursery() as nursery:
            for group, info in list(self._consumers.consumer_table.items()):
                for client in list(info.channel_info_table.values()):
                    nursery.start_soon(ask_one, group, client)
        self.figures = found


async def _figures_of(group: str, client: ClientChannelInfo) -> dict[Client, dict[str, float]]:
    """The figures of one client; empty if it does not answer, or with something else."""
    fields = {"consumerGroup": group, "clientId": client.client_id, "jstackEnable": "false"}
    request = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    try:
        answer = await client.channel.call(request, TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            return {}
        tree = fastjson.loads(answer.body)
    except (RemotingError, ValueError) as error:
        logger.debug(
            "%(client)s of group %(group)s has no figures: %(error)s",
            {"client": client, "group": group, "error": error},
        )
        return {}
    table = tree.get("statusTable") if isinstance(tree, Mapping) else None
    if not isinstance(table, Mapping):
        return {}
    return {
        (client.channel.remote_address, client.client_id, group, str(topic)): _numbers(status)
        for topic, status in table.items()
    }


def _numbers(status: Any) -> dict[str, float]:
    """The members with NAMES that are numbers, and of a possible size."""
    if not isinstance(status, Mapping):
        return {}
    return {
        name: float(value)
        for name, value in status.items()
        if name in NAMES and isinstance(value, int | float) and -FIGURE_MAX <= value <= FIGURE_MAX
    }
