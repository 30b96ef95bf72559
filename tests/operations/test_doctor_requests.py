"""The requests of the doctor: few for many groups, and one time limit for what hangs."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import trio

from trocket.client import Client
from trocket.operations.doctor.checks import judge
from trocket.operations.doctor.collect import BROKERS_AT_ONCE, collect
from trocket.operations.doctor.facts import FEW, MANY, Facts
from trocket.operations.doctor.findings import Severity
from trocket.operations.members import AT_ONCE
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

from ..kit import heartbeat, subscribed
from .peers import Answering, Group, Peer, broker_answers, silent

BASE = 6
"""Requests to a broker, whatever it has: runtime, settings, topics, groups, a send, progress."""

TIMEOUT_S = 0.5


async def looked_at(
    answers: Mapping[RequestCode, Answering], **options: object
) -> tuple[Facts, Peer]:
    """The facts of one broker that answers so, and the peer that counted."""
    async with Peer(answers).running() as peer:
        peer.brokers = {"broker-a": {0: peer.address}}
        async with Client(peer.address, timeout_s=TIMEOUT_S) as client:
            return await collect(client, **options), peer


def asked(peer: Peer) -> int:
    """Requests to it as a broker."""
    as_name_server = {
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
    }
    return sum(count for code, count in peer.counts.items() if code not in as_name_server)


def findings(facts: Facts, check: str) -> list[tuple[Severity, str]]:
    (result,) = [each for each in judge(facts) if each.check == check]
    found = [(each.severity, each.text) for each in result.findings]
    return found or [(result.severity, result.note)]


# Our brokers


@pytest.mark.slow
async def test_a_thousand_topics_and_groups_of_our_broker_need_six_requests() -> None:
    names = [f"{number:04}" for number in range(1000)]
    topics = [{"topicName": f"T{name}", "readQueueNums": 1} for name in names]
    groups = [{"groupName": f"g{name}"} for name in names]
    made = (
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": topics}),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {"groupConfigList": groups}),
    )
    with Broker() as broker:
        async with (
            Client(broker.url) as client,
            Client(broker.url) as one,
            Client(broker.url) as two,
        ):
            for code, tree in made:
                await client.request(broker.broker_address, code, body=json.dumps(tree).encode())
            counted = broker.faults.delay(seconds=0, times=None)
            facts = await collect(client)
            assert counted.hits == BASE
            assert len(facts.groups) == 1000
            assert len(facts.brokers[0].topics or ()) > 1000
            for number, member in enumerate((one, two)):
                beat = heartbeat("g0500", subscribed("T0000", "A"), client_id=f"c{number}")
                code = RequestCode.HEART_BEAT
                await member.request(broker.broker_address, code, body=beat)
            before = counted.hits
            facts = await collect(client)
            members = 1 + 2
            assert counted.hits - before == BASE + members
    assert {each.name: each.count for each in facts.groups if each.count} == {"g0500": 2}
    assert findings(facts, "subscriptions") == [(Severity.OK, "the members of each group agree")]


# RocketMQ's brokers


async def test_of_a_thousand_groups_of_another_broker_the_most_important_are_asked_for() -> None:
    groups = {f"g{number:04}": Group() for number in range(1000)}
    groups["g0997"] = Group(rate=3.0, members={"c1": "A", "c2": "B"})
    groups["g0998"] = Group(lag=7, members={"c1": "A", "c2": "A"})
    groups["g0999"] = Group(lag=5)
    facts, peer = await looked_at(broker_answers(groups))
    assert peer.counts[RequestCode.GET_CONSUMER_CONNECTION_LIST] == MANY.groups
    assert asked(peer) == BASE + MANY.groups + 4
    ((severity, text), left_out) = findings(facts, "subscriptions")
    assert severity is Severity.PROBLEM
    assert "group g0997 want different things of the topic T" in text
    assert left_out[0] is Severity.SKIPPED
    assert "the members of 900 of 1,000 groups were not asked for: g0097" in left_out[1]
    ((severity, text),) = findings(facts, "consumers")
    assert severity is Severity.WARNING
    assert "group g0999 has no connected consumer, and 5 messages wait (T 5)" in text
    few, peer = await looked_at(broker_answers(groups), limits=FEW)
    assert asked(peer) == BASE + FEW.groups + 4 <= 40
    assert findings(few, "consumers") == findings(facts, "consumers")


async def test_groups_that_wait_and_are_not_asked_for_are_said() -> None:
    groups = {f"g{number:02}": Group(lag=1) for number in range(FEW.groups + 2)}
    facts, _ = await looked_at(broker_answers(groups), limits=FEW)
    assert findings(facts, "consumers")[-1] == (
        Severity.SKIPPED,
        "messages wait for 2 groups whose members were not asked for: g08, g09",
    )
    later, _ = await looked_at(broker_answers(groups), limits=FEW, turn=FEW.groups)
    assert "g08, g09" not in findings(later, "consumers")[-1][1]
    assert {each.name for each in later.groups if each.is_left_out} == {"g06", "g07"}


async def test_members_that_are_too_many_are_said() -> None:
    members = {f"c{number:02}": "A" for number in range(FEW.members_of_group + 1)}
    groups = {"g": Group(members=members), "h": Group(members=members), "i": Group(members=members)}
    facts, peer = await looked_at(broker_answers(groups), limits=FEW)
    assert peer.counts[RequestCode.GET_CONSUMER_RUNNING_INFO] == FEW.members
    texts = [text for _, text in findings(facts, "subscriptions")]
    assert texts == [
        "1 of 8 members of the group g were not asked for their subscriptions",
        "1 of 8 members of the group h were not asked for their subscriptions",
        "8 of 8 members of the group i were not asked for their subscriptions",
    ]


async def test_a_broker_that_refuses_the_progress_of_all_groups_is_asked_for_each() -> None:
    def refuse(request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SYSTEM_ERROR, "NullPointerException")

    groups = {"g": Group(lag=5), "h": Group(members={"c": "A"})}
    answers = {**broker_answers(groups), RequestCode.GET_BROKER_CONSUME_STATS: refuse}
    facts, peer = await looked_at(answers)
    assert peer.counts[RequestCode.GET_CONSUME_STATS] == 1
    assert "the group g has no connected consumer" in findings(facts, "consumers")[0][1]
    assert facts.brokers[0].gaps == {}


# What hangs


async def test_a_broker_that_hangs_costs_one_time_limit_and_the_rest_is_there() -> None:
    groups = {"g": Group(lag=5)}
    hanging = Peer(dict.fromkeys(broker_answers({}), silent))
    async with Peer(broker_answers(groups)).running() as peer, hanging.running() as stopped:
        peer.brokers = {"broker-a": {0: peer.address}, "broker-b": {0: stopped.address}}
        async with Client(peer.address, timeout_s=TIMEOUT_S) as client:
            start_s = trio.current_time()
            facts = await collect(client)
            took_s = trio.current_time() - start_s
    assert TIMEOUT_S <= took_s < 4 * TIMEOUT_S
    assert sum(stopped.counts.values()) == 1
    good, bad = facts.brokers
    assert good.error == ""
    assert "did not answer GET_BROKER_RUNTIME_INFO within" in bad.error
    assert "the group g has no connected consumer" in findings(facts, "consumers")[0][1]


async def test_a_broker_that_hangs_in_the_middle_is_not_asked_for_each_group() -> None:
    groups = {f"g{number:03}": Group(lag=1) for number in range(90)}
    answers = {
        **broker_answers(groups),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: silent,
    }
    start_s = trio.current_time()
    facts, peer = await looked_at(answers)
    assert trio.current_time() - start_s < 4 * TIMEOUT_S
    assert peer.counts[RequestCode.GET_CONSUMER_CONNECTION_LIST] <= 16
    assert list(facts.brokers[0].gaps) == ["GET_CONSUMER_CONNECTION_LIST"]
    assert not any(each.is_without_members for each in facts.groups)
    (finding,) = findings(facts, "answers")
    assert "did not answer GET_CONSUMER_CONNECTION_LIST" in finding[1]


async def test_members_that_hang_do_not_silence_their_broker() -> None:
    members = {f"c{number:02}": "A" for number in range(AT_ONCE + 1)}
    answers = broker_answers({"g": Group(members=members)})
    plain = answers[RequestCode.GET_CONSUMER_RUNNING_INFO]

    asked_for: list[str] = []

    def running(request: RemotingCommand) -> RemotingCommand | None:
        asked_for.append(request.ext_fields["clientId"])
        return plain(request) if len(asked_for) > AT_ONCE else None

    facts, _ = await looked_at({**answers, RequestCode.GET_CONSUMER_RUNNING_INFO: running})
    (group,) = facts.groups
    said = [each.client_id for each in group.members if each.subscriptions is not None]
    assert said == asked_for[AT_ONCE:]
    assert len(said) == 1
    assert facts.brokers[0].gaps == {}


async def test_the_deadline_is_that_of_all_requests() -> None:
    hanging = dict.fromkeys(broker_answers({}), silent)
    start_s = trio.current_time()
    facts, _ = await looked_at(hanging, limit_s=0.2)
    assert trio.current_time() - start_s < TIMEOUT_S
    assert facts.brokers[0].error != ""


async def test_a_name_server_that_hangs_does_not_hold_up_the_brokers() -> None:
    stopped = Peer({RequestCode.GET_BROKER_CLUSTER_INFO: silent})
    async with Peer(broker_answers({})).running() as peer, stopped.running():
        peer.brokers = {"broker-a": {0: peer.address}}
        url = f"{stopped.address};{peer.address}"
        async with Client(url, timeout_s=TIMEOUT_S) as client:
            start_s = trio.current_time()
            facts = await collect(client)
            assert trio.current_time() - start_s < 4 * TIMEOUT_S
    assert [bool(each.error) for each in facts.name_servers] == [True, False]
    assert facts.brokers[0].error == ""


async def test_a_name_server_that_lists_many_brokers_that_hang_is_bounded() -> None:
    answers = {RequestCode.GET_BROKER_RUNTIME_INFO: silent}
    async with Peer(answers).running() as peer:
        peer.brokers = {f"b{number}": {0: peer.address} for number in range(300)}
        async with Client(peer.address, timeout_s=TIMEOUT_S) as client:
            start_s = trio.current_time()
            facts = await collect(client)
            assert trio.current_time() - start_s < 4 * TIMEOUT_S
    assert peer.counts[RequestCode.GET_BROKER_RUNTIME_INFO] <= BROKERS_AT_ONCE
    assert all("did not answer" in each.error for each in facts.brokers)
    assert len(facts.brokers) == 300


async def test_members_that_are_connected_to_different_brokers_are_compared() -> None:
    first = broker_answers({"g": Group(members={"c1": "A"})})
    second = broker_answers({"g": Group(members={"c2": "B"})})
    async with Peer(first).running() as one, Peer(second).running() as other:
        one.brokers = {"broker-a": {0: one.address}, "broker-b": {0: other.address}}
        async with Client(one.address, timeout_s=TIMEOUT_S) as client:
            facts = await collect(client)
    assert "group g want different things" in findings(facts, "subscriptions")[0][1]
