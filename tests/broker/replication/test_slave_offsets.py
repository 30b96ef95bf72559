"""The offsets of a slave: its master's, or those that clients committed there."""

from __future__ import annotations

import pytest

from trocket.broker.replication.slave_offsets import SlaveOffsets
from trocket.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from trocket.common.clock import ManualClock
from trocket.remoting.bodies import DataVersion

KEY = "T@CG"


class Slave:
    """The table of a slave whose queues end at 1000."""

    def __init__(self, end: int = 1000) -> None:
        self.saved: list[bytes] = []
        self.table = ConsumerOffsetManager(
            clock=ManualClock(), save=lambda _, text: self.saved.append(text)
        )
        self.offsets = SlaveOffsets(self.table, lambda topic, queue_id: end)

    def hear(self, *offsets: int, key: str = KEY) -> None:
        """A round in which the master tells these offsets, of queues 0, 1, …"""
        members = ",".join(f"{queue_id}:{offset}" for queue_id, offset in enumerate(offsets))
        self.offsets.take_over(b'{"offsetTable":{"%b":{%b}}}' % (key.encode(), members.encode()))

    @property
    def now(self) -> dict[int, int]:
        return dict(self.table.offset_table.get("T@CG", {}))


def test_the_masters_offsets_are_taken_over_and_saved() -> None:
    slave = Slave()
    slave.hear(5, 7)
    assert slave.now == {0: 5, 1: 7}
    assert slave.table.file.persist_changed()
    slave.hear(5, 7)
    assert not slave.table.file.persist_changed()


def test_an_offset_that_the_master_sets_back_goes_back() -> None:
    slave = Slave()
    slave.hear(500)
    slave.hear(10)
    assert slave.now == {0: 10}


def test_what_a_client_has_committed_here_does_not_go_back_with_an_older_table() -> None:
    slave = Slave()
    slave.hear(50)
    slave.table.commit_offset("CG", "T", 0, 100)  # the master was away
    for copied, counts in ((50, 100), (99, 100), (100, 100), (120, 120), (60, 60)):
        slave.hear(copied)
        assert slave.now == {0: counts}, copied


def test_so_does_a_group_that_the_master_has_not_heard_of() -> None:
    slave = Slave()
    slave.hear(1, key="T@other")
    slave.table.commit_offset("CG", "T", 0, 100)
    slave.hear(1, key="T@other")
    assert slave.now == {0: 100}
    slave.hear(20)
    assert slave.now == {0: 100}


def test_a_client_that_commits_less_than_the_master_has_is_overtaken() -> None:
    slave = Slave()
    slave.hear(50)
    slave.table.commit_offset("CG", "T", 0, 20)
    slave.hear(50)
    assert slave.now == {0: 50}


def test_after_a_restart_the_masters_table_counts() -> None:
    slave = Slave()
    slave.table.decode(b'{"offsetTable":{"T@CG":{0:100}}}')
    slave.hear(50)
    assert slave.now == {0: 50}


def test_no_offset_is_taken_from_behind_the_end_of_the_slaves_own_queue() -> None:
    slave = Slave(end=40)
    slave.hear(50)
    assert slave.now == {0: 40}


def test_what_the_master_forgets_is_forgotten_but_what_clients_committed_here() -> None:
    slave = Slave()
    slave.hear(5, 6)
    slave.table.commit_offset("CG", "T", 1, 9)
    slave.hear(1, key="T@other")
    assert slave.now == {1: 9}
    slave.hear(1, key="T@other")
    assert slave.now == {1: 9}


def test_a_negative_offset_is_none() -> None:
    slave = Slave()
    slave.hear(-1)
    assert slave.now == {}


def test_the_version_is_the_masters() -> None:
    slave = Slave()
    slave.offsets.take_over(
        b'{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":7},"offsetTable":{}}'
    )
    assert slave.table.data_version == DataVersion(timestamp=7, counter=3)


@pytest.mark.parametrize("text", [b"", b"[]", b'{"offsetTable":{"T@CG":{"x":1}}}'])
def test_what_is_no_table_changes_nothing(text: bytes) -> None:
    slave = Slave()
    slave.hear(5)
    with pytest.raises(ValueError, match="not a table of consumer offsets"):
        slave.offsets.take_over(text)
    assert slave.now == {0: 5}
