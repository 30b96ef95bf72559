"""The verdict of a failover run: each kind of wrong is found, and what is right is not."""

from __future__ import annotations

from trocket.bench.failover_ledger import Ledger, Verdict


def ledger_of(*confirmed: int, consumed: dict[int, int] | None = None) -> Ledger:
    """One client whose numbers were confirmed at these offsets, and consumed as given, or there."""
    ledger = Ledger(1)
    for number, offset in enumerate(confirmed):
        assert ledger.next_number(0) == number
        ledger.confirm(0, offset)
        if consumed is None:
            ledger.consume(0, offset, number)
    for offset, number in (consumed or {}).items():
        ledger.consume(0, offset, number)
    return ledger


def judge(ledger: Ledger, *numbers: int, begin: int = 0) -> Verdict:
    return ledger.verdict({0: numbers}, {0: begin})


def test_a_number_that_came_twice_is_right() -> None:
    ledger = ledger_of(0, 2, 3)
    ledger.consume(0, 1, 1)
    verdict = judge(ledger, 0, 1, 1, 2)
    assert verdict == Verdict(confirmed=3)
    assert verdict.is_good
    assert ledger.missing_count() == 0


def test_a_confirmed_message_that_is_gone_is_lost() -> None:
    verdict = judge(ledger_of(0, 1, 2), 0, 1)
    assert (verdict.lost, verdict.examples) == (1, {"lost": ["0:2"]})
    assert not verdict.is_good


def test_a_stored_message_that_was_never_given_is_unseen() -> None:
    ledger = ledger_of(0, 1, consumed={0: 0})
    assert ledger.missing_count() == 1
    verdict = judge(ledger, 0, 1)
    assert (verdict.unseen, verdict.lost, verdict.examples) == (1, 0, {"unseen": ["0:1"]})


def test_an_offset_with_two_messages_is_doubled_whoever_saw_them() -> None:
    both_confirmed = judge(ledger_of(0, 1, 1, consumed={0: 0, 1: 2}), 0, 2)
    assert both_confirmed.doubled == 1
    consumed_twice = ledger_of(0, 1)
    consumed_twice.consume(0, 1, 0)
    assert judge(consumed_twice, 0, 1).doubled == 1
    confirmed_and_stored = judge(ledger_of(0, 1, consumed={0: 0}), 0, 7, 1)
    assert confirmed_and_stored.examples["doubled"] == ["0@1"]
    assert judge(ledger_of(5, 6), 0, 1, begin=5).doubled == 0


def test_an_earlier_message_behind_a_later_one_is_disordered() -> None:
    verdict = judge(ledger_of(0, 2, consumed={0: 0, 1: 2, 2: 1}), 0, 2, 1)
    assert verdict.examples["disordered"] == ["0:1"]
    again = judge(ledger_of(0, 1), 0, 1, 0)  # the first try of 0 was sent again by the network
    assert again.disordered == 0
