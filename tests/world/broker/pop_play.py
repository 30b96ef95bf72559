"""What a program's consumers that pop do; programs without them pay nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trocket.common.topic_names import pop_retry_topics

from .machine import Machine
from .oracle import Oracle, Place
from .peers import TOPIC
from .pop_groups import ANY_QUEUE, PopGroup
from .pop_order import PopOrderGroup
from .pop_peers import PopConsumer, PopOrderConsumer
from .pop_programs import (
    IN_ORDER,
    IN_PARALLEL,
    Ack,
    AckInOrder,
    Change,
    ChangeInOrder,
    LeavePops,
    Pop,
    PopInOrder,
)
from .programs import Program

FINISH_INVISIBLE_MS = 60_000
"""In the finish everything that is popped is acknowledged at once."""


class PopPlay:
    """The groups that pop, and their members: POP, POPSOME by tags, and POPORDER.

    Args:
      machine: the broker.
      oracle: of all messages.
      program: is going to be played.

    Attributes:
      places: queues of retry topics, to be observed.
    """

    def __init__(self, machine: Machine, oracle: Oracle, program: Program) -> None:
        self.places: list[Place] = []
        self._machine = machine
        self._oracle = oracle
        self._groups: list[PopGroup] = []
        self._order_groups: list[PopOrderGroup] = []
        self._consumers: list[PopConsumer] = []
        self._order_consumers: list[PopOrderConsumer] = []
        if any(isinstance(step, IN_PARALLEL) for step in program.steps):
            self._add_groups(program)
        if any(isinstance(step, IN_ORDER) for step in program.steps):
            self._add_order_group()

    def _add_groups(self, program: Program) -> None:
        for name, tags in (("POP", ()), ("POPSOME", ("a", "Aa"))):
            v2, v1 = pop_retry_topics(TOPIC, name)
            group = PopGroup(
                self._oracle, name, tags, topic=TOPIC, retry_topic=v2 if program.retry_v2 else v1,
                merges=program.merges,
            )  # fmt: skip
            self._groups.append(group)
            self.places.append((group.retry_topic, 0))
            self._oracle.judges[group.retry_topic] = group.came_again
            self._consumers += [
                PopConsumer(self._machine, self._oracle, group, f"{name}{number}")
                for number in range(2)
            ]

    def _add_order_group(self) -> None:
        group = PopOrderGroup(self._oracle, "POPORDER", topic=TOPIC)
        self._order_groups.append(group)
        self._order_consumers += [
            PopOrderConsumer(self._machine, self._oracle, group, f"POPORDER{number}")
            for number in range(2)
        ]

    @property
    def _all_groups(self) -> Sequence[PopGroup | PopOrderGroup]:
        return (*self._groups, *self._order_groups)

    @property
    def has_groups(self) -> bool:
        """Whether the program has consumers that pop."""
        return bool(self._groups or self._order_groups)

    # ---- steps ---------------------------------------------------------------------------

    async def play(self, step: object) -> None:
        """Play one step of `pop_programs.py`."""
        match step:
            case Pop(member, queue, count_max, invisible_ms, poll_s, lost):
                await self._consumers[member].pop_some(
                    queue, count_max, invisible_ms, poll_s * 1000, lost=lost
                )
            case Ack(member, which, count, in_batch):
                consumer = self._consumers[member]
                await (consumer.ack_batch if in_batch else consumer.ack)(which, count)
            case Change(member, which, invisible_ms, suspend):
                await self._consumers[member].change(which, invisible_ms, suspend=suspend)
            case PopInOrder(member, queue, count_max, invisible_ms, poll_s, again, lost):
                await self._order_consumers[member].pop_some(
                    queue, count_max, invisible_ms, poll_s * 1000, again=again, lost=lost
                )
            case AckInOrder(member, queue, count):
                await self._order_consumers[member].ack(queue, count)
            case ChangeInOrder(member, queue, which, invisible_ms):
                await self._order_consumers[member].change(queue, which, invisible_ms)
            case LeavePops(member):
                for consumer in self._consumers[member : member + 1]:
                    await consumer.hang_up()
                for in_order in self._order_consumers[member : member + 1]:
                    await in_order.hang_up()

    # ---- checks --------------------------------------------------------------------------

    def check(self, now_ms: int) -> None:
        """Hold what was seen against the promises. Raises: Broken."""
        for group in self._groups:
            group.check(now_ms)
        for consumer in self._consumers:
            for ask in consumer.held():
                consumer.group.check_held(ask)
        for in_order in self._order_consumers:
            for ask in in_order.held():
                in_order.group.check_held(ask, now_ms)

    def moments(self, now_ms: int) -> Iterator[int | None]:
        """The next times at which something may go wrong."""
        for group in self._all_groups:
            yield group.next_moment(now_ms)

    def check_all_done(self) -> None:
        """At the very end: every message was acknowledged. Raises: Broken."""
        for group in self._all_groups:
            group.check_all_done()

    # ---- crashes -------------------------------------------------------------------------

    def crashed(self, crash_ms: int, *, loses: bool) -> None:
        """The broker was killed; `loses`: and unsynced data is gone."""
        for group in self._all_groups:
            group.crashed(crash_ms, loses=loses)

    def lost(self, place: Place, end: int) -> None:
        """After a power cut under ASYNC_FLUSH a queue ends at `end`."""
        for group in self._all_groups:
            group.lost(place, end)

    # ---- the end -------------------------------------------------------------------------

    async def hang_up(self) -> None:
        """All consumers end, with what they have and did not acknowledge: it must come again."""
        for consumer in self._consumers:
            await consumer.hang_up()
            consumer.inbox.clear()
        for in_order in self._order_consumers:
            await in_order.hang_up()
            in_order.inbox.clear()

    async def finish(self) -> None:
        """Pop and acknowledge what there is."""
        for consumer in self._consumers[::2]:
            while True:
                await consumer.pop_some(ANY_QUEUE, 32, FINISH_INVISIBLE_MS, 0, lost=False)
                if not consumer.inbox:
                    break
                await consumer.ack_batch(0, 0)
        for in_order in self._order_consumers[:1]:
            while True:
                await in_order.pop_some(
                    ANY_QUEUE, 32, FINISH_INVISIBLE_MS, 0, again=False, lost=False
                )
                if not any(in_order.inbox.values()):
                    break
                for _, queue_id in list(in_order.inbox):
                    await in_order.ack(queue_id, 0)
