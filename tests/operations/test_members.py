"""Members of the groups that are shown, of several brokers under one deadline."""

from __future__ import annotations

from trocket.client import Admin
from trocket.operations.asking import Round
from trocket.operations.members import members, subscriptions
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode

from .peers import Group, Peer, broker_answers, silent

CONNECTED = RequestCode.GET_CONSUMER_CONNECTION_LIST


async def test_members_of_all_brokers_are_merged_and_a_silent_one_is_named() -> None:
    first = broker_answers({"g": Group(members={"c1": "A", "c2": "B"}), "h": Group()})
    second = broker_answers({"g": Group(members={"c2": "B", "c3": "B"}), "h": Group()})
    hanging = Peer({CONNECTED: silent})
    async with (
        Peer(first).running() as one,
        Peer(second).running() as other,
        hanging.running(),
    ):
        addresses = {"a": one.address, "b": other.address, "c": hanging.address}
        one.brokers = {name: {0: address} for name, address in addresses.items()}
        async with Admin(one.address, timeout_s=0.3) as admin:
            brokers = (await admin.cluster()).brokers
            asked = Round(admin.client)
            found = await members(asked, brokers, ["g", "h"])
            wanted = await subscriptions(asked, one.address, "g", "c1")
            again = await members(asked, brokers, ["g"])
            assert again.errors.keys() == {"c"}
            assert hanging.counts[CONNECTED] <= 2
    g = found.groups["g"]
    assert {each.client_id: each.brokers for each in g.clients} == {
        "c1": ("a",),
        "c2": ("a", "b"),
        "c3": ("b",),
    }
    assert found.groups["h"].clients == ()
    assert found.errors.keys() == {"c"}
    assert "did not answer GET_CONSUMER_CONNECTION_LIST" in found.errors["c"]
    assert [each.sub_string for each in wanted or ()] == ["A"]
    assert asked.counts[one.address] == 4


async def test_a_broker_without_an_address_and_one_that_refuses_are_named() -> None:
    def refuse(request: RemotingCommand) -> RemotingCommand:
        return request.answer(16, "no permission")

    async with Peer({CONNECTED: refuse}).running() as peer:
        peer.brokers = {"a": {}, "b": {0: peer.address}}
        async with Admin(peer.address) as admin:
            brokers = (await admin.cluster()).brokers
            found = await members(Round(admin.client), brokers, ["g"])
    assert found.errors["a"] == "none of its addresses is up"
    assert "no permission" in found.errors["b"]
    assert found.groups["g"].clients == ()
