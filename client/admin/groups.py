"""Consumer groups: which there are, their settings, creating and deleting them.

Java counterpart: updateSubGroup, deleteSubGroup, getConsumerConfig of mqadmin.
"""

from __future__ import annotations

from typing import Any

from ...common.topic_names import is_own_group, retry_topic
from ...remoting.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from ...remoting.headers import DeleteSubscriptionGroupRequestHeader
from ...remoting.request_codes import RequestCode
from ..connection.client import reading_answer
from ..core.topics import check_consumer_group, dlq_topic
from ..errors import ConfigurationError
from ..sending.producer import configured
from .asking import Answers, Brokers, NotFoundError
from .results import BrokerInfo, GroupInfo
from .topics import TopicVerbs


class GroupVerbs:
    """The part of `Admin` about consumer groups."""

    def __init__(self, brokers: Brokers, topics: TopicVerbs) -> None:
        self._brokers = brokers
        self._client = brokers.client
        self._topics = topics

    async def groups(self, *, is_all: bool = False) -> list[str]:
        """Names of the consumer groups that brokers have settings of, sorted.

        Args:
          is_all: RocketMQ's own too.

        Raises: BrokersError; ServerError; ConnectError.
        """
        answers = await self._group_tables()
        names: set[str] = set()
        for table in answers.values.values():
            names |= table.keys()
        shown = sorted(
            self._brokers.short(name)
            for name in names
            if (is_all and (self._brokers.is_ours(name) or is_own_group(name)))
            or (self._brokers.is_ours(name) and not is_own_group(name))
        )
        answers.check("listing groups", shown)
        return shown

    async def group(self, name: str) -> GroupInfo:
        """A consumer group's settings on each broker that has some.

        Raises: NotFoundError: no broker has; BrokersError; ServerError; ConnectError.
        """
        full = self._brokers.full(name)
        answers = await self._group_tables()
        settings = {
            broker: table[full] for broker, table in answers.values.items() if full in table
        }
        info = GroupInfo(self._brokers.short(full), settings)
        answers.check(f"the settings of group {name}", info)
        if not settings:
            raise NotFoundError(f"no broker knows the consumer group {name}")
        return info

    async def _group_tables(self) -> Answers[str, dict[str, SubscriptionGroupConfig]]:
        # 352, which asks for one group, is not in 4.x, and with Apache it creates the group.
        async def ask(broker: BrokerInfo, address: str) -> dict[str, SubscriptionGroupConfig]:
            return await self._group_table(address)

        return await self._brokers.ask(await self._brokers.find(), ask)

    async def _group_table(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answer = await self._client.request(address, code)
        with reading_answer(address):
            return SubscriptionGroupWrapper.from_body(answer.body).subscription_group_table

    async def broker_groups(self, broker: str) -> list[str]:
        """Names of the consumer groups that a broker has settings of, sorted; RocketMQ's own too.

        Raises: NotFoundError: no broker is called so. ServerError; ConnectError.
        """
        at = await self._brokers.one(broker)
        return sorted(
            self._brokers.short(name)
            for name in await self._group_table(at.address)
            if self._brokers.is_ours(name) or is_own_group(name)
        )

    async def create_group(
        self, /, name: str, *, cluster: str | None = None, **settings: Any
    ) -> None:
        """Create a consumer group on all brokers of a cluster, or replace its settings there.

        Args:
          cluster: None: the only one there is.
          settings: fields of remoting.bodies.SubscriptionGroupConfig, such as retry_max_times=3.

        Raises: ConfigurationError: an illegal name, no such setting, or which cluster is meant is
          not clear. ServerError; BrokersError: some brokers have it now, and some do not.
        """
        full = self._brokers.full(configured(check_consumer_group, name))
        known = set(SubscriptionGroupConfig.__struct_fields__) - {"group_name"}
        unknown = sorted(settings.keys() - known)
        if unknown:
            raise ConfigurationError(
                f"no setting of a group is called {unknown[0]}; there are "
                f"{', '.join(sorted(known))}"
            )
        body = SubscriptionGroupConfig(group_name=full, **settings).to_body()

        async def ask(broker: BrokerInfo, address: str) -> None:
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            await self._client.request(address, code, body=body)

        brokers = await self._brokers.find_to_change(cluster)
        answers = await self._brokers.ask(brokers, ask, is_change=True)
        answers.check(f"creating group {name}", None)

    async def delete_group(
        self,
        name: str,
        *,
        cluster: str | None = None,
        keep_offsets: bool = False,
        with_topics: bool = False,
    ) -> None:
        """Delete a consumer group with its offsets. (Its next consumer makes it again.)

        Args:
          cluster: None: wherever it is.
          keep_offsets: a group of this name goes on where this one was.
          with_topics: delete its retry and DLQ topics with their messages, too, as mqadmin does.

        Raises: NotFoundError: no broker has it. ServerError; BrokersError: some still have it.
        """
        full = self._brokers.full(name)
        brokers = await self._brokers.find(cluster)
        tables = await self._group_tables()
        tables.check(f"deleting group {name}", None)
        brokers = [broker for broker in brokers if full in tables.values.get(broker.name, {})]
        if not brokers:
            raise NotFoundError(f"no broker knows the consumer group {name}")
        header = DeleteSubscriptionGroupRequestHeader(
            group_name=full, clean_offset=not keep_offsets, remove_offset=not keep_offsets
        )

        async def ask(broker: BrokerInfo, address: str) -> None:
            await self._client.request(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

        answers = await self._brokers.ask(brokers, ask, is_change=True)
        answers.check(f"deleting group {name}", None)
        if with_topics:
            for topic in (retry_topic(full), dlq_topic(full)):
                await self._topics.delete_if_there(topic)
