"""broker/pop/query_assignment.py: who gets which queues, in every mode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.broker.pop.query_assignment import ANY_QUEUE, STRATEGIES, assigned_queues
from trocket.remoting.bodies import (
    MessageQueue,
    MessageRequestMode,
    SetMessageRequestModeRequestBody,
)

AVG, CIRCLE = STRATEGIES["AVG"], STRATEGIES["AVG_BY_CIRCLE"]


def queues(count: int, *brokers: str) -> list[MessageQueue]:
    return [
        MessageQueue("T", name, number) for name in brokers or ("a",) for number in range(count)
    ]


def members(count: int) -> list[str]:
    return [f"c{number:02}" for number in range(count)]


def pull() -> SetMessageRequestModeRequestBody:
    return SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.PULL, 3)


def pop(shared: int) -> SetMessageRequestModeRequestBody:
    return SetMessageRequestModeRequestBody("T", "G", MessageRequestMode.POP, shared)


def ids(found: set[MessageQueue] | None) -> list[int]:
    assert found is not None
    return sorted(queue.queue_id for queue in found)


@pytest.mark.parametrize(
    ("share", "of_each"),
    [(AVG, [[0, 1], [2, 3], [4]]), (CIRCLE, [[0, 3], [1, 4], [2]])],
    ids=["AVG", "AVG_BY_CIRCLE"],
)
def test_in_mode_pull_each_queue_has_one_client(share, of_each):
    clients = members(3)
    found = [ids(assigned_queues(queues(5), each, clients, share, pull())) for each in clients]
    assert found == of_each


@pytest.mark.parametrize("shared", [-1, 0, 2, 3])
def test_all_pop_from_all_queues_of_every_broker_unless_few_share(shared):
    found = assigned_queues(queues(4, "a", "b"), "c00", members(3), AVG, pop(shared))
    assert found == {MessageQueue("T", "a", ANY_QUEUE), MessageQueue("T", "b", ANY_QUEUE)}


def test_a_client_pops_from_its_queues_and_those_of_the_next_clients():
    clients = members(4)
    found = [ids(assigned_queues(queues(8), each, clients, AVG, pop(1))) for each in clients]
    assert found == [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [0, 1, 6, 7]]


def test_with_more_clients_than_queues_each_client_has_one_queue():
    clients = members(5)
    found = [ids(assigned_queues(queues(2), each, clients, AVG, pop(1))) for each in clients]
    assert found == [[0], [1], [0], [1], [0]]


def test_a_client_that_is_not_in_the_group_loses_its_queues():
    for setting in (pull(), pop(1)):
        assert assigned_queues(queues(8), "gone", members(4), AVG, setting) == set()


@pytest.mark.parametrize("setting", [pull(), pop(1)], ids=["PULL", "POP"])
def test_without_queues_or_a_client_id_nothing_can_be_assigned(setting):
    assert assigned_queues([], "c00", members(4), AVG, setting) is None
    assert assigned_queues(queues(8), " ", members(4), AVG, setting) is None
    assert assigned_queues(queues(8), "c00", [], AVG, pull()) is None


@given(st.integers(1, 12), st.integers(1, 12), st.integers(-2, 12), st.sampled_from([AVG, CIRCLE]))
def test_every_queue_has_a_client_in_every_mode(queue_count, client_count, shared, share):
    everything, clients = queues(queue_count), members(client_count)
    for setting in (pull(), pop(shared)):
        found = [assigned_queues(everything, each, clients, share, setting) for each in clients]
        have = {queue for each in found if each is not None for queue in each}
        assert have in (set(everything), {MessageQueue("T", "a", ANY_QUEUE)})
        if setting.mode is MessageRequestMode.PULL:
            assert sum(len(each or ()) for each in found) == queue_count
        else:
            assert all(found)
