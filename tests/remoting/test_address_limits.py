"""Connections and waiting requests are counted by address, whatever ends first."""

from __future__ import annotations

from trocket.common.connection_policy import ConnectionPolicy
from trocket.remoting.address_limits import AddressLimits, PeerAddress
from trocket.remoting.refusals import Refusals

STRANGER = "198.51.100.7:1"


def admitted(limits: AddressLimits) -> PeerAddress:
    address = limits.admit(STRANGER)
    assert address is not None
    return address


def test_an_address_that_left_while_requests_waited_is_forgotten_once() -> None:
    limits = AddressLimits(ConnectionPolicy(connections_per_address_max=2), Refusals())
    first = admitted(limits)
    first.in_flight += 1
    limits.leave(first)
    assert admitted(limits) is first  # the waiting request still counts
    first.in_flight -= 1
    limits.leave(first)
    for _ in range(2):
        admitted(limits)
    limits.forget_finished()
    assert limits.admit(STRANGER) is None


def test_an_address_is_forgotten_when_its_last_request_has_ended() -> None:
    limits = AddressLimits(ConnectionPolicy(), Refusals())
    first = admitted(limits)
    first.in_flight += 1
    limits.leave(first)
    limits.forget_finished()
    assert admitted(limits) is first
    limits.leave(first)
    first.in_flight -= 1
    limits.forget_finished()
    assert admitted(limits) is not first


def test_connections_are_no_more_than_there_are_descriptors_for() -> None:
    limits = AddressLimits(ConnectionPolicy(), Refusals())
    limits.places = 4
    assert [limits.admit(STRANGER) is None for _ in range(3)] == [False, False, True]
    assert limits.admit("192.0.2.2:1") is not None
    assert limits.admit("127.0.0.1:1") is not None
    assert limits.admit("127.0.0.1:1") is None
    assert limits.is_crowded
