"""Every kind of peer misbehaves in every way in every phase of a broker: see `promises.py`.

In each cell clients are served: sends, pulls, the delivery of a delayed message, the saving of
offsets, metrics and health. Time is virtual, so that each limit is exact.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import trio
import trio.testing

from trocket.broker.metrics.service import MetricsService
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import BrokerRole

from ...kit import Client, heartbeat, pull_fields, send_fields, topic_fields
from ..group import Node, group_of
from .misbehaving import Peers
from .promises import CLIENT_TIMEOUT_S, Cell, Peer, Phase, Promise, cells

SEND, PULL, COMMIT, RUNTIME_INFO = 310, 11, 15, 28
CREATE_TOPIC, HEART_BEAT = 17, 34
SLAVES = {Peer.MASTER, Peer.HA_LINK}
"""Peers of a slave; the broker under test is a master beside all others."""
SEED = b"seed"
DELAYED = b"after a second"


class Trial:
    """One cell.

    Attributes:
      subject: the broker under test.
      other: its master or its slave; None: it has none.
    """

    def __init__(self, made: Peers, cell: Cell, promise: Promise) -> None:
        self.peer, self.behaviour, self.phase = cell
        self.promise = promise
        self.made = made
        self.is_slave = self.peer in SLAVES
        self.other: Node | None = None
        self.subject = made.node()

    async def prepare(self) -> None:
        """Give all brokers the same log, with one message; start those that behave well."""
        made, first = self.made, self.subject
        made.subject_port = first.port
        await first.start()
        client = await first.connect()
        assert (await client.ask(SEND, send_fields(), SEED)).code == 0
        assert (await client.ask(HEART_BEAT, {}, heartbeat("CG", client_id="cCG"))).code == 0
        if self.phase is Phase.LOAD:
            await trio.sleep(11)  # a kill may take what was not saved yet
            await first.kill()
        else:
            await first.stop()
        image = first.disk
        first.disk = image.copy()
        if self.is_slave:
            # A slave finds its master at the first port.
            self.other, self.subject = first, made.node()
            self.subject.disk = image.copy()
            made.subject_port = self.subject.port
            await self.other.start()
        elif self.phase is Phase.ROLE_CHANGE:
            await first.start(**role_options(is_slave=True))
            await first.stop()
        self.subject.options |= self._options()

    def _options(self) -> dict[str, object]:
        options = role_options(is_slave=self.is_slave)
        options |= {"flush_consumer_offset_interval": 1000, "slave_read_enable": True}
        if self.peer is Peer.SLAVE:
            options["broker_role"] = BrokerRole.SYNC_MASTER
        if self.peer is Peer.FILTER_SERVER:
            options["filter_server_nums"] = 1
        return options

    async def start(self) -> None:
        """Start the broker; a client is served within the limit, and the start ends within its."""
        began_s = trio.current_time()
        complete = trio.Event()

        async def run() -> None:
            await self.subject.start()
            complete.set()

        self.made.nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() - began_s <= self.promise.serves_s
        if self.phase in (Phase.SERVE, Phase.STOP):
            with trio.fail_after(1):
                await complete.wait()
        else:
            self.made.nursery.start_soon(self._await_start, complete)
        if self.peer is Peer.SLAVE:
            self.other = self.made.node(broker_id=1, broker_role=BrokerRole.SLAVE)
            self.other.disk = self.subject.disk.copy()
            self.made.nursery.start_soon(self.other.start)

    async def _await_start(self, complete: trio.Event) -> None:
        with trio.fail_after(self.promise.starts_s):
            await complete.wait()

    async def check_services(self, name: str) -> None:
        """All that needs no peer goes on."""
        client = await self.subject.connect()
        await self._check_reads(client)
        if self.is_slave:
            await at_once(client.ask(SEND, send_fields(), b"to a slave"))
        else:
            await self._check_sends(client, name)
        await self._check_offsets(client)
        await self._check_health(client)

    async def _check_reads(self, client: Client) -> None:
        answer = await at_once(client.ask(PULL, pull_fields(sysFlag=4)))
        assert answer.code == 0
        assert decode_messages(answer.body)[0].body == SEED

    async def _check_sends(self, client: Client, name: str) -> None:
        promise = self.promise
        with trio.fail_after(promise.answers_s):
            sent = await client.ask(SEND, send_fields(queue_id=1), name.encode())
        assert sent.code in promise.send_codes, sent.remark
        with trio.fail_after(promise.makes_s):
            assert (await client.ask(CREATE_TOPIC, topic_fields(name))).code == 0
        with trio.fail_after(promise.makes_s):
            beat = heartbeat(name, client_id=f"c{name}")
            assert (await client.ask(HEART_BEAT, {}, beat)).code == 0
        answer = await at_once(client.ask(PULL, pull_fields(queue_id=1, sysFlag=4)))
        assert name.encode() in {each.body for each in decode_messages(answer.body)}
        delayed = send_fields(name, i="DELAY\x011\x02UNIQ_KEY\x01A\x02")
        began_s = trio.current_time()
        with trio.fail_after(promise.answers_s):
            assert (await client.ask(SEND, delayed, DELAYED)).code in promise.send_codes
        pull = pull_fields(name, suspendTimeoutMillis=15_000)
        with trio.fail_after(CLIENT_TIMEOUT_S):
            found = await client.ask(PULL, pull)
        assert [each.body for each in decode_messages(found.body)] == [DELAYED]
        assert 1 <= trio.current_time() - began_s <= max(1.2, promise.answers_s)

    async def _check_offsets(self, client: Client) -> None:
        fields = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1}
        assert (await at_once(client.ask(COMMIT, fields))).code == 0
        await trio.sleep(2.5)
        saved = self.subject.disk.contents["/store/config/consumerOffset.json"]
        assert re.search(rb'"T@CG":\{\s*0:1\s*\}', bytes(saved))

    async def _check_health(self, client: Client) -> None:
        assert (await at_once(client.ask(RUNTIME_INFO, {}))).code == 0
        running = self.subject.running
        metrics = MetricsService(running.parts, lambda: running.server)
        with trio.fail_after(0.5):
            assert (await metrics.answer("/metrics")).status == 200
            assert (await metrics.answer("/health/live")).status == 200
            assert (await metrics.answer("/health/ready")).status in (200, 503)

    async def stop(self) -> None:
        began_s = trio.current_time()
        await self.subject.stop()
        assert trio.current_time() - began_s <= self.promise.stops_s

    async def check_recovery(self) -> None:
        """The peer that behaves well again gets what it missed."""
        with trio.fail_after(self.promise.recovers_s):
            if self.peer is Peer.NAME_SERVER:
                await until(lambda: "Missed" in self.made.namesrv.routes.topics)
            elif self.peer is Peer.FILTER_SERVER:
                table = self.subject.running.parts.filter_servers.registered
                await until(lambda: bool(table.addresses))
            else:
                assert self.other is not None
                master, slave = self.subject, self.other
                if self.is_slave:
                    master, slave = slave, master
                client = await master.connect()
                await client.ask(SEND, send_fields(), b"later")
                await self.made.has_log(slave, master)


async def until(condition: Callable[[], bool]) -> None:
    """Look each second of virtual time."""
    while not condition():  # noqa: ASYNC110 - name servers and tables have no event for a test
        await trio.sleep(1)


async def at_once(answer):
    """An answer that waits for nothing."""
    with trio.fail_after(0.01):
        return await answer


def role_options(*, is_slave: bool) -> dict[str, object]:
    if is_slave:
        return {"broker_id": 1, "broker_role": BrokerRole.SLAVE}
    return {"broker_id": 0, "broker_role": BrokerRole.ASYNC_MASTER}


def name_of(cell: Cell) -> str:
    peer, behaviour, phase = cell
    return f"{phase.value}: {peer.value} {behaviour.value}"


CELLS = list(cells())


@pytest.mark.slow
@pytest.mark.parametrize(("cell", "promise"), CELLS, ids=[name_of(cell) for cell, _ in CELLS])
async def test_a_broker_serves_what_needs_no_peer_while_a_peer_misbehaves(
    autojump_clock, cell: Cell, promise: Promise
):
    peer, behaviour, phase = cell
    is_before = phase not in (Phase.SERVE, Phase.STOP)
    async with group_of(Peers) as made:
        trial = Trial(made, cell, promise)
        await trial.prepare()
        if is_before:
            made.misbehave(peer, behaviour)
        await trial.start()
        if not is_before:
            await trio.sleep(7)  # slaves follow, filter servers are started
            made.misbehave(peer, behaviour)
        await trial.check_services("Missed")
        if phase is Phase.STOP:
            await trial.stop()
            made.behave()
            await trial.subject.start()
            await trial.check_services("Later")
            return
        await trio.sleep(60)
        await trial.check_services("Later")
        made.behave()
        await trial.check_recovery()
