"""Two controllers over one etcd: who leads, who answers, and what a lost leader can do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from trocket.controller.etcd_store import LEASE_S
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode as Code

from .fake_etcd import ENDPOINTS, FakeEtcd
from .harness import SET, World, address_of, running, until

PEERS = "n0-10.0.0.1:9878;n1-10.0.0.2:9878"


@asynccontextmanager
async def two() -> AsyncIterator[tuple[FakeEtcd, World, World]]:
    """etcd, the controller that leads, and the other one."""
    keys = {"controller_d_leger_peers": PEERS, "etcd_endpoints": ";".join(ENDPOINTS)}
    async with trio.open_nursery() as nursery:
        etcd = FakeEtcd()
        await nursery.start(etcd.run)
        async with (
            running(store=etcd.store(), controller_d_leger_self_id="n0", **keys) as first,
            running(store=etcd.store(), controller_d_leger_self_id="n1", **keys) as second,
        ):
            await until(lambda: second.server.leadership.known_leader is not None)
            yield etcd, first, second
        nursery.cancel_scope.cancel()


def leads(world: World) -> bool:
    leader = world.server.leadership.leader
    return leader is not None and leader.is_leading


async def test_one_leads_and_both_say_who(autojump_clock: object) -> None:
    async with two() as (_, first, second):
        assert (leads(first), leads(second)) == (True, False)
        for world, is_leader in ((first, "true"), (second, "false")):
            answer = await world.connect(1).ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
            assert answer.ext_fields == {
                "group": "group1",
                "controllerLeaderId": "n0",
                "controllerLeaderAddress": "10.0.0.1:9878",
                "isLeader": is_leader,
                "peers": "n0:10.0.0.1:9878;n1:10.0.0.2:9878;",
            }


async def test_who_does_not_lead_answers_so(autojump_clock: object) -> None:
    async with two() as (_, first, second):
        await first.pair()
        broker = second.connect(1)
        for answer in (
            await broker.apply(),
            await broker.register(),
            await broker.beat(),
            await broker.elect(),
            await broker.ask(1004, brokerName=SET),
            await broker.ask(1006, b'["a"]'),
            await broker.ask(1011, brokerName=SET),
            await broker.ask(1012, clusterName="C", brokerName=SET),
        ):
            assert answer.code == Code.CONTROLLER_NOT_LEADER
        assert await broker.alter([1], 2) == Code.CONTROLLER_NOT_LEADER
        assert (await broker.ask(RequestCode.GET_CONTROLLER_CONFIG)).code == 0


async def test_a_new_leader_knows_all_and_elects_no_one(autojump_clock: object) -> None:
    async with two() as (_, first, second):
        await first.pair()
        lease = first.server.leadership.leader
        assert lease is not None
        term = lease.lease.term
        first.nursery.cancel_scope.cancel()  # it gives its lease back
        began_s = trio.current_time()
        await until(lambda: leads(second))
        assert trio.current_time() - began_s < 0.5
        later = second.server.leadership.leader
        assert later is not None
        assert later.lease.term > term
        brokers = second.connect(1), second.connect(2)
        await trio.sleep(9)
        assert await brokers[0].info() == ("1", "1", [1, 2], 2)
        await brokers[1].beat()
        await trio.sleep(1.5)
        assert await brokers[0].info() == ("2", "2", [2], 3)


async def test_a_leader_without_etcd_stops_before_another_one_can_lead(
    autojump_clock: object,
) -> None:
    async with two() as (etcd, first, second):
        one, _ = await first.pair()
        etcd.down |= {"e1", "e2", "e3"}
        began_s = trio.current_time()
        while leads(first):  # noqa: ASYNC110
            await trio.sleep(0.05)
        assert trio.current_time() - began_s < LEASE_S
        assert etcd.leases  # still
        assert (await one.ask(1004, brokerName=SET)).code == Code.CONTROLLER_NOT_LEADER
        assert (await one.beat()).code == Code.CONTROLLER_NOT_LEADER
        await trio.sleep(60)
        assert not leads(first)
        assert not leads(second)
        etcd.down.clear()
        await until(lambda: leads(first) or leads(second))


async def test_no_master_changes_while_etcd_is_away(autojump_clock: object) -> None:
    async with two() as (etcd, first, second):
        one, two_ = await first.pair()
        etcd.frozen |= {"e1", "e2", "e3"}
        first.refusing.add(address_of(1))
        await one.stream.aclose()
        assert await two_.alter([1, 2], 2) in (Code.CONTROLLER_NOT_LEADER, Code.SYSTEM_ERROR, 2013)
        await trio.sleep(60)
        assert not first.notified
        etcd.frozen.clear()
        await until(lambda: leads(first) or leads(second))
        leader = first if leads(first) else second
        broker = leader.connect(2)
        assert (await broker.info())[:2] == ("1", "1")
        await trio.sleep(9.5)
        await broker.beat()
        await trio.sleep(1)
        assert await broker.info() == ("2", "2", [2], 3)


@pytest.mark.parametrize("lost", range(1, 4))
async def test_an_election_whose_answer_is_lost_is_done_once(
    lost: int, autojump_clock: object
) -> None:
    async with two() as (etcd, first, _):
        one, other = await first.pair()
        etcd.lose_answers += ["/v3/kv/txn"] * lost
        first.refusing.add(address_of(1))
        await one.stream.aclose()
        await trio.sleep(2)
        assert await other.info() == ("2", "2", [2], 3)


async def test_a_set_is_read_again_after_a_change_that_may_have_happened(
    autojump_clock: object,
) -> None:
    async with two() as (etcd, first, _):
        one, _ = await first.pair()
        etcd.lose_answers += ["/v3/kv/txn"] * 100
        assert await one.alter([1], 2) == Code.SYSTEM_ERROR  # it was stored all the same
        etcd.lose_answers.clear()
        assert await one.alter([1, 2], 3) == 0
        assert await one.info() == ("1", "1", [1, 2], 4)


async def test_the_key_of_the_leader_is_removed_by_hand(autojump_clock: object) -> None:
    async with two() as (etcd, first, second):
        one, _ = await first.pair()
        (key,) = (key for key in etcd.pairs if key.endswith(b"/leader"))
        (token,) = etcd.leases
        etcd.leases[token] = (2, 0.0)
        await until(lambda: key not in etcd.pairs or etcd.pairs[key].lease != token)
        await until(lambda: leads(second) or leads(first))
        # A leader of an old term writes nothing.
        code = await one.alter([1], 2)
        assert code in (0, Code.CONTROLLER_NOT_LEADER)
        assert leads(first) != leads(second)
