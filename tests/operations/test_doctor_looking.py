"""A doctor that looks again and again: all groups have their turn, and are remembered."""

from __future__ import annotations

from trocket.client import Client
from trocket.operations.doctor.checks import judge
from trocket.operations.doctor.facts import FEW
from trocket.operations.doctor.looking import Doctor
from trocket.remoting.request_codes import RequestCode

from .peers import Group, Peer, broker_answers


async def test_all_groups_have_their_turn_and_are_remembered() -> None:
    groups = {f"g{number:02}": Group() for number in range(3 * FEW.groups)}
    groups["g00"] = groups["g20"] = Group(members={"c1": "A", "c2": "B"})
    async with Peer(broker_answers(groups)).running() as peer:
        peer.brokers = {"broker-a": {0: peer.address}}
        async with Client(peer.address) as client:
            doctor = Doctor(client)
            left_out = []
            for _ in range(3):
                facts = await doctor.look()
                left_out.append(sum(each.is_left_out for each in facts.groups))
    assert left_out == [2 * FEW.groups, FEW.groups, 0]
    assert peer.counts[RequestCode.GET_CONSUMER_CONNECTION_LIST] == 3 * FEW.groups
    (found,) = [each for each in judge(facts) if each.check == "subscriptions"]
    assert [finding.text.split(" want ")[0] for finding in found.findings] == [
        "members of the group g00",
        "members of the group g20",
    ]
