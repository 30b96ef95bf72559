"""Groups by an administrator's hand."""

from __future__ import annotations

import json

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.tables import subscription_group_manager
from trocket.remoting.bodies import SubscriptionGroupConfig, SubscriptionGroupList
from trocket.remoting.request_codes import RequestCode

from ..harness import BrokerTables


def create(broker, *names, **settings):
    groups = [SubscriptionGroupConfig(group_name=name, **settings) for name in names]
    if len(groups) == 1:
        code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, groups[0].to_body()
    else:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        body = SubscriptionGroupList(group_config_list=groups).to_body()
    return broker.ask(code, body=body)


def test_a_group_is_created_and_changed():
    broker = BrokerTables()
    assert create(broker, "g", retry_max_times=3).code == 0
    assert create(broker, "g", retry_max_times=4).code == 0
    assert broker.groups.find("g").retry_max_times == 4


def test_a_list_creates_all_groups_with_one_save():
    broker = BrokerTables()
    answer = create(broker, "g1", "g2")
    assert (answer.code, answer.remark) == (0, None)
    assert broker.groups.contains("g1")
    assert broker.groups.contains("g2")
    assert broker.saves == 1


@pytest.mark.parametrize("names", [("a/b",), ("g", "a/b")])
def test_a_bad_name_is_refused_and_nothing_is_created(names):
    broker = BrokerTables()
    answer = create(broker, *names)
    assert (answer.code, answer.remark) == (
        29,
        "The specified group: a/b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
    )
    assert not broker.groups.contains("g")


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"retryMaxTimes":"many"}'),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b"{"),
    ],
)
def test_a_body_that_is_no_group_is_refused(code, body):
    answer = BrokerTables().ask(code, body=body)
    assert answer.code == 1
    assert answer.remark.startswith(f"the body of request {code:d} cannot be read: ")


@pytest.mark.parametrize("body", [b"", b"null"])
def test_an_update_without_a_group_changes_nothing_and_succeeds(body):
    broker = BrokerTables()
    before = broker.groups.encode()
    answer = broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert answer.code == 0
    assert broker.groups.encode() == before


@pytest.mark.parametrize(
    ("fields", "offset"),
    [({}, 5), ({"cleanOffset": "false"}, 5), ({"cleanOffset": "true"}, -1)],
)
def test_a_deleted_group_keeps_its_offsets_unless_they_shall_go_too(fields, offset):
    broker = BrokerTables()
    create(broker, "g")
    broker.offsets.commit_offset("g", "T", 0, 5)
    answer = broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", **fields})
    assert (answer.code, answer.remark) == (0, None)
    assert not broker.groups.contains("g")
    assert broker.offsets.query_offset("g", "T", 0) == offset


def test_one_group_is_returned_and_an_unknown_one_is_created_as_its_first_pull_would():
    broker = BrokerTables()
    create(broker, "g", retry_queue_nums=2)
    answer = broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert SubscriptionGroupConfig.from_body(answer.body) == broker.groups.find("g")
    answer = broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "h"})
    assert answer.code == 0
    assert SubscriptionGroupConfig.from_body(answer.body) == SubscriptionGroupConfig(group_name="h")
    assert broker.groups.contains("h")


@pytest.mark.parametrize("name", ["h", "CID_RMQ_SYS_mine", "with blank", "x" * 256, ""])
def test_a_query_creates_no_group_that_a_pull_would_not(name):
    broker = BrokerTables(BrokerConfig(auto_create_subscription_group=False))
    may_exist = name.startswith("CID_RMQ_SYS_")
    answer = broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
    assert answer.code == (0 if may_exist else 26)
    assert answer.remark == (None if may_exist else "No group in this broker")
    assert broker.groups.contains(name) == may_exist


def test_queries_create_no_more_groups_than_there_may_be():
    broker = BrokerTables()
    room = broker.config.groups_max = len(broker.groups.subscription_group_table)
    answer = broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "one_more"})
    assert answer.code == 26
    assert "groupsMax" in answer.remark
    assert len(broker.groups.subscription_group_table) == room


def test_groups_are_returned_all_at_once_or_in_pages():
    broker = BrokerTables()
    create(broker, "g")
    broker.groups.forbidden_table["g"] = {"T": 1}
    names = sorted(broker.groups.subscription_group_table)
    total = {"totalGroupNum": str(len(names))}

    def table(fields):
        answer = broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, fields)
        assert answer.ext_fields == total
        body = json.loads(answer.body)
        return sorted(body["subscriptionGroupTable"]), body["forbiddenTable"]

    assert table({}) == (names, {"g": {"T": 1}})
    version = broker.groups.data_version.to_body().decode()
    first = table({"groupSeq": "0", "maxGroupNum": "2", "dataVersion": ""})
    assert first == (names[:2], {})
    rest = table({"groupSeq": "2", "maxGroupNum": "2000", "dataVersion": version})
    assert rest == (names[2:], {"g": {"T": 1}})


FORBIDDEN = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN


def readable(broker, topic="T", group="g", **fields):
    answer = broker.ask(FORBIDDEN, {"group": group, "topic": topic, **fields})
    assert (answer.code, answer.remark) == (0, "")
    body = json.loads(answer.body)
    assert (body.pop("group"), body.pop("topic")) == (group, topic)
    return body == {"readable": True}


def test_a_group_is_forbidden_a_topic_and_allowed_it_again():
    broker = BrokerTables()
    create(broker, "g")
    assert readable(broker)
    assert not readable(broker, readable="false")
    assert not readable(broker)
    assert readable(broker, topic="U")
    assert readable(broker, group="h")
    # It is in the file, as RocketMQ has it, and in the answer for slaves.
    assert json.loads(broker.files["subscriptionGroup.json"])["forbiddenTable"] == {"g": {"T": 4}}
    answer = broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
    assert json.loads(answer.body)["forbiddenTable"] == {"g": {"T": 4}}
    assert readable(broker, readable="true")
    assert json.loads(broker.files["subscriptionGroup.json"])["forbiddenTable"] == {}


def test_allowing_one_topic_leaves_the_others_forbidden_and_other_bits_in_place():
    broker = BrokerTables()
    broker.groups.forbidden_table["g"] = {"T": 6, "U": 4, "odd": -4}
    assert readable(broker, topic="odd")
    assert readable(broker, topic="T", readable="true")
    assert not readable(broker, topic="U")
    assert broker.groups.forbidden_table == {"g": {"T": 2, "U": 4, "odd": -4}}


def test_what_changes_nothing_is_not_saved():
    broker = BrokerTables()
    version = broker.groups.data_version
    assert readable(broker, readable="true")
    assert broker.groups.data_version == version
    assert broker.saves == 0


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"group": "a/b", "topic": "T", "readable": "false"}, 29, "The specified group: a/b"),
        ({"group": "g", "topic": "a/b", "readable": "false"}, 29, "a/b"),
        ({"topic": "T"}, 1, "group"),
        ({"group": "g"}, 1, "topic"),
    ],
)
def test_what_cannot_be_forbidden_is_refused(fields, code, words):
    broker = BrokerTables()
    answer = broker.ask(FORBIDDEN, fields)
    assert answer.code == code
    assert words in answer.remark
    assert broker.groups.forbidden_table == {}


def test_the_number_of_forbidden_pairs_is_bounded(monkeypatch):
    monkeypatch.setattr(subscription_group_manager, "FORBIDDEN_COUNT_MAX", 2)
    broker = BrokerTables()
    for topic in ("T", "U"):
        assert not readable(broker, topic=topic, readable="false")
    answer = broker.ask(FORBIDDEN, {"group": "h", "topic": "T", "readable": "false"})
    assert answer.code == 1
    assert "no more than 2" in answer.remark
    assert readable(broker, topic="U", readable="true")
