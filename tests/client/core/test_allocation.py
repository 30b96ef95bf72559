"""client/core/allocation.py against Apache's classes, and the laws of sharing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.client.core.allocation import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    md5_hash,
)
from trocket.remoting.bodies import MessageQueue

from .apache_tables import table


class Rooms:
    """Brokers are called `room@name`, clients `room-…`."""

    def broker_deploy_in(self, queue):
        return queue.broker_name.split("@")[0]

    def consumer_deploy_in(self, client_id):
        return client_id.split("-")[0]


NEARBY = AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), Rooms())
BY_ROOM = AllocateMessageQueueByMachineRoom(frozenset({"room1", "room2"}))
OURS = {
    "avg": AllocateMessageQueueAveragely(),
    "circle": AllocateMessageQueueAveragelyByCircle(),
    "hash": AllocateMessageQueueConsistentHash(),
    "hash3": AllocateMessageQueueConsistentHash(3),
    "hash0": AllocateMessageQueueConsistentHash(0),
    "room": BY_ROOM,
    "nearby": NEARBY,
}
SHARING_ALL = [OURS["avg"], OURS["circle"], OURS["hash"], NEARBY]


def queues_of(rows):
    return [MessageQueue(*row) for row in rows]


@pytest.mark.parametrize("key", OURS)
def test_every_member_gets_what_apache_gives_it(key):
    differing = 0
    for row in table("allocations"):
        queues, clients = queues_of(row["queues"]), row["clients"]
        for client, share in zip(clients, row["shares"][key], strict=True):
            ours = OURS[key].allocate("group", client, queues, clients)
            assert ours == [queues[index] for index in share]
            differing += bool(share)
    assert differing or key == "hash0"


def test_a_client_id_that_two_processes_share_is_in_the_table():
    # On the ring its places are counted on: Apache's members would see another ring else.
    assert any(len(set(row["clients"])) < len(row["clients"]) for row in table("allocations"))


def test_the_names_are_apaches():
    names = [OURS[key].name for key in ("avg", "circle", "hash", "room", "nearby")]
    assert names == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
        "MACHINE_ROOM",
        "MACHINE_ROOM_NEARBY-AVG",
    ]
    assert AllocateMessageQueueByConfig().name == "CONFIG"


GROUPS = st.integers(1, 40).flatmap(
    lambda count: st.tuples(
        st.just(
            [MessageQueue("T", f"room{n % 3}@b{n % 5}", n) for n in range(count)],
        ),
        st.lists(
            st.builds("room{}-{}".format, st.integers(0, 4), st.integers(0, 99)),
            min_size=1,
            max_size=12,
            unique=True,
        ).map(sorted),
    )
)


@pytest.mark.parametrize("strategy", SHARING_ALL, ids=lambda strategy: strategy.name)
@given(group=GROUPS)
def test_each_queue_goes_to_exactly_one_member(strategy, group):
    queues, clients = group
    shares = [strategy.allocate("g", client, queues, clients) for client in clients]
    assert sorted(queue for share in shares for queue in share) == sorted(queues)


@given(group=GROUPS)
def test_shares_of_avg_and_circle_differ_by_one_at_most(group):
    queues, clients = group
    for key in ("avg", "circle"):
        sizes = [len(OURS[key].allocate("g", client, queues, clients)) for client in clients]
        assert max(sizes) - min(sizes) <= 1


@given(group=GROUPS)
def test_on_the_ring_only_the_queues_of_who_left_move(group):
    queues, clients = group
    left, *rest = clients
    if not rest:
        return
    strategy = OURS["hash"]
    for client in rest:
        before = strategy.allocate("g", client, queues, clients)
        after = strategy.allocate("g", client, queues, rest)
        gone = strategy.allocate("g", left, queues, clients)
        assert set(before) <= set(after) <= set(before) | set(gone)


def test_the_configured_queues_do_not_depend_on_other_members():
    queue = MessageQueue("T", "a", 7)
    assert AllocateMessageQueueByConfig((queue,)).allocate("g", "c", [], []) == [queue]


@pytest.mark.parametrize("strategy", [*SHARING_ALL, BY_ROOM], ids=lambda strategy: strategy.name)
def test_a_client_that_is_no_member_gets_nothing(strategy):
    assert strategy.allocate("g", "room1-x", [MessageQueue("T", "room1@a", 0)], ["room1-a"]) == []


@pytest.mark.parametrize("strategy", [*SHARING_ALL, BY_ROOM], ids=lambda strategy: strategy.name)
@pytest.mark.parametrize(
    ("client_id", "queues", "client_ids", "what"),
    [
        ("", [MessageQueue("T", "a", 0)], [""], "client id"),
        ("c", [], ["c"], "queues"),
        ("c", [MessageQueue("T", "a", 0)], [], "client ids"),
    ],
)
def test_nothing_to_share_is_refused_as_by_apache(strategy, client_id, queues, client_ids, what):
    with pytest.raises(ValueError, match=f"cannot be assigned without (a )?{what}$"):
        strategy.allocate("g", client_id, queues, client_ids)


@pytest.mark.parametrize(("broker", "client"), [("@a", "r-c"), ("r@a", "-c")])
def test_an_unknown_machine_room_is_refused(broker, client):
    with pytest.raises(ValueError, match="no machine room"):
        NEARBY.allocate("g", client, [MessageQueue("T", broker, 0)], [client])


@pytest.mark.parametrize("count", [-1, 1025])
def test_a_number_of_places_out_of_range_is_refused(count):
    with pytest.raises(ValueError, match=r"is not in 0\.\.1024"):
        AllocateMessageQueueConsistentHash(count)


def test_a_hash_function_of_ones_own_decides():
    """All places meet in one: the last client has it, and so every queue."""
    strategy = AllocateMessageQueueConsistentHash(2, lambda _key: 5)
    queues = [MessageQueue("T", "a", n) for n in range(3)]
    assert strategy.allocate("g", "a", queues, ["a", "b"]) == []
    assert strategy.allocate("g", "b", queues, ["a", "b"]) == queues


def test_the_place_is_the_beginning_of_the_md5():
    assert md5_hash("") == 0xD41D8CD9
