"""The table of filter servers."""

from __future__ import annotations

import pytest

from trocket.broker.filter_servers.filter_server_manager import FilterServerManager
from trocket.remoting.errors import RequestRefused
from trocket.remoting.names import FILTER_SERVERS_MAX
from trocket.remoting.response_codes import ResponseCode

from ..harness import FakeChannel


class Table(FilterServerManager):
    """Counts the changes that it tells."""

    def __init__(self) -> None:
        super().__init__(on_change=self._changed)
        self.changes: list[tuple[str, ...]] = []

    def _changed(self) -> None:
        self.changes.append(self.addresses)


def test_a_filter_server_is_registered_from_its_first_301_and_notified_once():
    table, channel = Table(), FakeChannel()
    table.register(channel, "127.0.0.1:40747", now_s=0)
    table.register(channel, "127.0.0.1:40747", now_s=10)
    assert table.addresses == ("127.0.0.1:40747",)
    assert table.changes == [("127.0.0.1:40747",)]
    assert table.arrivals == 1


def test_it_goes_with_its_connection():
    table, one, other = Table(), FakeChannel(), FakeChannel()
    table.register(one, "h:1", now_s=0)
    table.register(other, "h:2", now_s=0)
    assert table.channel_closed(one)
    assert not table.channel_closed(one)
    assert table.addresses == ("h:2",)
    assert table.changes[-1] == ("h:2",)
    assert len(table.changes) == 3


def test_a_silent_one_is_dropped_after_30_s_and_not_before():
    table, silent, alive = Table(), FakeChannel(), FakeChannel()
    table.register(silent, "h:1", now_s=0)
    table.register(alive, "h:2", now_s=0)
    table.register(alive, "h:2", now_s=10)
    assert table.scan_inactive(30) == []
    assert table.scan_inactive(30.1) == [silent]
    assert table.addresses == ("h:2",)
    assert table.changes[-1] == ("h:2",)
    assert table.scan_inactive(30.1) == []


def test_an_address_is_where_it_came_from_last_and_the_old_connection_takes_nothing_along():
    table, old, new = Table(), FakeChannel(), FakeChannel()
    table.register(old, "h:1", now_s=0)
    table.register(new, "h:1", now_s=25)
    assert table.addresses == ("h:1",)
    assert table.scan_inactive(40) == []
    assert not table.channel_closed(old)
    assert table.addresses == ("h:1",)
    assert (len(table.changes), table.arrivals) == (1, 1)


def test_a_connection_has_one_address_the_last():
    table, one, other = Table(), FakeChannel(), FakeChannel()
    table.register(one, "h:1", now_s=0)
    table.register(one, "h:2", now_s=1)
    assert table.changes == [("h:1",), ("h:2",)]
    table.register(other, "h:3", now_s=1)
    table.register(one, "h:3", now_s=2)
    assert table.addresses == ("h:3",)
    assert table.changes[-1] == ("h:3",)
    assert not table.channel_closed(other)


@pytest.mark.parametrize(
    "address", ["", "h", "h:0", "h:65536", "a b:1", "$(reboot):1", "h:1;h:2", "h:1\nh:2", "../x:1"]
)
def test_what_is_no_address_is_refused(address: str):
    table = Table()
    with pytest.raises(RequestRefused, match="illegal filter server address") as refusal:
        table.register(FakeChannel(), address, now_s=0)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert table.addresses == ()
    assert table.changes == []


def test_there_are_at_most_as_many_as_a_name_server_takes_and_those_that_are_here_stay():
    table = Table()
    channels = [FakeChannel() for _ in range(FILTER_SERVERS_MAX)]
    for number, channel in enumerate(channels, start=1):
        table.register(channel, f"h:{number}", now_s=0)
    newcomer = FakeChannel()
    with pytest.raises(RequestRefused, match="64 filter servers"):
        table.register(newcomer, "h:1000", now_s=1)
    table.register(channels[0], "h:1", now_s=20)
    table.register(newcomer, "h:2", now_s=20)
    assert len(table.addresses) == FILTER_SERVERS_MAX
    assert channels[1] not in table.scan_inactive(40)
    table.register(channels[1], "h:1000", now_s=40)
    assert set(table.addresses) == {"h:1", "h:2", "h:1000"}
