"""Plans for static topics: which broker gets which logic queue, when a topic is created or moved.

A plan is computed from the settings that the brokers have now, and nothing is sent here.

Source: TopicQueueMappingUtils.createTopicConfigMapping and remappingStaticTopic of RocketMQ 5.5.0.
Where it shuffles brokers with equally many queues, these are sorted by name here. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from ...remoting.bodies import (
    UNDECIDED,
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
    fault_of_items,
    shared_queue,
)
from ...remoting.route_queues import QUEUES_COUNT_MAX
from ..errors import ConfigurationError

EPOCH_STEP_MS: Final = 1_000
"""The least step between two epochs of a topic. Source: TopicQueueMappingUtils."""

BLOCK_SIZE: Final = 10_000
"""A moved queue continues at a multiple of this, with a gap of at least half of it, for messages
that reach the old broker late. Source: MQAdminUtils, RemappingStaticTopicSubCommand."""

Configs = Mapping[str, TopicConfigAndQueueMapping]
"""The settings and the mapping of one topic, by broker name."""


@dataclass(frozen=True, slots=True)
class StaticTopicPlan:
    """A change of a static topic that is not made yet.

    Attributes:
      topic: its full name.
      epoch: of the new mapping, ms since 1970.
      configs: the new settings, by broker name.
      leaders: the broker of each logic queue afterwards.
      moved: the logic queues that another broker leads afterwards, with the one that leads them
        now.
    """

    topic: str
    epoch: int
    configs: dict[str, TopicConfigAndQueueMapping]
    leaders: dict[int, str]
    moved: dict[int, str]

    @property
    def brokers_in(self) -> list[str]:
        """The brokers that get queues from others, sorted."""
        return sorted({self.leaders[queue_id] for queue_id in self.moved})

    @property
    def brokers_out(self) -> list[str]:
        """The brokers that give queues away, sorted."""
        return sorted(set(self.moved.values()))


def plan_static_topic(
    topic: str, queue_count: int, brokers: Collection[str], present: Configs, *, now_ms: int
) -> StaticTopicPlan:
    """Plan a new static topic, or more queues of an existing one.

    Args:
      topic: its full name.
      queue_count: of logic queues on all brokers together.
      brokers: names of the brokers that may get the new queues.
      present: what brokers have of the topic now; empty: it is new.
      now_ms: wall clock.
    Raises: ConfigurationError: the number of queues is not greater than now, the topic exists and
      is not static, or its brokers contradict each other.
    """
    if not 0 < queue_count <= QUEUES_COUNT_MAX:
        raise ConfigurationError(
            f"a static topic has 1 to {QUEUES_COUNT_MAX} queues, not {queue_count}"
        )
    if not brokers:
        raise ConfigurationError("no broker is given for the queues of the static topic")
    owners = _checked(topic, present, is_whole=False)
    if queue_count < len(owners):
        raise ConfigurationError(
            f"Cannot decrease the queue num for static topic {queue_count} < {len(owners)}"
        )
    if queue_count == len(owners):
        raise ConfigurationError(
            "The topic queue num is equal the existed queue num, do nothing: "
            f"{topic} has {queue_count}"
        )
    counts = dict.fromkeys(sorted({*brokers, *present}), 0)
    for detail in owners.values():
        counts[detail.bname] = counts.get(detail.bname, 0) + 1
    leaders = {queue_id: detail.bname for queue_id, detail in owners.items()}
    configs = dict(present)
    for queue_id in range(queue_count):
        if queue_id in leaders:
            continue
        name = min(counts, key=lambda each: (counts[each], each))
        counts[name] += 1
        leaders[queue_id] = name
        physical = _add_queue(configs, topic, name)
        item = LogicQueueMappingItem(queue_id=physical, bname=name)
        _host(configs, name, queue_id, [item])
    return _finished(
        topic, present, configs, leaders=leaders, moved={}, total=queue_count, now_ms=now_ms
    )


def plan_move(
    topic: str, brokers: Collection[str], present: Configs, *, now_ms: int
) -> StaticTopicPlan:
    """Plan to move the queues of a static topic so that these brokers, and no others, lead them.

    As few queues as possible are moved.

    Args:
      topic, present, now_ms: as `plan_static_topic`.
      brokers: names of the brokers.
    Raises: ConfigurationError: there is no such topic, or as `plan_static_topic`.
    """
    if not present:
        raise ConfigurationError(f"no broker has a topic {topic}")
    if not brokers:
        raise ConfigurationError("no broker is given for the queues of the static topic")
    owners = _checked(topic, present)
    led = {queue_id: detail.bname for queue_id, detail in owners.items()}
    wanted = _wanted_counts(list(led.values()), brokers)
    leaders: dict[int, str] = {}
    waiting: list[int] = []
    for queue_id in sorted(led):
        name = led[queue_id]
        if wanted.get(name, 0) > 0:
            leaders[queue_id] = name
            wanted[name] -= 1
        else:
            waiting.append(queue_id)
    for name, count in wanted.items():
        for _ in range(count):
            leaders[waiting.pop(0)] = name
    configs = dict(present)
    moved = {queue_id: led[queue_id] for queue_id in led if leaders[queue_id] != led[queue_id]}
    for queue_id, old in moved.items():
        name = leaders[queue_id]
        items = owners[queue_id].hosted_queues[queue_id]
        physical = _add_queue(configs, topic, name)
        last = LogicQueueMappingItem(
            gen=items[-1].gen + 1, queue_id=physical, bname=name, logic_offset=UNDECIDED
        )
        for each in (name, old):
            _host(configs, each, queue_id, [*items, last])
    return _finished(
        topic, present, configs, leaders=leaders, moved=moved, total=len(owners), now_ms=now_ms
    )


def plan_completion(topic: str, present: Configs, *, now_ms: int) -> StaticTopicPlan | None:
    """Plan the rest of a change that failed when only some of the brokers had it.

    Queues whose new leader does not know of it stay where they are. RocketMQ's tools refuse such a
    topic, and leave the repair to the operator.

    Args:
      topic, present, now_ms: as `plan_static_topic`.
    Returns: None: the brokers agree, and no queue waits for its logic offset.
    Raises: ConfigurationError: the topic is not static on a broker.
    """
    for name, config in present.items():
        if config.mapping_detail is None:
            raise ConfigurationError(_not_static(topic, name))
    details = {name: _detail(config) for name, config in present.items()}
    epoch = max((detail.epoch for detail in details.values()), default=0)
    stale = {name for name, detail in details.items() if detail.epoch < epoch}
    newest: dict[int, list[LogicQueueMappingItem]] = {}
    for detail in details.values():
        for queue_id, items in detail.hosted_queues.items():
            known = newest.get(queue_id)
            if not items:
                continue  # nothing is known of the queue
            if known is None or _progress(items) > _progress(known):
                newest[queue_id] = items
    moved = {
        queue_id: items[-2].bname
        for queue_id, items in newest.items()
        if len(items) > 1
        and (not items[-1].is_decided or not stale.isdisjoint(each.bname for each in items[-2:]))
    }
    if not stale and not moved:
        return None
    configs = dict(present)
    for queue_id, items in newest.items():
        hosts = {each.bname for each in items[-2:]} & configs.keys()
        hosts |= {name for name, detail in details.items() if queue_id in detail.hosted_queues}
        for name in sorted(hosts):
            _host(configs, name, queue_id, items)
    leaders = {queue_id: items[-1].bname for queue_id, items in sorted(newest.items())}
    plan = StaticTopicPlan(topic, max(epoch + EPOCH_STEP_MS, now_ms), configs, leaders, moved)
    return _numbered(plan, max(detail.total_queues for detail in details.values()))


def _progress(items: Sequence[LogicQueueMappingItem]) -> tuple[int, bool]:
    """Which of two lists of a logic queue's items is newer: the one whose progress is greater."""
    return items[-1].gen, items[-1].is_decided


def _not_static(topic: str, name: str) -> str:
    return f"Mapping info should not be null in broker {name}: topic {topic} is not static there"


def with_logic_offsets(plan: StaticTopicPlan, ends: Mapping[int, int]) -> StaticTopicPlan:
    """The plan of a move with the logic offsets at which its queues continue.

    Args:
      plan: of `plan_move`.
      ends: the physical offset after the last message, by moved logic queue.
    Source: MQAdminUtils.remappingStaticTopic, step 3.
    """
    configs = dict(plan.configs)
    for queue_id, end in ends.items():
        name = plan.leaders[queue_id]
        items = _detail(configs[name]).hosted_queues[queue_id]
        before, last = items[-2], items[-1]
        if last.is_decided:  # by an earlier call
            continue
        start = rounded_up(before.logic_of(end))
        decided = [*items[:-1], msgspec.structs.replace(last, logic_offset=start)]
        for each in (name, plan.moved[queue_id]):
            _host(configs, each, queue_id, decided)
    return StaticTopicPlan(plan.topic, plan.epoch, configs, plan.leaders, plan.moved)


def rounded_up(offset: int, block_size: int = BLOCK_SIZE) -> int:
    """The multiple of a block size at which a queue continues after an offset.

    Source: TopicQueueMappingUtils.blockSeqRoundUp.
    """
    blocks, rest = divmod(offset, block_size)
    return (blocks + (1 if rest < block_size // 2 else 2)) * block_size


def with_other_brokers(plan: StaticTopicPlan, brokers: Collection[str]) -> StaticTopicPlan:
    """The plan with the other brokers of the cluster, which get the topic without queues.

    Source: MQAdminUtils.completeNoTargetBrokers.
    """
    configs = dict(plan.configs)
    for name in brokers:
        if name not in configs:
            configs[name] = _empty(plan.topic, name)
    return _numbered(
        StaticTopicPlan(plan.topic, plan.epoch, configs, plan.leaders, plan.moved),
        len(plan.leaders),
    )


def _wanted_counts(led: Sequence[str], brokers: Collection[str]) -> dict[str, int]:
    """How many queues each broker shall lead; those that lead most now get one more."""
    share, rest = divmod(len(led), len(set(brokers)))
    by_count = sorted(set(brokers), key=lambda name: (-led.count(name), name))
    return {name: share + (index < rest) for index, name in enumerate(by_count)}


def _checked(
    topic: str, present: Configs, *, is_whole: bool = True
) -> dict[int, TopicQueueMappingDetail]:
    """The mapping of each logic queue's leader.

    Args:
      is_whole: every logic queue must have a leader.
    Raises: ConfigurationError: what the brokers have is no static topic, or contradicts itself.
    Source: checkNameEpochNumConsistence, checkAndBuildMappingItems, checkPhysicalQueueConsistence.
    """
    if not present:
        return {}
    for name, config in present.items():
        if config.mapping_detail is None:
            raise ConfigurationError(_not_static(topic, name))
        if config.mapping_detail.bname != name:
            raise ConfigurationError(
                f"The broker name is not equal {name} != {config.mapping_detail.bname}"
            )
    details = [_detail(config) for config in present.values()]
    # A change sets these at one broker after the other: they differ if it ended half-way.
    for what, values in (
        ("epoch", {detail.epoch for detail in details}),
        ("scope", {detail.scope for detail in details}),
        ("total queue number", {detail.total_queues for detail in details}),
    ):
        if len(values) > 1:
            shown = " != ".join(map(str, sorted(values, key=str)))
            raise ConfigurationError(
                f"{what} does not match {shown} among the brokers of topic {topic}: an earlier "
                "change was not completed"
            )
    owners: dict[int, TopicQueueMappingDetail] = {}
    for detail in details:
        for queue_id, items in detail.hosted_queues.items():
            _check_items(topic, items, present)
            # Brokers keep the items of queues that have moved away, for reads of old offsets.
            if not detail.leads(queue_id):
                continue
            if queue_id in owners:
                raise ConfigurationError(
                    f"The queue id is duplicated in broker {owners[queue_id].bname} {detail.bname}"
                )
            owners[queue_id] = detail
    total = details[0].total_queues
    if is_whole and set(owners) != set(range(total)):
        raise ConfigurationError(
            "The total queue number in config does not match the real hosted queues "
            f"{total} != {len(owners)}"
        )
    shared = shared_queue(
        topic,
        ((queue_id, detail.hosted_queues[queue_id]) for queue_id, detail in owners.items()),
    )
    if shared is not None:
        raise ConfigurationError(shared)
    return dict(sorted(owners.items()))


def _check_items(topic: str, items: Sequence[LogicQueueMappingItem], present: Configs) -> None:
    """Raises: ConfigurationError: items contradict each other or the topic's settings."""
    fault = fault_of_items(items)
    for item in items:
        if fault is None and item.start_offset != 0:
            fault = "The start offset does not begin from 0"
        config = present.get(item.bname)
        if fault is None and config is None:
            fault = f"The broker of item does not exist: {item.bname}"
        if fault is None and config is not None and item.queue_id >= config.write_queue_nums:
            fault = f"The physical queue id is overflow the write queues: {item}"
    if fault is not None:
        raise ConfigurationError(f"topic {topic}: {fault}")


def _detail(config: TopicConfigAndQueueMapping) -> TopicQueueMappingDetail:
    detail = config.mapping_detail
    assert detail is not None  # `_checked` and the plans see to that
    return detail


def _empty(topic: str, broker_name: str) -> TopicConfigAndQueueMapping:
    return TopicConfigAndQueueMapping(
        topic_name=topic,
        read_queue_nums=0,
        write_queue_nums=0,
        mapping_detail=TopicQueueMappingDetail(topic=topic, bname=broker_name),
    )


def _add_queue(configs: dict[str, TopicConfigAndQueueMapping], topic: str, name: str) -> int:
    """Give a broker one more physical queue, and return its id."""
    config = configs.get(name) or _empty(topic, name)
    configs[name] = msgspec.structs.replace(
        config,
        read_queue_nums=config.read_queue_nums + 1,
        write_queue_nums=config.write_queue_nums + 1,
    )
    return config.write_queue_nums


def _host(
    configs: dict[str, TopicConfigAndQueueMapping],
    name: str,
    queue_id: int,
    items: list[LogicQueueMappingItem],
) -> None:
    """Set the items of a logic queue at a broker, in a new mapping."""
    detail = _detail(configs[name])
    hosted = {**detail.hosted_queues, queue_id: items}
    configs[name] = msgspec.structs.replace(
        configs[name], mapping_detail=msgspec.structs.replace(detail, hosted_queues=hosted)
    )


def _finished(
    topic: str,
    present: Configs,
    configs: dict[str, TopicConfigAndQueueMapping],
    *,
    leaders: dict[int, str],
    moved: dict[int, str],
    total: int,
    now_ms: int,
) -> StaticTopicPlan:
    before = max((_detail(config).epoch for config in present.values()), default=0)
    epoch = max(before + EPOCH_STEP_MS, now_ms)
    ordered = dict(sorted(leaders.items()))
    plan = _numbered(StaticTopicPlan(topic, epoch, configs, ordered, moved), total)
    _checked(topic, plan.configs)
    return plan


def _numbered(plan: StaticTopicPlan, total: int) -> StaticTopicPlan:
    """The plan with its epoch and number of queues in every mapping."""
    configs = {
        name: msgspec.structs.replace(
            config,
            mapping_detail=msgspec.structs.replace(
                _detail(config), epoch=plan.epoch, total_queues=total
            ),
        )
        for name, config in plan.configs.items()
    }
    return StaticTopicPlan(plan.topic, plan.epoch, configs, plan.leaders, plan.moved)
