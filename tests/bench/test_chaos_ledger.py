"""What the ledger of a chaos run finds, and the reasons that it names."""

from __future__ import annotations

import pytest

from trocket.bench.chaos_ledger import (
    AGAIN,
    EFFECT_S,
    GAP_S,
    TAKEN_BACK_S,
    UNEXPLAINED,
    Fault,
    Ledger,
)

STREAM = ("java", 0)
OTHER = ("java", 1)


def confirmed(count: int) -> Ledger:
    """A ledger of a producer and a group, with confirmed numbers at the offsets of their value."""
    ledger = Ledger(["java"], ["go"], key_count=2)
    for number in range(count):
        ledger.confirm(STREAM, number, number, at_s=number / 10)
    return ledger


def taken(count: int) -> Ledger:
    ledger = confirmed(count)
    for number in range(count):
        ledger.take("go", STREAM, number, number, at_s=number / 10)
    return ledger


# ---- messages ----------------------------------------------------------------------------


def test_a_run_without_faults_is_good() -> None:
    ledger = taken(5)
    verdict = ledger.verdict({STREAM: [0, 1, 2, 3, 4], OTHER: []})
    assert verdict.is_good
    assert verdict.confirmed == ledger.confirmed_count == 5
    assert ledger.missing() == {"go": 0}
    assert not ledger.repeats


def test_a_confirmed_message_that_no_queue_has_is_lost() -> None:
    verdict = taken(5).verdict({STREAM: [0, 1, 3, 4]})
    assert (verdict.lost, verdict.unseen) == (1, 0)
    assert verdict.examples["lost"] == ["java/0 2"]
    assert not verdict.is_good


def test_a_message_that_a_group_was_never_given_is_unseen() -> None:
    ledger = confirmed(3)
    ledger.take("go", STREAM, 0, 0, at_s=1)
    ledger.take("go", STREAM, 2, 2, at_s=1)
    assert ledger.missing() == {"go": 1}
    verdict = ledger.verdict({STREAM: [0, 1, 2]})
    assert (verdict.lost, verdict.unseen) == (0, 1)
    assert verdict.examples["unseen"] == ["go: java/0 1"]


def test_what_was_not_confirmed_may_be_stored_and_consumed() -> None:
    ledger = taken(2)
    ledger.take("go", STREAM, 2, 2, at_s=1)
    assert ledger.verdict({STREAM: [0, 1, 2]}).is_good


def test_a_first_delivery_behind_a_later_message_is_out_of_order() -> None:
    ledger = confirmed(3)
    for number in (0, 2, 1):
        ledger.take("go", STREAM, number, number, at_s=9)
    verdict = ledger.verdict({STREAM: [0, 1, 2]})
    assert verdict.disordered == 1
    assert verdict.examples["disordered"] == ["go: java/0 1 after 2 at 9.0 s"]


def test_repeated_deliveries_may_go_back() -> None:
    ledger = taken(3)
    for number in (1, 2, 0):
        ledger.take("go", STREAM, number, number, at_s=9)
    assert ledger.verdict({STREAM: [0, 1, 2]}).is_good
    assert ledger.repeats.total() == 3


def test_streams_have_orders_of_their_own() -> None:
    ledger = taken(3)
    ledger.confirm(OTHER, 0, 0, at_s=9)
    ledger.take("go", OTHER, 0, 0, at_s=9)
    assert ledger.verdict({STREAM: [0, 1, 2], OTHER: [0]}).is_good


def test_an_offset_with_two_messages_is_found() -> None:
    ledger = confirmed(2)
    ledger.take("go", STREAM, 1, 0, at_s=9)
    assert ledger.found.doubled == 1
    assert ledger.found.examples["doubled"] == ["java/0@1: 1 and 0"]


def test_a_producer_begins_again_at_what_is_not_confirmed() -> None:
    ledger = confirmed(3)
    assert (ledger.next_number(STREAM), ledger.next_number(OTHER)) == (3, 0)
    with pytest.raises(ValueError, match="confirmed 5 and not 3"):
        ledger.confirm(STREAM, 5, 3, at_s=1)


# ---- reasons of repeats ------------------------------------------------------------------


def test_a_message_that_was_stored_twice_came_again_as_it_was_sent_again() -> None:
    ledger = taken(2)
    ledger.take("go", STREAM, 2, 1, at_s=1)
    assert ledger.repeats == {("go", AGAIN): 1}


def test_a_repeat_is_of_the_last_fault_that_concerns_the_group() -> None:
    ledger = taken(1)
    ledger.faults += [
        Fault("kill-master", "master", from_s=10, until_s=20),
        Fault("freeze-consumer", "take-java", from_s=30, until_s=31),
        Fault("kill-producer", "send-go", from_s=30, until_s=31),
    ]
    for at_s in (9.9, 15.0, 20 + EFFECT_S, 20.1 + EFFECT_S):
        ledger.take("go", STREAM, 0, 0, at_s)
    assert ledger.repeats == {("go", UNEXPLAINED): 2, ("go", "after kill-master"): 2}
    ledger.faults.append(Fault("join-group", "take-go", from_s=32))
    ledger.take("go", STREAM, 0, 0, at_s=500)
    assert ledger.repeats["go", "after join-group"] == 1


# ---- committed offsets -------------------------------------------------------------------


def committed(*offsets: tuple[float, int], faults: tuple[Fault, ...] = ()) -> int:
    """How many offsets went back beyond what is promised: moment and offset of each."""
    ledger = Ledger(["java"], ["go"], key_count=1)
    ledger.faults += faults
    for at_s, offset in offsets:
        ledger.commit("go", "Chaos-java", 0, offset, at_s)
    return ledger.found.taken_back


KILL = Fault("kill-master", "master", from_s=100, until_s=105, takes_back=True)


def test_offsets_never_go_back_without_a_fault() -> None:
    assert committed((1, 10), (2, 20), (3, 20)) == 0
    assert committed((1, 10), (2, 20), (3, 19), (4, 25)) == 1
    hang = Fault("hang-namesrv", "namesrv", from_s=2, until_s=5)
    assert committed((1, 10), (2, 20), (3, 19), faults=(hang,)) == 1


def test_a_kill_may_take_the_last_offsets_back_and_no_older_ones() -> None:
    safe_s = KILL.from_s - TAKEN_BACK_S
    seen = [(safe_s - 1, 10), (safe_s + 1, 15), (99.0, 20)]
    assert committed(*seen, (102, 10), faults=(KILL,)) == 0
    assert committed(*seen, (102, 9), faults=(KILL,)) == 1
    assert committed(*seen, (KILL.until_s + TAKEN_BACK_S + 1, 19), faults=(KILL,)) == 1


def test_what_one_kill_took_back_is_not_asked_of_the_next() -> None:
    again = Fault("kill-slave", "slave", from_s=120, until_s=125, takes_back=True)
    assert committed((50, 10), (99, 20), (102, 12), (122, 11), faults=(KILL, again)) == 0


# ---- activity ----------------------------------------------------------------------------


def test_the_longest_gap_of_a_client_and_its_counts() -> None:
    ledger = confirmed(2)  # at 0.0 s and 0.1 s
    ledger.confirm(STREAM, 2, 2, at_s=0.1 + GAP_S)
    ledger.confirm(STREAM, 3, 3, at_s=0.2 + 4 * GAP_S)
    figures = ledger.activity["send-java"]
    figures.end(0.3 + 4 * GAP_S)
    assert figures.longest_s == pytest.approx(0.1 + 3 * GAP_S)
    assert figures.longest_from_s == pytest.approx(0.1 + GAP_S)
    assert [from_s for from_s, _ in figures.gaps] == pytest.approx([0.1, 0.1 + GAP_S])
    assert figures.counts == {0: 2, int(GAP_S): 1, int(4 * GAP_S): 1}
    assert ledger.activity["take-go"].counts.total() == 0


def test_a_run_that_ends_in_a_gap_has_it() -> None:
    ledger = confirmed(1)
    ledger.activity["send-java"].end(30.0)
    assert ledger.activity["send-java"].longest_s == 30.0
