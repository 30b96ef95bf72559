"""Lives of messages made by real clients: a case for each outcome, for any cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import anyio
import pytest

from trocket.client import (
    Admin,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    PushedMessage,
    SendResult,
    SimpleConsumer,
    Sql,
    TransactionProducer,
    TransactionState,
)
from trocket.client.sending import tracing
from trocket.operations.message_life import (
    GroupOutcome,
    Life,
    OutcomeKind,
    RefusalReason,
    Source,
    StageKind,
    StageState,
    VerdictKey,
    collect_life,
    life_of,
)

DEADLINE_S: Final = 30.0
HALF_TOPIC_S: Final = 90.0
"""The first transaction of a broker of 4.x: it registers the topic of half messages with its next
registration, which comes each 30 s, and until then no route has it."""
TRACE_S: Final = 0.2
"""After what time traces are sent: the client's own 5 s would be waited for in each traced case."""
CONFIG: Final = {"traceTopicEnable": True, "enablePropertyFilter": True}
"""Keys of broker.conf without which some cases cannot be made."""
WANTED: Final = "created || paid"
TAG: Final = "refund"


class Seam(Protocol):
    """How the life of a message is learnt."""

    async def life(self, admin: Admin, message_id: str, *groups: str) -> Life:
        """The life of a message."""
        ...

    async def check(self, message_id: str, outcome: GroupOutcome) -> None:
        """Raises: AssertionError: an outcome is not shown to people."""


class Asked:
    """The seam of the package: `collect_life`."""

    async def life(self, admin: Admin, message_id: str, *groups: str) -> Life:
        return life_of(await collect_life(admin, message_id, groups=groups, deadline_s=20.0))

    async def check(self, message_id: str, outcome: GroupOutcome) -> None:
        return None


class Place(NamedTuple):
    """Where a case is made.

    Attributes:
      admin: an administrator of the cluster.
      url: for clients that share nothing with others.
      topic: a new one, with four queues.
      group: a new name.
      broker: the name of the broker.
      seam: how lives are learnt.
    """

    admin: Admin
    url: str
    topic: str
    group: str
    broker: str
    seam: Seam

    async def send(self, tags: str = TAG, **options: Any) -> SendResult:
        """Send a message to the topic's first queue."""
        queue = MessageQueue(self.topic, self.broker, 0)
        async with Producer(self.admin.client) as producer:
            return await producer.send(Message(self.topic, "x", tags=tags, **options), queue=queue)

    async def life(self, message_id: str, *groups: str) -> Life:
        """The life of a message."""
        return await self.seam.life(self.admin, message_id, *groups)

    async def outcome(self, message_id: str, kind: OutcomeKind) -> GroupOutcome:
        """What the group did with a message, once it is of a kind."""

        async def found() -> GroupOutcome | None:
            life = await self.life(message_id)
            return next((each for each in life.outcomes if each.kind is kind), None)

        outcome: GroupOutcome = await until(found, lambda: self.life(message_id))
        await self.seam.check(message_id, outcome)
        return outcome

    @asynccontextmanager
    async def member(self, selector: Any = "*", **options: Any) -> AsyncIterator[PushConsumer]:
        """A member of the group, once it has queues; it commits at once."""
        async with PushConsumer(
            self.url,
            group=self.group,
            subscriptions={self.topic: selector},
            persist_offsets_s=0.1,
            suspend_s=1.0,
            # A queue's begin is asked for after it is assigned, and the message may be there then.
            **{"consume_from_where": "first", **options},
        ) as consumer:

            async def has_queues() -> bool:
                full = self.admin.client.with_namespace(self.topic)
                return any(queue.topic == full for queue in consumer.queues)

            await until(has_queues)
            yield consumer


async def until(
    condition: Callable[[], Awaitable[Any]],
    shown: Callable[[], Awaitable[object]] | None = None,
    *,
    deadline_s: float = DEADLINE_S,
) -> Any:
    """What a condition gives once it is true.

    Args:
      shown: what is there instead, for the error.
      deadline_s: how long that may take, in seconds.

    Raises: AssertionError: it is not in time.
    """
    with anyio.move_on_after(deadline_s):
        while True:
            found = await condition()
            if found:
                return found
            await anyio.sleep(0.02)
    raise AssertionError(f"not in time: {await shown() if shown else condition}")


async def consumed(place: Place) -> None:
    """A traced consumer says that it succeeded."""
    async with place.member(trace=True) as consumer:
        sent = await place.send()
        (await consumer.receive()).ack()
        found = await place.outcome(sent.message_id, OutcomeKind.CONSUMED)
        assert found.known_from == (Source.TRACE,)
        assert found.clients == ("127.0.0.1",)
        assert found.at_ms is not None
    assert (await place.life(sent.message_id)).verdict.key is VerdictKey.CONSUMED


async def consumed_or_filtered(place: Place) -> None:
    """A consumer that is not traced consumes it, and only the offset shows that."""
    async with place.member() as consumer:
        sent = await place.send()
        (await consumer.receive()).ack()
        found = await place.outcome(sent.message_id, OutcomeKind.CONSUMED_OR_FILTERED)
        assert (found.known_from, found.refusals) == ((Source.GROUP_OFFSET,), ())
    # Without members, too.
    await place.outcome(sent.offset_message_id, OutcomeKind.CONSUMED_OR_FILTERED)


async def passed_over(place: Place) -> None:
    """The only member wants other tags."""
    async with place.member(WANTED) as consumer:
        sent = await place.send()
        found = await place.outcome(sent.message_id, OutcomeKind.PASSED_OVER)
        (refusal,) = found.refusals
        assert refusal.client_id == consumer.client.client_id
        assert (refusal.expression, refusal.reason) == (WANTED, RefusalReason.TAG)
        assert found.known_from == (Source.GROUP_OFFSET, Source.MEMBER)


async def passed_over_by_sql(place: Place) -> None:
    """A term of the only member's expression is false."""
    async with place.member(Sql("region = 'eu' AND price > 10")):
        sent = await place.send(properties={"region": "eu", "price": "9"})
        found = await place.outcome(sent.message_id, OutcomeKind.PASSED_OVER)
        (refusal,) = found.refusals
        assert (refusal.expression_type, refusal.term) == ("SQL92", "price > 10")
        assert refusal.reason is RefusalReason.FALSE


async def passed_over_by_hash_code(place: Place) -> None:
    """The broker delivers it, as the hash codes of both tags are equal, and the client drops it."""
    async with place.member("BB"):
        sent = await place.send(tags="Aa")
        found = await place.outcome(sent.message_id, OutcomeKind.PASSED_OVER)
        assert [each.reason for each in found.refusals] == [RefusalReason.COLLISION]
        assert found.collisions == ("BB",)


async def in_flight_by_pop(place: Place) -> None:
    """A simple consumer has it, and has not acknowledged it."""
    async with SimpleConsumer(
        place.url, group=place.group, subscriptions={place.topic: "*"}
    ) as consumer:
        sent = await place.send()

        async def popped() -> object:
            return await consumer.receive(invisible_s=120.0, wait_s=1.0)

        (message,) = await until(popped)
        found = await place.outcome(sent.message_id, OutcomeKind.IN_FLIGHT)
        assert found.known_from == (Source.POPS,)
        assert found.until_ms == message.invisible_until_ms
        await consumer.ack(message)
        await place.outcome(sent.message_id, OutcomeKind.CONSUMED_OR_FILTERED)


async def in_flight_by_trace(place: Place) -> None:
    """A traced consumer has reported that it began."""
    async with place.member(trace=True) as consumer, anyio.create_task_group() as tasks:
        done = anyio.Event()

        async def handle(_: PushedMessage) -> None:
            await done.wait()

        tasks.start_soon(consumer.run, handle)
        sent = await place.send()
        found = await place.outcome(sent.message_id, OutcomeKind.IN_FLIGHT)
        assert (found.known_from, found.clients) == ((Source.TRACE,), ("127.0.0.1",))
        done.set()
        await place.outcome(sent.message_id, OutcomeKind.CONSUMED)
        consumer.stop()


async def retrying(place: Place) -> None:
    """A delivery failed, and the next one is due in an hour."""
    async with place.member() as consumer:
        sent = await place.send()
        await (await consumer.receive()).retry(17)
        found = await place.outcome(sent.message_id, OutcomeKind.RETRYING)
        assert found.known_from == (Source.DELAYED_TOPIC,)
        assert found.deliveries == 1
        assert found.copy is not None
        assert found.until_ms == found.copy.store_ms + 3_600_000
    # Of the copy's id it is the original that is shown.
    life = await place.life(sent.message_id)
    assert life.verdict.key is VerdictKey.RETRYING
    assert life.verdict.groups == (place.group,)


async def retrying_now(place: Place) -> None:
    """A delivery failed, and the copy waits in the retry topic: the group has no member now."""
    async with place.member() as consumer:
        sent = await place.send()
        await (await consumer.receive()).retry(1)
    found = await place.outcome(sent.message_id, OutcomeKind.RETRYING)

    async def is_there() -> GroupOutcome | None:
        found = await place.outcome(sent.message_id, OutcomeKind.RETRYING)
        return found if found.known_from == (Source.RETRY_TOPIC,) else None

    found = await until(is_there)
    assert found.copy is not None
    assert (found.copy.topic, found.copy.attempt) == (f"%RETRY%{place.group}", 2)


async def dead_letter(place: Place) -> None:
    """A traced consumer gave it up."""
    async with place.member(trace=True) as consumer:
        sent = await place.send()
        await (await consumer.receive()).retry(-1)
        await place.outcome(sent.message_id, OutcomeKind.DEAD_LETTER)

        async def has_cause() -> GroupOutcome | None:
            found = await place.outcome(sent.message_id, OutcomeKind.DEAD_LETTER)
            return found if found.failure else None

        found = await until(has_cause)
        assert found.known_from == (Source.DEAD_LETTER_TOPIC, Source.TRACE)
        assert (found.failure, found.deliveries) == ("FAILED", 1)


async def waiting(place: Place) -> None:
    """The group's offset is three messages before it."""
    await place.admin.create_group(place.group)
    for _ in range(3):
        await place.send()
    sent = await place.send()
    await place.admin.reset_offset(place.group, place.topic, to="begin")
    found = await place.outcome(sent.message_id, OutcomeKind.WAITING)
    assert (found.before, found.committed) == (3, 0)
    assert found.known_from == (Source.GROUP_OFFSET,)


async def never_subscribed(place: Place) -> None:
    """The group is there, and has nothing to do with the topic."""
    await place.admin.create_group(place.group)
    sent = await place.send()

    async def never() -> GroupOutcome | None:
        life = await place.life(sent.message_id, place.group)
        is_never = [each.kind for each in life.outcomes] == [OutcomeKind.NEVER_SUBSCRIBED]
        return life.outcomes[0] if is_never else None

    await place.seam.check(sent.message_id, await until(never))


async def broadcasting(place: Place) -> None:
    """No broker knows the offsets of the group."""
    async with place.member(message_model="broadcasting") as consumer:
        sent = await place.send()
        (await consumer.receive()).ack()
        found = await place.outcome(sent.message_id, OutcomeKind.BROADCASTING)
        assert found.known_from == (Source.GROUP_SUBSCRIPTION,)


async def delayed(place: Place) -> None:
    """The message itself is not due yet; its group waits."""
    async with place.member():
        sent = await place.send(delay_level=17)
        found = await place.outcome(sent.message_id, OutcomeKind.WAITING)
        life = await place.life(sent.message_id)
        assert life.message is not None
        assert life.verdict.key is VerdictKey.DELAYED
        assert life.verdict.due_ms == life.message.store_ms + 3_600_000
        assert found.until_ms == life.verdict.due_ms
        assert life.message.topic == place.topic


async def half(place: Place) -> None:
    """The message's transaction has not ended."""

    def check(_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    async with TransactionProducer(
        place.url, group=f"{place.group}-makers", check=check
    ) as producer:
        begun = producer.transaction(Message(place.topic, "x"))
        async with begun as transaction:
            message_id = transaction.result.message_id

            async def is_half() -> bool:
                return (await place.life(message_id)).verdict.key is VerdictKey.HALF

            shown = partial(place.life, message_id)
            await until(is_half, shown, deadline_s=HALF_TOPIC_S)

        async def is_there() -> bool:
            return (await place.life(message_id)).verdict.key is VerdictKey.NO_GROUPS

        await until(is_there, lambda: place.life(message_id))


async def stages_of_a_message(place: Place) -> None:
    """It is stored, in its queue and in the index, and it has a time before which it stays."""
    async with Producer(place.url, group="makers", trace=True) as producer:
        sent = await producer.send(Message(place.topic, "x", tags=TAG, keys="k"))

        async def traced() -> Life | None:
            life = await place.life(sent.offset_message_id)
            states = {each.kind: each.state for each in life.stages}
            is_traced = life.stages[0].group == "makers"
            return life if is_traced and states[StageKind.INDEX] is StageState.DONE else None

        life = await until(traced, lambda: place.life(sent.offset_message_id))
    found = {each.kind: each for each in life.stages}
    assert life.gaps == ()
    assert found[StageKind.SENT].client_id == producer.client.client_id
    log = found[StageKind.LOG]
    assert (log.state, log.is_intact) == (StageState.DONE, True)
    queue = found[StageKind.QUEUE]
    assert (queue.state, queue.tags_code) == (StageState.DONE, queue.expected_code)
    assert (queue.broker_name, queue.offset, queue.end) == (place.broker, 0, 1)
    deletion = found[StageKind.DELETION]
    assert deletion.is_file_full is False
    assert deletion.at_ms is not None
    assert deletion.reserved_hours is not None
    assert deletion.at_ms == life.now_ms + deletion.reserved_hours * 3_600_000


async def twenty_of_forty(place: Place, *, is_traced: bool) -> None:
    """Two members of one group want different tags; no member gets what is in the queues of one."""
    async with (
        place.member(WANTED, trace=is_traced) as narrow,
        place.member("*", trace=is_traced) as wide,
        anyio.create_task_group() as tasks,
    ):

        async def are_shared() -> bool:
            owned = [
                [queue.queue_id for queue in each.queues if queue.topic == place.topic]
                for each in (narrow, wide)
            ]
            return [len(each) for each in owned] == [2, 2]

        await until(are_shared)
        got: list[str] = []

        async def handle(message: PushedMessage) -> None:
            got.append(message.message_id)

        for each in (narrow, wide):
            tasks.start_soon(each.run, handle)
        sent: list[SendResult] = []
        async with Producer(place.url) as producer:
            for index in range(40):
                queue = MessageQueue(place.topic, place.broker, index % 4)
                message = Message(place.topic, str(index), tags=TAG)
                sent.append(await producer.send(message, queue=queue))
        taken = OutcomeKind.CONSUMED if is_traced else OutcomeKind.CONSUMED_OR_FILTERED
        lives: dict[str, GroupOutcome] = {}

        async def all_known() -> bool:
            for each in sent:
                if each.message_id not in lives:
                    life = await place.life(each.offset_message_id)
                    (outcome,) = life.outcomes or (None,)
                    expected = taken if each.message_id in got else OutcomeKind.PASSED_OVER
                    if outcome is None or outcome.kind is not expected:
                        return False
                    lives[each.message_id] = outcome
            return True

        async def shown() -> object:
            return Counter(each.kind for each in lives.values()), await place.life(
                next(e for e in sent if e.message_id not in lives).offset_message_id
            )

        # Forty pages take their time on a busy machine.
        await until(all_known, shown, deadline_s=3 * DEADLINE_S)
        assert len(got) == 20
        kinds = Counter(each.kind for each in lives.values())
        assert kinds == {taken: 20, OutcomeKind.PASSED_OVER: 20}
        for one in sent:
            await place.seam.check(one.offset_message_id, lives[one.message_id])
        for message_id, outcome in lives.items():
            if outcome.kind is OutcomeKind.PASSED_OVER:
                assert message_id not in got
                assert [(each.client_id, each.expression) for each in outcome.refusals] == [
                    (narrow.client.client_id, WANTED)
                ]
        for each in (narrow, wide):
            each.stop()


async def twenty_of_forty_traced(place: Place) -> None:
    """`twenty_of_forty` with traces."""
    await twenty_of_forty(place, is_traced=True)


async def twenty_of_forty_untraced(place: Place) -> None:
    """`twenty_of_forty` without traces."""
    await twenty_of_forty(place, is_traced=False)


Case = Callable[[Place], Awaitable[None]]
CASES: Final[tuple[Case, ...]] = (
    consumed,
    consumed_or_filtered,
    passed_over,
    passed_over_by_sql,
    passed_over_by_hash_code,
    in_flight_by_pop,
    in_flight_by_trace,
    retrying,
    retrying_now,
    dead_letter,
    waiting,
    never_subscribed,
    broadcasting,
    delayed,
    half,
    stages_of_a_message,
    twenty_of_forty_traced,
    twenty_of_forty_untraced,
)
NEED_POPS: Final = frozenset({in_flight_by_pop})
"""Cases that 4.x cannot make."""


@contextmanager
def soon_traced() -> Iterator[None]:
    """Clients of this process send their traces soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "FLUSH_S", TRACE_S)
        yield


async def play(url: str, case: Case, name: str, seam: Seam | None = None) -> None:
    """Make a case on a cluster.

    Args:
      name: of the topic and the group, which are new.
      seam: None: `Asked`.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(6 * DEADLINE_S))
        stack.enter_context(soon_traced())
        admin = await stack.enter_async_context(Admin(url))
        await admin.create_topic(name, 4)
        (broker,) = (await admin.cluster()).brokers
        await case(Place(admin, url, name, f"{name}-group", broker.name, seam or Asked()))
