"""Topics: which there are, their settings, creating and deleting them.

Java counterpart: updateTopic, deleteTopic, topicList, topicRoute of mqadmin.
Not done: `order` is not written to the name servers, as by updateTopic: see `put_order_conf`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping

from ...common.topic_names import AUTO_CREATE_TOPIC, is_system_topic
from ...remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from ...remoting.headers import (
    CreateTopicRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
)
from ...remoting.request_codes import RequestCode
from ..connection.client import reading_answer
from ..core.topics import check_topic, is_dlq_topic, is_retry_topic
from ..errors import ClientError, ConfigurationError, RouteNotFoundError, is_not_supported
from ..sending.producer import configured
from .asking import Brokers, NotFoundError, ask_all, brokers_of
from .results import NO_ATTRIBUTES, BrokerInfo, TopicInfo, TopicOnBroker

QUEUES = 8
"""Queues of a new topic on each broker. RocketMQ: those of mqadmin's updateTopic."""


class TopicVerbs:
    """The part of `Admin` about topics."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = brokers.client

    async def topics(self, *, is_all: bool = False) -> list[str]:
        """Names of the topics, sorted.

        Args:
          is_all: RocketMQ's own, retry topics and DLQ topics, too.

        Raises: ServerError; ConnectError: no name server answers.
        """
        names = await self.topic_names(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        if is_all:
            shown = {name for name in names if self._brokers.is_ours(name) or is_own_topic(name)}
            return sorted(map(self._brokers.short, shown))
        system = await self.topic_names(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
        # A broker makes one for each cluster's replies.
        system |= {f"{name}_REPLY_TOPIC" for name in system}
        return sorted(
            self._brokers.short(name)
            for name in names - system
            if self._brokers.is_ours(name)
            and not (is_own_topic(name) or is_retry_topic(name) or is_dlq_topic(name))
        )

    async def topic_names(self, code: RequestCode) -> set[str]:
        """Full names of the topics that a name server lists for a request without a header."""
        answer = await self._client.request_name_server(code)
        with reading_answer(";".join(self._client.url.name_servers)):
            return set(TopicList.from_body(answer.body).topic_list)

    async def topic(self, name: str) -> TopicInfo:
        """A topic's settings on each of its brokers.

        Raises: RouteNotFoundError: there is no such topic. BrokersError: `partial` has what the
          name server knows of the brokers that failed. ServerError; ConnectError.
        """
        full = self._brokers.full(name)
        route = await self._brokers.route(full)
        brokers = brokers_of(route)
        by_name = {broker.name: broker for broker in brokers}
        # What the name server knows first: a broker that does not answer keeps these settings.
        on_broker = {}
        for data in route.queue_datas:
            broker = by_name.get(data.broker_name) or BrokerInfo(data.broker_name, "", {})
            on_broker[data.broker_name] = TopicOnBroker(
                data.broker_name,
                broker.cluster,
                broker.addresses,
                data.read_queue_nums,
                data.write_queue_nums,
                data.perm,
            )

        async def ask(broker: BrokerInfo, address: str) -> TopicConfig:
            return await self.topic_config(address, full)

        answers = await self._brokers.ask(brokers, ask)
        for broker in brokers:
            config = answers.values.get(broker.name)
            if config is not None:
                on_broker[broker.name] = TopicOnBroker(
                    broker_name=broker.name,
                    cluster=broker.cluster,
                    addresses=broker.addresses,
                    read_queues=config.read_queue_nums,
                    write_queues=config.write_queue_nums,
                    perm=config.perm,
                    order=config.order,
                    attributes=config.attributes,
                )
        info = TopicInfo(
            self._brokers.short(full), tuple(on_broker[each] for each in sorted(on_broker))
        )
        answers.check(f"the settings of topic {name}", info)
        return info

    async def topic_config(self, address: str, full: str) -> TopicConfig:
        """The settings of a topic on one broker.

        Raises: NotFoundError; ServerError; ConnectError.
        """
        header = GetTopicConfigRequestHeader(topic=full)
        try:
            answer = await self._client.request(address, RequestCode.GET_TOPIC_CONFIG, header)
        except ClientError as error:
            if not is_not_supported(error):
                raise
            # 4.x tells of all topics or none.
            answer = await self._client.request(address, RequestCode.GET_ALL_TOPIC_CONFIG)
            with reading_answer(address):
                table = TopicConfigSerializeWrapper.from_body(answer.body).topic_config_table
            if full not in table:
                raise NotFoundError(
                    f"{address} does not have the topic {full}, which the name server says it has"
                ) from None
            return table[full]
        with reading_answer(address):
            return TopicConfig.from_body(answer.body)

    async def create_topic(
        self,
        name: str,
        queues: int = QUEUES,
        *,
        read_queues: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        cluster: str | None = None,
        attributes: Mapping[str, str | None] = NO_ATTRIBUTES,
    ) -> None:
        """Create a topic on all brokers of a cluster, or change it there.

        A name server knows it when this returns.

        Args:
          queues: to write to, on each broker.
          read_queues: to read from; None: as many.
          perm: bits 4 read, 2 write.
          order: its messages are ordered.
          cluster: None: the only one there is.
          attributes: of 5.x, such as "message.type": "FIFO"; None takes one away.

        Raises: ConfigurationError: an illegal name or number, or which cluster is meant is not
          clear. ServerError; BrokersError: some brokers have it now, and some do not.
        """
        full = self._brokers.full(configured(check_topic, name))
        read_queues = queues if read_queues is None else read_queues
        if min(queues, read_queues) < 1:
            raise ConfigurationError(f"a topic has at least one queue, not {queues}/{read_queues}")
        changes = ",".join(
            f"-{key}" if value is None else f"+{key}={value}" for key, value in attributes.items()
        )
        header = CreateTopicRequestHeader(
            topic=full,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=read_queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=order,
            attributes=changes or None,
        )

        async def ask(broker: BrokerInfo, address: str) -> None:
            await self._client.request(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

        brokers = await self._brokers.find_to_change(cluster)
        answers = await self._brokers.ask(brokers, ask, is_change=True)
        self._client.forget_route(full)
        answers.check(f"creating topic {name}", None)

    async def delete_topic(self, name: str, *, cluster: str | None = None) -> None:
        """Delete a topic with its messages, at the brokers and at every name server.

        Args:
          cluster: None: wherever it is.

        Raises: RouteNotFoundError: there is no such topic. ServerError; BrokersError: some brokers
          or name servers still have it.
        """
        full = self._brokers.full(name)
        brokers = brokers_of(await self._brokers.route(full))
        if cluster is not None:
            brokers = [broker for broker in brokers if broker.cluster == cluster]
            if not brokers:
                raise ConfigurationError(f"the topic {name} is not in a cluster {cluster!r}")
        header = DeleteTopicRequestHeader(topic=full)

        async def ask(broker: BrokerInfo, address: str) -> None:
            await self._client.request(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)

        answers = await self._brokers.ask(brokers, ask, is_change=True)
        # A broker that still has it registers it again.
        answers.check(f"deleting topic {name}", None)
        forget = DeleteTopicFromNamesrvRequestHeader(topic=full, cluster_name=cluster)

        def call(address: str) -> Callable[[], Awaitable[None]]:
            async def ask_name_server() -> None:
                await self._client.request(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, forget)

            return ask_name_server

        servers = self._client.url.name_servers
        answers = await ask_all({f"name server {address}": call(address) for address in servers})
        self._client.forget_route(full)
        answers.check(f"deleting topic {name}", None)

    async def delete_if_there(self, full: str) -> None:
        """As `delete_topic`, but a topic that is not there is no error."""
        with contextlib.suppress(RouteNotFoundError):
            await self.delete_topic(full)


def is_own_topic(full: str) -> bool:
    """Whether a topic is one of RocketMQ's own, by its name; brokers add some with their names."""
    # 5.5 has some that no earlier version knew, such as RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC.
    return is_system_topic(full) or full.upper().startswith("RMQ_SYS_")
