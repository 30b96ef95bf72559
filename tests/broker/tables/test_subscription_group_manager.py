"""The table of groups."""

from __future__ import annotations

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables.config_text import SUBSCRIPTION_GROUPS
from trocket.broker.tables.subscription_group_manager import SYSTEM_GROUPS, SubscriptionGroupManager
from trocket.common.clock import ManualClock
from trocket.disk.errors import StoreIOError
from trocket.remoting.bodies import SubscriptionGroupConfig
from trocket.remoting.errors import RequestRefused
from trocket.remoting.response_codes import ResponseCode


class Table(SubscriptionGroupManager):
    """A table that remembers what it saved."""

    def __init__(self, **config):
        self.files = []
        self.is_full = False
        super().__init__(
            BrokerConfig(**config),
            clock=ManualClock(5_000),
            save=self._save,
        )

    def _save(self, name, text):
        if self.is_full:
            raise StoreIOError("/x", "no space left")
        self.files.append((name, text))


def test_a_new_broker_has_rocketmqs_own_groups():
    table = Table()
    assert set(table.subscription_group_table) == set(SYSTEM_GROUPS)
    assert (table.data_version.counter, table.files) == (0, [])


def test_an_unknown_group_is_created_where_that_is_allowed():
    table = Table()
    group = table.find("g")
    assert (group.group_name, group.retry_max_times, group.consume_enable) == ("g", 16, True)
    assert table.find("g") is group
    assert table.contains("g")
    assert len(table.files) == table.data_version.counter == 1


def test_where_it_is_not_allowed_only_system_groups_are():
    table = Table(auto_create_subscription_group=False)
    assert table.find("g") is None
    assert table.find("CID_RMQ_SYS_x") is not None


@pytest.mark.parametrize("group", ["", " ", "a/b", "g" * 121])
def test_a_group_with_a_bad_name_is_not_created(group):
    table = Table()
    assert table.find(group) is None
    assert table.files == []


def test_the_number_of_groups_is_bounded():
    table = Table(groups_max=len(SYSTEM_GROUPS) + 1)
    assert table.find("g1") is not None
    with pytest.raises(RequestRefused, match="there are 9 groups, which is the limit groupsMax"):
        table.find("g2", "192.0.2.7:1")
    with pytest.raises(RequestRefused, match="no more than"):
        table.update([SubscriptionGroupConfig(group_name="g2")])
    table.update([SubscriptionGroupConfig(group_name="g1", retry_max_times=3)])
    assert table.find("g1").retry_max_times == 3


def test_an_update_with_one_bad_group_changes_nothing():
    table = Table()
    with pytest.raises(RequestRefused) as refused:
        table.update(
            [SubscriptionGroupConfig(group_name="g"), SubscriptionGroupConfig(group_name="a/b")]
        )
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert not table.contains("g")
    with pytest.raises(RequestRefused, match="unsupported key"):
        table.update([SubscriptionGroupConfig(group_name="g", attributes={"+a": "1"})])
    assert table.files == []


def test_an_update_of_several_groups_is_one_change():
    table = Table()
    table.update([SubscriptionGroupConfig(group_name=name) for name in ("g1", "g2")])
    assert len(table.files) == table.data_version.counter == 1


def test_a_deleted_group_is_gone_with_what_it_was_forbidden():
    table = Table()
    table.find("g")
    table.forbidden_table["g"] = {"T": 1}
    assert table.delete("g")
    assert not table.delete("g")
    assert not table.contains("g")
    assert table.forbidden_table == {}


def test_what_is_saved_comes_back():
    saved = Table()
    saved.forbidden_table["g"] = {"T": 1}
    saved.update([SubscriptionGroupConfig(group_name="g", retry_queue_nums=3)])
    name, text = saved.files[-1]
    assert name == SUBSCRIPTION_GROUPS
    table = Table()
    assert table.decode(text) == len(SYSTEM_GROUPS) + 1
    assert table.subscription_group_table == saved.subscription_group_table
    assert table.forbidden_table == {"g": {"T": 1}}
    assert table.data_version == saved.data_version
    assert table.encode() == text


def test_a_changed_group_is_written_anew():
    table = Table()
    table.find("g")
    table.update([SubscriptionGroupConfig(group_name="g", retry_queue_nums=3)])
    again = Table()
    again.decode(table.files[-1][1])
    assert again.find("g").retry_queue_nums == 3
    table.delete("g")
    again.decode(table.files[-1][1])
    assert not again.contains("g")


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"subscriptionGroupTable":{"g":{"retryMaxTimes":"x"}}}']
)
def test_a_file_that_is_no_table_is_refused_and_changes_nothing(text):
    table = Table()
    before = table.encode()
    with pytest.raises(ValueError):  # noqa: PT011 - the text tells, and differs
        table.decode(text)
    assert table.encode() == before


def test_changes_inside_saving_once_are_saved_together():
    table = Table()
    with table.file.saving_once():
        table.find("g1")
        table.find("g2")
        assert table.files == []
    assert len(table.files) == 1


def test_a_group_of_a_heartbeat_serves_even_when_it_cannot_be_saved(caplog):
    table = Table()
    table.is_full = True
    assert table.find("g") is not None
    assert "could not be saved" in caplog.text


async def test_an_administrator_hears_that_a_change_could_not_be_saved():
    table = Table()
    table.is_full = True
    table.update([SubscriptionGroupConfig(group_name="g")])
    with pytest.raises(StoreIOError):
        await table.file.saved()
    table.delete("g")
    with pytest.raises(StoreIOError):
        await table.file.saved()
