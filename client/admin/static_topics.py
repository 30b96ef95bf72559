"""Static topics: created with a fixed number of queues, shown, and moved between brokers.

Java counterpart: updateStaticTopic and remappingStaticTopic of mqadmin, MQAdminUtils of RocketMQ
5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...common.topic_names import AUTO_CREATE_TOPIC
from ...remoting.bodies import MessageQueue, TopicConfigAndQueueMapping, TopicStatsTable
from ...remoting.headers import (
    CreateStaticTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import reading_answer
from ..core.static_topics import (
    StaticTopicPlan,
    plan_completion,
    plan_move,
    plan_static_topic,
    with_logic_offsets,
    with_other_brokers,
)
from ..core.topics import check_topic
from ..errors import BadAnswerError, ConfigurationError, ConnectError, ServerError
from ..sending.producer import configured
from .asking import Brokers, NotFoundError
from .results import BrokerInfo, StaticTopicInfo


class StaticTopicVerbs:
    """The part of `Admin` about static topics."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = brokers.client

    async def static_topic(self, name: str) -> StaticTopicInfo:
        """The queues of a static topic, and the broker of each.

        Raises: NotFoundError: no broker has such a topic, or it is not static. ServerError;
          ConnectError: a broker cannot be asked.
        """
        full = self._brokers.full(name)
        present = await self._present(full, await self._brokers.find())
        leaders = {
            queue_id: broker
            for broker, config in present.items()
            if config.mapping_detail is not None
            for queue_id in config.mapping_detail.hosted_queues
            if config.mapping_detail.leads(queue_id)
        }
        if not leaders:
            raise NotFoundError(f"no broker has a static topic {name}")
        epochs = [each.mapping_detail.epoch for each in present.values() if each.mapping_detail]
        return StaticTopicInfo(name, max(epochs), dict(sorted(leaders.items())), {})

    async def create_static_topic(
        self,
        name: str,
        queues: int,
        *,
        brokers: Iterable[str] = (),
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> StaticTopicInfo:
        """Create a static topic, or give one more queues.

        Args:
          queues: on all brokers together, more than now.
          brokers: names of the brokers that get them; empty: all of the cluster.
          cluster: None: the only one there is.
          dry_run: change nothing.
        Returns: the brokers of the queues, after the change.
        Raises: ConfigurationError: an illegal name or number, a broker that does not exist, a topic
          that exists and is not static, or whose brokers contradict each other. ServerError;
          ConnectError: a broker failed, and some may have the change. Call it again, or move the
          topic: an unfinished change is completed first.
        """
        full = self._brokers.full(configured(check_topic, name))
        known = await self._brokers.find_to_change(cluster)
        names = _names(brokers, known)
        present = await self._completed(full, known, dry_run=dry_run)
        plan = plan_static_topic(full, queues, names, present, now_ms=self._client.wall_ms())
        plan = with_other_brokers(plan, [broker.name for broker in known])
        if not dry_run:
            addresses = _masters(known, plan.configs)
            for broker in sorted(plan.configs):
                await self._put(addresses[broker], plan.configs[broker])
            self._client.forget_route(full)
        return self._info(plan)

    async def move_static_topic(
        self,
        name: str,
        brokers: Iterable[str] = (),
        *,
        cluster: str | None = None,
        dry_run: bool = False,
    ) -> StaticTopicInfo:
        """Move the queues of a static topic to some brokers, as few as possible.

        Messages stay where they are; consumers get them from the old brokers, through the new
        ones, which therefore have to run on. Sends to a queue fail for the moment of its move, and
        producers try again.

        Args:
          brokers: names of the brokers that have the queues afterwards; empty: all of the cluster.
          cluster: None: the only one there is.
          dry_run: change nothing.
        Returns: the brokers of the queues, and what was moved.
        Raises: as `create_static_topic`.
        """
        full = self._brokers.full(name)
        known = await self._brokers.find_to_change(cluster)
        names = _names(brokers, known)
        present = await self._completed(full, known, dry_run=dry_run)
        plan = plan_move(full, names, present, now_ms=self._client.wall_ms())
        plan = with_other_brokers(plan, [broker.name for broker in known])
        if not dry_run and plan.moved:
            await self._move(plan, _masters(known, plan.configs))
            self._client.forget_route(full)
        return self._info(plan)

    async def _completed(
        self, full: str, known: list[BrokerInfo], *, dry_run: bool
    ) -> dict[str, TopicConfigAndQueueMapping]:
        """What brokers have of a topic, after an unfinished change is completed.

        Raises: ConfigurationError: there is one, and nothing may be changed.
        """
        present = await self._present(full, known)
        rest = plan_completion(full, present, now_ms=self._client.wall_ms())
        if rest is None:
            return present
        if dry_run:
            raise ConfigurationError(
                f"an earlier change of topic {full} was not completed, so its brokers disagree; "
                "without dry_run it is completed first"
            )
        await self._move(rest, _masters(known, rest.configs))
        return await self._present(full, known)

    async def _move(self, plan: StaticTopicPlan, addresses: dict[str, str]) -> None:
        """Make the change, in an order in which no message is lost.

        Source: MQAdminUtils.remappingStaticTopic.
        """
        # The new leaders take messages, at offsets that are not known yet.
        for broker in plan.brokers_in:
            await self._put(addresses[broker], plan.configs[broker])
        # The old leaders take no more, so the ends of their queues are final.
        for broker in plan.brokers_out:
            await self._put(addresses[broker], plan.configs[broker])
        ends: dict[int, int] = {}
        for broker in plan.brokers_out:
            ends |= await self._ends(plan, broker, addresses[broker])
        plan = with_logic_offsets(plan, ends)
        rest = set(plan.configs) - {*plan.brokers_in, *plan.brokers_out}
        for broker in (*plan.brokers_in, *sorted(rest)):
            await self._put(addresses[broker], plan.configs[broker])

    async def _ends(self, plan: StaticTopicPlan, broker: str, address: str) -> dict[int, int]:
        """The physical ends of the queues that a broker gives away, by logic queue."""
        header = GetTopicStatsInfoRequestHeader(topic=plan.topic)
        answer = await self._client.request(address, RequestCode.GET_TOPIC_STATS_INFO, header)
        with reading_answer(address):
            table = TopicStatsTable.from_body(answer.body).offset_table
        ends: dict[int, int] = {}
        for queue_id, old in plan.moved.items():
            detail = plan.configs[old].mapping_detail
            if old != broker or detail is None:
                continue
            item = detail.hosted_queues[queue_id][-2]
            offset = table.get(MessageQueue(plan.topic, broker, item.queue_id))
            if offset is None:
                raise BadAnswerError(address, f"Cannot get the max offset for old leader {item}")
            ends[queue_id] = offset.max_offset
        return ends

    async def _present(
        self, full: str, brokers: Iterable[BrokerInfo]
    ) -> dict[str, TopicConfigAndQueueMapping]:
        """What brokers have of a topic; those that do not have it are left out."""
        header = GetTopicConfigRequestHeader(topic=full, logical=True)

        async def ask(broker: BrokerInfo, address: str) -> TopicConfigAndQueueMapping | None:
            try:
                answer = await self._client.request(address, RequestCode.GET_TOPIC_CONFIG, header)
            except ServerError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    return None
                raise
            with reading_answer(address):
                return TopicConfigAndQueueMapping.from_body(answer.body)

        answers = await self._brokers.ask(brokers, ask, is_change=True)
        answers.check(f"the mapping of topic {full}", None)
        return {name: config for name, config in answers.values.items() if config is not None}

    async def _put(self, address: str, config: TopicConfigAndQueueMapping) -> None:
        detail = config.mapping_detail
        assert detail is not None  # plans have one for each broker
        header = CreateStaticTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type.value,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            force=False,
        )
        await self._client.request(
            address, RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, header, detail.to_body()
        )

    def _info(self, plan: StaticTopicPlan) -> StaticTopicInfo:
        return StaticTopicInfo(
            self._brokers.short(plan.topic), plan.epoch, plan.leaders, plan.moved
        )


def _names(wanted: Iterable[str], known: Iterable[BrokerInfo]) -> list[str]:
    """The names of the brokers that a change is for.

    Raises: ConfigurationError: one does not exist.
    """
    names = [broker.name for broker in known]
    chosen = list(wanted) or names
    for name in chosen:
        if name not in names:
            shown = ", ".join(names)
            raise ConfigurationError(f"Can't find addr for broker {name}; there are: {shown}")
    return chosen


def _masters(known: Iterable[BrokerInfo], wanted: Iterable[str]) -> dict[str, str]:
    """The master's address of each broker. Raises: ConnectError: one has no master that is up."""
    addresses = {broker.name: broker.addresses.get(0) for broker in known}
    found: dict[str, str] = {}
    for name in wanted:
        address = addresses.get(name)
        if address is None:
            raise ConnectError(name, "this broker has no master that is up")
        found[name] = address
    return found
