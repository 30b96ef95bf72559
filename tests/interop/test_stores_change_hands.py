"""Sets of controller mode whose members change between trocket and Apache, with their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.bench.failover import compare_stores
from trocket.interop.controller_mode import (
    APACHE,
    OURS,
    ControlledSet,
    Member,
    Mix,
)
from trocket.interop.wire import Outgoing, WireClient
from trocket.remoting.message_codec import decode_record

from ..kit.matrix import first_of
from ..kit.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TOPIC = "Orders"
ALL_ACK = {"allAckInSyncStateSet": True}


def send(member: Member, *bodies: bytes) -> None:
    with WireClient(member.address) as client:
        for body in bodies:  # one after the other: Apache's broker does not keep their order
            client.send_all([Outgoing(TOPIC, 0, body)])


def bodies_of(member: Member) -> list[bytes]:
    with WireClient(member.address) as client:
        return [decode_record(each).body for each in client.pull_all("reader", TOPIC, 0)]


def wait_shown(member: Member, count: int) -> None:
    """Wait until a member shows all messages: it knows that they are confirmed."""
    with WireClient(member.address) as client:
        wait_until(
            lambda: client.max_offset(TOPIC, 0) >= count, f"{member.name} shows all messages"
        )


def switch(brokers: ControlledSet) -> Member:
    """Kill the master, and start it again once another one is elected; the new master."""
    lost = brokers.master()
    lost.kill()
    master, _ = brokers.wait_other_master(lost)
    lost.start()
    brokers.wait_in_sync(len(brokers.members))
    return master


@pytest.mark.parametrize(
    ("kind", "controller"),
    # From ours to Apache's and back, under Apache's controller: no other test of `make test` has
    # our brokers under it.
    first_of([(OURS, APACHE), (OURS, OURS), (APACHE, OURS), (APACHE, APACHE)]),
)
def test_both_kinds_of_brokers_go_on_with_the_stores_of_the_other(
    tmp_path: Path, kind: str, controller: str
) -> None:
    expected: list[bytes] = []

    def send_more(member: Member, count: int = 20) -> None:
        fresh = [b"%d" % (len(expected) + number) for number in range(count)]
        send(member, *fresh)
        expected.extend(fresh)

    with ControlledSet(Mix((kind, kind), controller), tmp_path, keys=ALL_ACK) as brokers:
        brokers.start()
        with WireClient(brokers.master().address) as client:
            client.create_topic(TOPIC, queue_count=1)
        send_more(brokers.master())
        send_more(switch(brokers))  # a second epoch in the files
        before = brokers.state()
        assert before is not None
        for other in (APACHE if kind == OURS else OURS, kind):
            for member in brokers.members:
                member.stop()
            for member in brokers.members:
                member.become(other)
                member.start()
            state = brokers.wait_in_sync(2)
            # Their numbers are those of the identity files, and their addresses are new.
            assert state.addresses.keys() == before.addresses.keys()
            assert not {*state.addresses.values()} & {*before.addresses.values()}
            assert state.master_epoch > before.master_epoch
            master = brokers.master()
            assert bodies_of(master) == expected
            send_more(master)
            master = switch(brokers)
            assert bodies_of(master) == expected
            send_more(master)
            state = brokers.wait_in_sync(2)
            before = state
        for member in brokers.members:
            wait_shown(member, len(expected))
        for member in brokers.members:
            member.stop()
        text, are_equal = compare_stores(brokers)
        assert are_equal, text
