"""A scenario of a name server, a broker and honest clients, for errors raised anywhere in them.

The clients do what RocketMQ's do: they ask again when a connection ends or no answer comes, and
believe a message stored when the broker has answered SUCCESS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import isfunction
from typing import Any

import trio
import trio.testing

from trocket.common.message_properties import properties_to_bytes
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.session import Session
from trocket.testing.memory_broker import BROKER_PORT, HOST, NAMESRV_PORT, MemoryBroker

from ..kit import Client, heartbeat, pull_fields, send_fields, subscribed
from ..trio_order import run_by
from .injection import Points, injecting

SUCCESS = 0
PULL, UPDATE_OFFSET, QUERY_OFFSET, CREATE_TOPIC = 11, 15, 14, 17
HEART_BEAT, SEND_BACK, END_TRANSACTION, GET_ROUTE, SEND_V2 = 34, 36, 37, 105, 310
COMMIT = 8
ASKED_AGAIN = (1, 2, 14)
"""SYSTEM_ERROR, SYSTEM_BUSY, SERVICE_NOT_AVAILABLE: RocketMQ's clients try these again."""

ANSWER_S = 3.0
"""How long a client waits for an answer before it asks anew."""
TRIES = 6
WORK_S = 25.0
"""Virtual time in which errors are raised: every service has its turn several times."""
HEAL_S = 45.0
"""Longer than any pause after a failure, and the period of the registration."""

SETTINGS: dict[str, object] = {
    "registerNameServerPeriod": 10_000,
    "flushConsumerOffsetInterval": 1_000,
    "transactionCheckInterval": 2_000,
    "transactionTimeOut": 2_000,
    "flushDelayOffsetInterval": 2_000,
}


class Lost(AssertionError):
    """A promise of the servers that does not hold."""


class ClientSession(Session[None]):
    """The clients' session: errors are raised in the servers' alone."""


# All its methods as they are now, before those of `Session` are wrapped: they call one another.
for _name, _method in list(vars(Session).items()):
    if isfunction(_method) and not _name.startswith("_"):
        setattr(ClientSession, _name, _method)


class Connection:
    """One client's connection; a new one where the old one has ended."""

    def __init__(self, broker: MemoryBroker, port: int) -> None:
        self._broker = broker
        self._port = port
        self._client: Client | None = None
        self.remarks: list[str] = []

    async def ask(
        self, code: int, fields: Mapping[str, object], body: bytes = b"", *, patience_s: float = 0
    ) -> RemotingCommand | None:
        """One request, tried again; None: no answer came in all of the tries."""
        for _ in range(TRIES):
            with trio.move_on_after(ANSWER_S + patience_s):
                try:
                    answer = await self._once(code, fields, body)
                except (OSError, trio.BrokenResourceError, trio.EndOfChannel):
                    self._client = None
                    await trio.sleep(0.1)
                    continue
                if answer.remark:
                    self.remarks.append(answer.remark)
                if answer.code in ASKED_AGAIN:
                    await trio.sleep(0.2)
                    continue
                return answer
            await self.close()
        return None

    async def close(self) -> None:
        if self._client is not None:
            await trio.aclose_forcefully(self._client.stream)
            self._client = None

    async def _once(self, code: int, fields: Mapping[str, object], body: bytes) -> RemotingCommand:
        if self._client is None:
            self._client = Client(await self._broker.open_stream(HOST, self._port))
            self._client.session = ClientSession("the broker")
        return await self._client.ask(code, fields, body)


DUE_LATER = (b" delayed", b" later", b" timer")
"""Ends of the bodies of delayed and timer messages."""


@dataclass
class Promises:
    """What the servers have acknowledged.

    Attributes:
      bodies: of messages, by the topic in which a consumer must find them.
      offset: that the group has committed; -1: none, an offset beyond the queue's end is refused.
      remarks: of all answers.
    """

    bodies: dict[str, set[bytes]] = field(default_factory=dict)
    offset: int = -1
    remarks: list[str] = field(default_factory=list)

    def note(self, answer: RemotingCommand | None, topic: str, body: bytes) -> None:
        if answer is not None and answer.code == SUCCESS:
            self.bodies.setdefault(topic, set()).add(body)


def message(topic: str, *, key: str, sys_flag: int = 0, **properties: str) -> dict[str, object]:
    """The header of SEND_MESSAGE_V2."""
    table = {"UNIQ_KEY": key, **properties}
    return send_fields(topic, f=sys_flag, i=properties_to_bytes(table).decode())


def pull(topic: str, offset: int, hold_ms: int) -> dict[str, object]:
    """The header of PULL_MESSAGE."""
    sys_flag = 4 | (2 if hold_ms else 0)
    return pull_fields(topic, queueOffset=offset, sysFlag=sys_flag, suspendTimeoutMillis=hold_ms)


HEARTBEAT = heartbeat("CG", subscribed(), client_id="c1", producers=("PG",))


class Scenario:
    """One run.

    Args:
      points: where an error is raised, if at all.
      settings: keys of the broker.

    Attributes:
      is_read_only: the store refused sends until its restart, as after a failed fsync.
    """

    def __init__(self, points: Points, settings: Mapping[str, object]) -> None:
        self.points = points
        self.promises = Promises()
        self.is_read_only = False
        self._settings = settings

    async def run(self) -> None:
        """Play it.

        Raises: Lost: the servers do not serve on, or have lost what they had acknowledged.
        """
        settings = {**SETTINGS, **self._settings}
        async with MemoryBroker(config=settings, start_ms=1_700_000_000_000) as broker:
            self.points.is_active = True
            await self._work(broker)
            self.points.is_active = False
            await trio.sleep(HEAL_S)
            self.is_read_only = await self._refuses_for_good(broker)
            if self.is_read_only:
                # What is due later cannot be delivered until the restart: that writes.
                await self._check_kept(broker, but=DUE_LATER)
                await broker.restart()
            await self._check(broker, "after")
            await broker.restart()
            await self._check_kept(broker)

    async def _work(self, broker: MemoryBroker) -> None:
        stop_s = trio.current_time() + WORK_S
        connection = Connection(broker, BROKER_PORT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._consume, broker)
            await self._produce(connection, "work")
            await connection.close()
            await trio.sleep(max(stop_s - trio.current_time(), 0))
            nursery.cancel_scope.cancel()
        self.promises.remarks += connection.remarks

    async def _produce(self, connection: Connection, name: str) -> None:
        ask, note = connection.ask, self.promises.note

        async def send(topic: str, label: str, **properties: Any) -> None:
            body = f"{name} {label}".encode()
            fields = message(topic, key=f"{name}{label}", **properties)
            note(await ask(SEND_V2, fields, body), topic, body)

        await ask(HEART_BEAT, {}, HEARTBEAT)
        for number in range(3):
            await send("T", f"plain {number}")
        await send("T", "delayed", DELAY="1")
        await send("T", "later", DELAY="2")
        await send("T", "timer", TIMER_DELAY_SEC="2")
        await send(f"New{name}", "in a new topic")
        await self._transact(connection, name)
        await ask(
            UPDATE_OFFSET, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 2}
        )

    async def _transact(self, connection: Connection, name: str) -> None:
        """One transaction that is committed, and one whose end the producer never sends."""
        for label in ("half", "open"):
            body = f"{name} {label}".encode()
            properties = {"TRAN_MSG": "true", "PGROUP": "PG"}
            fields = message("T", key=f"{name}{label}", sys_flag=4, **properties)
            half = await connection.ask(SEND_V2, fields, body)
            if half is None or half.code != SUCCESS or label == "open":
                continue
            end = {
                "producerGroup": "PG", "tranStateTableOffset": half.ext_fields["queueOffset"],
                "commitLogOffset": int(half.ext_fields["msgId"][-16:], 16),
                "commitOrRollback": COMMIT, "fromTransactionCheck": "false",
                "msgId": f"{name}{label}", "transactionId": f"{name}{label}",
            }  # fmt: skip
            self.promises.note(await connection.ask(END_TRANSACTION, end), "T", body)

    async def _consume(self, broker: MemoryBroker) -> None:
        """Pull on and on, as a push consumer does."""
        connection = Connection(broker, BROKER_PORT)
        offset = 0
        while True:
            answer = await connection.ask(PULL, pull("T", offset, 5_000), patience_s=5)
            if answer is not None and "nextBeginOffset" in answer.ext_fields:
                offset = int(answer.ext_fields["nextBeginOffset"])
            await trio.sleep(0.05)

    async def _refuses_for_good(self, broker: MemoryBroker) -> bool:
        connection = Connection(broker, BROKER_PORT)
        await connection.ask(SEND_V2, message("T", key="probe"), b"probe")
        await connection.close()
        return any("read-only until restart" in remark for remark in connection.remarks)

    async def _check(self, broker: MemoryBroker, name: str) -> None:
        """New honest clients are served, and every service works."""
        connection, waiting = Connection(broker, BROKER_PORT), Connection(broker, BROKER_PORT)
        ended = await self._end_of(connection, "T")
        got: list[RemotingCommand | None] = []

        async def wait_for_message() -> None:
            got.append(await waiting.ask(PULL, pull("T", ended, 10_000), patience_s=10))

        before = {topic: set(bodies) for topic, bodies in self.promises.bodies.items()}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_for_message)
            await trio.testing.wait_all_tasks_blocked()
            await self._produce(connection, name)
        for topic, labels in (
            ("T", ["plain 0", "plain 1", "plain 2", "delayed", "later", "timer", "half"]),
            (f"New{name}", ["in a new topic"]),
        ):
            sent = self.promises.bodies.get(topic, set()) - before.get(topic, set())
            wanted = {f"{name} {label}".encode() for label in labels}
            if wanted - sent:
                raise Lost(f"an honest client's sends are not taken: {wanted - sent}")
        if not got or got[0] is None or got[0].code != SUCCESS:
            raise Lost(f"a held pull is not answered with the message: {got}")
        self.promises.offset = 2
        await trio.sleep(15)
        await self._check_kept(broker)
        route = await Connection(broker, NAMESRV_PORT).ask(GET_ROUTE, {"topic": f"New{name}"})
        if route is None or route.code != SUCCESS:
            raise Lost(f"the name server does not learn of a new topic: {route}")
        await connection.close()
        await waiting.close()

    async def _check_kept(self, broker: MemoryBroker, but: tuple[bytes, ...] = ()) -> None:
        """Everything that was acknowledged can be read, but for bodies with one of these ends."""
        for topic, bodies in self.promises.bodies.items():
            found = {each.body for each in await broker.messages(topic)}
            lacking = {body for body in bodies - found if not body.endswith(but)}
            if lacking:
                raise Lost(f"{topic} lacks {sorted(lacking)}")
        connection = Connection(broker, BROKER_PORT)
        group = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
        answer = await connection.ask(QUERY_OFFSET, group)
        if answer is None or int(answer.ext_fields.get("offset", -1)) < self.promises.offset:
            raise Lost(f"the group's offset is lost: {answer}")
        await connection.close()

    async def _end_of(self, connection: Connection, topic: str) -> int:
        offset = 0
        while True:
            answer = await connection.ask(PULL, pull(topic, offset, 0))
            if answer is None:
                raise Lost("a pull is not answered")
            if answer.code != SUCCESS:
                return int(answer.ext_fields.get("nextBeginOffset", offset))
            if not list(decode_messages(answer.body)):
                raise Lost("a pull is answered with nothing")
            offset = int(answer.ext_fields["nextBeginOffset"])


def play(points: Points, settings: Mapping[str, object], seed: int) -> Scenario:
    """Run the scenario in a separate loop, in virtual time, with an order of tasks by seed."""
    scenario = Scenario(points, settings)

    async def main() -> None:
        with trio.fail_after(600):
            await scenario.run()

    with injecting(points):
        try:
            run_by(seed, main, trio.testing.MockClock(autojump_threshold=0))
        finally:
            points.is_active = False
    return scenario
