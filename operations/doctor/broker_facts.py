"""Collecting the facts of one broker: six requests, and what its HTTP port and its groups say.

Nothing is changed: the only send names a queue that does not exist, so brokers check it and store
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from ...client.errors import ClientError, ServerError, reading_answer
from ...common.texts import one_line
from ...common.topic_names import BENCHMARK_TOPIC
from ...remoting.bodies import (
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..asking import Round
from ..send_probe import probe_fields
from .facts import MASTER_ID, TAKEN, BrokerFacts, BrokerKey, SendAnswer
from .group_facts import GroupCollector
from .health import health
from .server_checks import clock_reading

if TYPE_CHECKING:
    from .facts import ClockReading


class BrokerCollector:
    """Collects the facts of one broker.

    Args:
      asked: the round of all requests.
      key, cluster, address: as the broker is registered.
    """

    def __init__(self, asked: Round, key: BrokerKey, cluster: str, address: str) -> None:
        self._round = asked
        self._key = key
        self._cluster = cluster
        self._address = address
        self._gaps: dict[str, str] = {}
        self._config: Mapping[str, str] = {}
        self._topics: Mapping[str, TopicConfig] | None = None
        self._groups: frozenset[str] | None = None
        self._send_answer: SendAnswer | None = None
        self._not_ready: tuple[str, ...] | None = None
        self._loop_lag_s: float | None = None

    async def collect(self, groups: GroupCollector, *, is_only_broker: bool) -> BrokerFacts:
        """Ask for everything; a request that fails leaves a gap.

        Args:
          groups: is given the broker's groups, if it is a master.
          is_only_broker: no other one is registered.
        """
        try:
            runtime, clock = await self._runtime()
        except ClientError as error:
            return BrokerFacts(self._key, self._cluster, self._address, one_line(error))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._settings_and_health)
            # Slaves copy both tables, and refuse sends.
            if self._key.broker_id == MASTER_ID:
                tasks.start_soon(self._topic_table)
                tasks.start_soon(self._group_table, groups, is_only_broker)
                tasks.start_soon(self._send)
        return BrokerFacts(
            self._key,
            self._cluster,
            self._address,
            gaps=dict(sorted(self._gaps.items())),
            runtime=runtime,
            config=self._config,
            clock=clock,
            topics=self._topics,
            groups=self._groups,
            send=self._send_answer,
            not_ready=self._not_ready,
            loop_lag_s=self._loop_lag_s,
        )

    async def _runtime(self) -> tuple[Mapping[str, str], ClockReading | None]:
        """Its runtime information. Raises: ClientError: it does not answer."""
        client = self._round.client
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        asked_ms = client.wall_ms()
        try:
            answer = await self._round.request(self._address, code)
            answered_ms = client.wall_ms()
            with reading_answer(self._address):
                runtime = KVTable.from_body(answer.body).table
        except ServerError as error:
            # Old and foreign brokers refuse some requests: the rest is still checked.
            self._gaps[code.name] = one_line(error)
            return {}, None
        return runtime, clock_reading(runtime, asked_ms, answered_ms)

    async def _part(self, code: RequestCode, read: Callable[[bytes], Any]) -> Any:
        try:
            body = (await self._round.request(self._address, code)).body
            with reading_answer(self._address):
                return read(body)
        except ClientError as error:
            self._gaps[code.name] = one_line(error)
            return None

    async def _settings_and_health(self) -> None:
        self._config = await self._part(RequestCode.GET_BROKER_CONFIG, _settings) or {}
        client = self._round.client
        self._not_ready, self._loop_lag_s = await health(
            self._config, self._address, lambda: min(client.timeout_s, self._round.left_s)
        )

    async def _topic_table(self) -> None:
        self._topics = await self._part(
            RequestCode.GET_ALL_TOPIC_CONFIG,
            lambda body: TopicConfigSerializeWrapper.from_body(body).topic_config_table,
        )

    async def _group_table(self, groups: GroupCollector, is_only_broker: bool) -> None:
        self._groups = await self._part(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            lambda body: frozenset(
                SubscriptionGroupWrapper.from_body(body).subscription_group_table
            ),
        )
        if self._groups:
            self._gaps |= await groups.ask(
                self._key.name, self._address, self._groups, is_only_broker=is_only_broker
            )

    async def _send(self) -> None:
        try:
            self._send_answer = await self._sent()
        except ClientError as error:
            self._gaps[RequestCode.SEND_MESSAGE.name] = one_line(error)

    async def _sent(self) -> SendAnswer:
        """What it answers to a send, which has no queue, so that nothing is stored."""
        answer = await self._round.call(
            self._address,
            # Apache 5.5.0 fails at a send without a body before it looks at the queue.
            self._round.client.command(
                RequestCode.SEND_MESSAGE, body=b"x", more=probe_fields(BENCHMARK_TOPIC)
            ),
        )
        remark = one_line(answer.remark or "")
        # 5.x has a code for a queue that does not exist; 4.x has only the words.
        if answer.code == ResponseCode.INVALID_PARAMETER or "queueId" in remark:
            return TAKEN
        # A topic that was deleted, or that may not be sent to, says nothing about other topics.
        if answer.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS):
            return TAKEN
        return SendAnswer(answer.code, remark or "without a remark")


def _settings(body: bytes) -> dict[str, str]:
    """The settings in a broker's answer: lines of key=value."""
    lines = (line.partition("=") for line in body.decode("utf-8", "replace").splitlines())
    return {key.strip(): value.strip() for key, separator, value in lines if separator}
