"""The table of producers."""

from __future__ import annotations

from trocket.broker.clients import producer_manager
from trocket.broker.clients.producer_manager import ProducerManager
from trocket.common.steps import STEP_ITEMS, at_once

from ..harness import FakeChannel, client


def test_a_producer_is_there_from_its_first_heartbeat():
    table = ProducerManager()
    channel = FakeChannel()
    assert table.register("g", client(channel, "c1"))
    assert not table.register("g", client(channel, "c1"))
    assert table.group_table.keys() == {"g"}
    assert table.find_channel("c1") is channel
    assert list(table.group_table["g"]) == [channel]


def test_it_leaves_one_group_by_saying_so():
    table = ProducerManager()
    channel = FakeChannel()
    table.register("g", client(channel))
    table.register("h", client(channel))
    assert table.unregister("g", channel)
    assert not table.unregister("g", channel)
    assert not table.unregister("nobody", channel)
    assert table.group_table.keys() == {"h"}
    assert table.find_channel("c1") is channel
    assert table.unregister("h", channel)
    assert table.find_channel("c1") is None


def test_a_closed_connection_leaves_all_groups_and_others_stay():
    table = ProducerManager()
    one, other = FakeChannel(), FakeChannel()
    for channel, name in ((one, "c1"), (other, "c2")):
        table.register("g", client(channel, name))
        table.register(f"g-{name}", client(channel, name))
    assert table.channel_closed(one)
    assert not table.channel_closed(one)
    assert table.group_table.keys() == {"g", "g-c2"}
    assert table.find_channel("c1") is None


def test_a_client_that_came_back_is_found_on_its_new_connection():
    table = ProducerManager()
    old, new = FakeChannel(), FakeChannel()
    table.register("g", client(old))
    table.register("g", client(new))
    table.channel_closed(old)
    assert table.find_channel("c1") is new


def test_a_client_id_belongs_to_its_first_user_while_that_connection_is_open():
    table = ProducerManager()
    first, again, other = FakeChannel(), FakeChannel(), FakeChannel()
    table.register("g", client(first, user="alice"))
    assert not table.may_have_id(client(other, user="bob"))
    assert not table.may_have_id(client(other))
    table.register("g", client(other, user="bob"))
    assert table.find_channel("c1") is first
    # The same user comes back, perhaps before the old connection is known to be dead.
    assert table.may_have_id(client(again, user="alice"))
    table.register("g", client(again, user="alice"))
    assert table.find_channel("c1") is again
    table.channel_closed(first)
    assert table.find_channel("c1") is again
    again.closed = True
    assert table.may_have_id(client(other, user="bob"))
    table.register("h", client(other, user="bob"))
    table.channel_closed(again)
    assert table.find_channel("c1") is other


def test_a_connection_that_had_several_ids_leaves_none():
    table = ProducerManager()
    channel = FakeChannel()
    for number in range(3):
        table.register(f"g{number}", client(channel, f"c{number}"))
    table.channel_closed(channel)
    assert [table.find_channel(f"c{number}") for number in range(3)] == [None] * 3


def test_a_silent_client_is_dropped_after_120_s():
    table = ProducerManager()
    silent, alive = FakeChannel(), FakeChannel()
    table.register("g", client(silent, "c1", last_update_s=0))
    table.register("g", client(alive, "c2", last_update_s=0))
    table.register("g", client(alive, "c2", last_update_s=100))
    assert at_once(table.scan_inactive(120)) == []
    assert at_once(table.scan_inactive(120.1)) == [silent]
    assert (silent.closed, alive.closed) == (True, False)
    assert list(table.group_table["g"]) == [alive]


def test_a_scan_pauses_among_many_clients_and_spares_who_leave_meanwhile():
    table = ProducerManager()
    channels = [FakeChannel() for _ in range(2 * STEP_ITEMS)]
    for number, channel in enumerate(channels):
        table.register("g", client(channel, f"c{number}", last_update_s=60))
    steps = table.scan_inactive(180.5)
    next(steps)
    assert sum(channel.closed for channel in channels) == 1
    table.unregister("g", channels[-1])
    assert at_once(steps) == channels[:-1]
    assert not channels[-1].closed


def test_the_groups_of_one_connection_are_bounded(monkeypatch, caplog):
    monkeypatch.setattr(producer_manager, "GROUPS_PER_CHANNEL_MAX", 2)
    table = ProducerManager()
    channel = FakeChannel()
    assert [table.register(f"g{n}", client(channel)) for n in range(3)] == [True, True, False]
    assert set(table.group_table) == {"g0", "g1"}
    assert "already has 2 groups" in caplog.text
