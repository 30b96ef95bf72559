"""Groups by an administrator's hand."""

from __future__ import annotations

import json

import pytest

from trocket.remoting.bodies import SubscriptionGroupConfig, SubscriptionGroupList
from trocket.remoting.request_codes import RequestCode

from ..harness import Broker


def create(broker, *names, **settings):
    groups = [SubscriptionGroupConfig(group_name=name, **settings) for name in names]
    if len(groups) == 1:
        code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, groups[0].to_body()
    else:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        body = SubscriptionGroupList(group_config_list=groups).to_body()
    return broker.ask(code, body=body)


def test_a_group_is_created_and_changed():
    broker = Broker()
    assert create(broker, "g", retry_max_times=3).code == 0
    assert create(broker, "g", retry_max_times=4).code == 0
    assert broker.groups.find("g").retry_max_times == 4


def test_a_list_creates_all_groups_with_one_save():
    broker = Broker()
    answer = create(broker, "g1", "g2")
    assert (answer.code, answer.remark) == (0, None)
    assert broker.groups.contains("g1")
    assert broker.groups.contains("g2")
    assert broker.saves == 1


@pytest.mark.parametrize("names", [("a/b",), ("g", "a/b")])
def test_a_bad_name_is_refused_and_nothing_is_created(names):
    broker = Broker()
    answer = create(broker, *names)
    assert (answer.code, answer.remark) == (
        29,
        "The specified group: a/b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
    )
    assert not broker.groups.contains("g")


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b""),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"retryMaxTimes":"many"}'),
        (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b"{"),
    ],
)
def test_a_body_that_is_no_group_is_refused(code, body):
    answer = Broker().ask(code, body=body)
    assert answer.code == 1
    assert answer.remark.startswith(f"the body of request {code:d} cannot be read: ")


@pytest.mark.parametrize(
    ("fields", "offset"),
    [({}, 5), ({"cleanOffset": "false"}, 5), ({"cleanOffset": "true"}, -1)],
)
def test_a_deleted_group_keeps_its_offsets_unless_they_shall_go_too(fields, offset):
    broker = Broker()
    create(broker, "g")
    broker.offsets.commit_offset("g", "T", 0, 5)
    answer = broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", **fields})
    assert (answer.code, answer.remark) == (0, None)
    assert not broker.groups.contains("g")
    assert broker.offsets.query_offset("g", "T", 0) == offset


def test_one_group_is_returned_and_a_query_of_an_unknown_one_creates_nothing():
    broker = Broker()
    create(broker, "g", retry_queue_nums=2)
    answer = broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    assert SubscriptionGroupConfig.from_body(answer.body) == broker.groups.find("g")
    answer = broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "h"})
    assert (answer.code, answer.remark) == (26, "No group in this broker")
    assert not broker.groups.contains("h")


def test_groups_are_returned_all_at_once_or_in_pages():
    broker = Broker()
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
